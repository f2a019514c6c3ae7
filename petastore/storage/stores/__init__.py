"""Stores: object stores and web servers by obstore, and the filesystems of fsspec and Arrow, behind one interface."""
