"""petastore with its torch DataLoader, configured only by arguments of `make_reader`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import petastore
from benchmarks.bench.workloads import Workload
from petastore.adapters.torch import DataLoader

__all__ = ["PACKAGES", "batches"]

PACKAGES = ("petastore", "pyarrow", "numpy", "torch", "simplejpeg", "zlib-ng")


def batches(workload: Workload, folder: Path | str, *, shuffled: bool = True, **reader_options: Any) -> Iterator[Any]:
    """Batches of tensors, shuffled row by row unless asked otherwise."""
    order: dict[str, Any] = {"shuffle_rows": shuffled, "shuffle_row_groups": shuffled, "seed": 1}
    with petastore.make_reader(folder, workers_count=2, num_epochs=None, **order, **reader_options) as reader:
        yield from DataLoader(reader, batch_size=workload.batch)
