"""Small datasets for checks of Petastorm and petastore; uses only pyarrow."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ids_of", "numbers", "petastorm", "written"]


def petastorm(module: str = "petastorm") -> Any:
    """A module of Petastorm's, or what stands for it: whichever is installed, or switched on."""
    return importlib.import_module(module)


def written(folder: Path, columns: Any, *, rows_per_row_group: int = 10) -> str:
    """A plain Parquet file in a folder of its own; returns the folder's URL."""
    folder.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, folder / "data.parquet", row_group_size=rows_per_row_group)
    return folder.resolve().as_uri()


def numbers(folder: Path, rows: int, *, rows_per_row_group: int = 10) -> str:
    """Rows with `id` from 0, and `double`."""
    columns = {"id": list(range(rows)), "double": [2 * number for number in range(rows)]}
    return written(folder, columns, rows_per_row_group=rows_per_row_group)


def ids_of(reader: Any) -> list[int]:
    """The ids that a reader of rows gives, in its order; it is closed afterwards."""
    with reader:
        return [int(row.id) for row in reader]
