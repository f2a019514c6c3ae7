"""What a plan says of itself, in words and figures."""
