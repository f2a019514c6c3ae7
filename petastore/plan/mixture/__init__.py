"""Mixtures of several sources, as one plan."""
