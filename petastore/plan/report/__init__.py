"""What a plan says of itself, in words, figures and pictures."""
