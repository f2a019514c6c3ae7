"""Readers of windows (groups of consecutive rows)."""
