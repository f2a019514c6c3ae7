"""Mixtures: readers of several datasets at once."""
