"""petastore read row by row, as named tuples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import petastore
from benchmarks.bench.workloads import Workload

__all__ = ["PACKAGES", "batches"]

PACKAGES = ("petastore", "pyarrow", "numpy")


def batches(workload: Workload, folder: Path, **reader_options: Any) -> Iterator[dict[str, list[Any]]]:
    """Each row is taken from the reader by itself; its key is kept, so that rows can be checked."""
    key = workload.key  # looked up once: it would cost more than a row
    options = {"shuffle_rows": True, "seed": 1, "workers_count": 2, "num_epochs": None, **reader_options}
    with petastore.make_reader(folder, **options) as reader:
        keys = (getattr(row, key) for row in reader)
        while run := list(itertools.islice(keys, workload.batch)):
            yield {key: run}
