"""Stores as obstore reaches them: what fsspec's options mean to it, and its failures as the built-ins that they are."""
