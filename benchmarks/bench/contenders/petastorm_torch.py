"""Petastorm with its own torch loaders: `BatchedDataLoader` over columns if possible, otherwise rows."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.bench.workloads import Workload

__all__ = ["PACKAGES", "batches"]

warnings.filterwarnings("ignore")
petastorm = importlib.import_module("petastorm")
loaders = importlib.import_module("petastorm.pytorch")

PACKAGES = ("petastorm", "pyarrow", "numpy", "torch", "opencv-python-headless")


def batches(
    workload: Workload,
    folder: Path | str,
    *,
    reader: str,
    loader: str,
    queue: int = 0,
    s3: Mapping[str, Any] | None = None,
    **reader_options: Any,
) -> Iterator[Any]:
    """Batches of tensors.

    Args:
        workload: What is read.
        folder: The dataset: a local directory, or a URL.
        reader: `make_reader` or `make_batch_reader`.
        loader: `DataLoader` or `BatchedDataLoader`.
        queue: Rows of its shuffling queue; 0 leaves the shuffling to the reader.
        s3: Options of `s3fs.S3FileSystem`, for a folder in S3.
        **reader_options: Of the reader.
    """
    options = {"shuffle_rows": True, "shuffle_row_groups": True, "seed": 1, "workers_count": 2, "num_epochs": None}
    if s3 is not None:
        reader_options["filesystem"] = _filesystem(s3)
    url = folder.absolute().as_uri() if isinstance(folder, Path) else folder
    with (
        getattr(petastorm, reader)(url, **options | reader_options) as opened,
        getattr(loaders, loader)(opened, batch_size=workload.batch, shuffling_queue_capacity=queue) as batched,
    ):
        yield from batched


def _filesystem(s3: Mapping[str, Any]) -> Any:
    """s3fs as pyarrow's old datasets take it, which Petastorm needs: those of today refuse what it asks of them."""
    legacy = importlib.import_module("pyarrow.filesystem")

    class Wrapped(legacy.DaskFileSystem):  # type: ignore[name-defined, misc]
        def isdir(self, path: str) -> Any:
            return self.fs.isdir(path)

        def isfile(self, path: str) -> Any:
            return self.fs.isfile(path)

    return Wrapped(importlib.import_module("s3fs").S3FileSystem(**s3))
