"""Sharing: a plan divided among processes of loaders, and their states."""
