"""Conversion between Arrow columns and NumPy arrays."""
