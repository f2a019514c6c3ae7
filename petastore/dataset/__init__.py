"""Datasets: what lies at a URL, read once when it is opened, as a value that knows the way to its row groups."""

from __future__ import annotations

from petastore.dataset.dataset import Dataset, ReadInParts
from petastore.dataset.opening import open_dataset

__all__ = ["Dataset", "ReadInParts", "open_dataset"]
