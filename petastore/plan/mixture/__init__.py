"""Mixtures: several datasets, mixed by weight, as one read plan."""
