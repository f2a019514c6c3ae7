"""Benchmarks of remote storage and of the disk cache: `python -m benchmarks.storage --help`."""
