"""Storage: locations, footers, manifest and row groups of a dataset.

All dataset I/O is here.
"""
