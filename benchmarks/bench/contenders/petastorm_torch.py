"""Petastorm with its own torch loaders: `BatchedDataLoader` over columns where it can, else rows."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench.workloads import Workload

__all__ = ["PACKAGES", "batches"]

warnings.filterwarnings("ignore")
petastorm = importlib.import_module("petastorm")
loaders = importlib.import_module("petastorm.pytorch")

PACKAGES = ("petastorm", "pyarrow", "numpy", "torch", "opencv-python-headless")


def batches(
    workload: Workload, folder: Path, *, reader: str, loader: str, queue: int = 0, **reader_options: Any
) -> Iterator[Any]:
    """Batches of tensors.

    Args:
        workload: What is read.
        folder: The dataset.
        reader: `make_reader` or `make_batch_reader`.
        loader: `DataLoader` or `BatchedDataLoader`.
        queue: Rows of its shuffling queue; 0 leaves the shuffling to the reader.
        **reader_options: Of the reader.
    """
    options = {"shuffle_rows": True, "shuffle_row_groups": True, "seed": 1, "workers_count": 2, "num_epochs": None}
    with (
        getattr(petastorm, reader)(folder.absolute().as_uri(), **options | reader_options) as opened,
        getattr(loaders, loader)(opened, batch_size=workload.batch, shuffling_queue_capacity=queue) as batched,
    ):
        yield from batched
