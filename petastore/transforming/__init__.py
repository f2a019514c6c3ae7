"""Transforms: run a user's function on rows or columns, in this process or in worker processes."""
