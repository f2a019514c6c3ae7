"""Mixed readers: several datasets read together, by weight."""
