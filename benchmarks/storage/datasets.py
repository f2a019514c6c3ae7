"""Datasets: their fields and numbers of rows. Also imported in environments that have only Python."""

from __future__ import annotations

import dataclasses
from typing import Final

from benchmarks.bench.workloads import WORKLOADS, Column, Workload

__all__ = ["IMAGES", "TABLE", "TABULAR", "workload_of"]

IMAGES: Final = dataclasses.replace(WORKLOADS["images"], rows=49_152)
"""As the benchmark of loaders has them, twelve times as many: a gigabyte.

A shuffled batch has rows of 24 row groups, 132 MB, so over a line of 100 MB/s the first one takes more than a second,
during which nothing can be decoded. That is to be a small part of an epoch, as it is with data that need a far store.
"""

TABULAR: Final = WORKLOADS["tabular"]

TABLE: Final = Workload(
    "table",
    4_194_304,
    32_768,
    32_768,
    {"id": Column("key", "int64"), "value": Column("number", "int64")},
    "a number, and another that follows from it",
)
"""Rows that can be checked: 128 row groups, of each column 256 KiB."""

_ALL: Final = {workload.name: workload for workload in (IMAGES, TABULAR, TABLE)}


def workload_of(name: str, scale: float = 1.0) -> Workload:
    """A dataset, or a part of it in row groups as large.

    Example:
        >>> workload_of("images", 0.25).rows, workload_of("images", 0.25).row_group
        (3072, 256)
    """
    found = _ALL[name]
    groups = max(2, round(found.rows / found.row_group * scale))
    return dataclasses.replace(found, rows=groups * found.row_group)
