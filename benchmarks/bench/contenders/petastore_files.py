"""Dataset for petastore, Petastorm and the limits: petastore writes it such that Petastorm can read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import petastore
from benchmarks.bench.schema import schema_of
from benchmarks.bench.values import Values, crops_of
from benchmarks.bench.workloads import Workload

__all__ = ["PACKAGES", "write"]

PACKAGES = ("petastore", "pyarrow")


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Writes the dataset; pictures are encoded from their pixels once more, to the same bytes as in `values`."""
    petastore.write_dataset(
        folder, schema_of(workload), _rows(workload, values), rows_per_row_group=workload.row_group, mode="overwrite"
    )


def _rows(workload: Workload, values: Values) -> Iterator[dict[str, Any]]:
    pictures = workload.of_kind("jpeg", "png")
    texts = workload.of_kind("text")
    columns: dict[str, Any] = {
        name: crops_of(name, workload) if name in pictures else iter(values.column(name)) for name in workload.columns
    }
    for _ in range(workload.rows):
        row = {name: next(column) for name, column in columns.items()}
        for name in texts:
            row[name] = row[name].decode()
        yield row
