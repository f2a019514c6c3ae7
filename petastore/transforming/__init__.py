"""Transforming: what a user's function makes of columns, here or in other processes."""
