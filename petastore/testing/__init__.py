"""Checks for your own codecs, filters, caches and training runs.

Needs `hypothesis` and `pytest`; nothing of petastore imports this package.
"""
