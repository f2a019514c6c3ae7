"""In the place of torchvision, of which PyPI has no build beside torch's for processors only."""
