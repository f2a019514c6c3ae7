"""Between Arrow's columns and NumPy's arrays."""
