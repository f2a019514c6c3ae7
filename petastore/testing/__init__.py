"""Checks for your own codecs and training runs, and a filesystem with faults.

The filesystem simulates storage faults.

Checks of codecs need `hypothesis` and `pytest`. The rest of petastore does not import this package.
"""
