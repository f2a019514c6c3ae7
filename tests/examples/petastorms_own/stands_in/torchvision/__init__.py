"""Replacement of torchvision, which PyPI does not have for CPU builds of torch."""
