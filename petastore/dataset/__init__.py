"""Datasets: schema and row groups at a URL, read once when a dataset is opened."""

from __future__ import annotations

from petastore.dataset.dataset import Dataset, ReadInParts
from petastore.dataset.opening import open_dataset

__all__ = ["Dataset", "ReadInParts", "open_dataset"]
