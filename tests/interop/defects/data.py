"""Write and read small datasets for checks of Petastorm and petastore, with pyarrow only."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ids_of", "numbers", "petastorm", "written"]


def petastorm(module: str = "petastorm") -> Any:
    """Return a module of Petastorm, or petastore's replacement if that is installed as `petastorm`."""
    return importlib.import_module(module)


def written(folder: Path, columns: Any, *, rows_per_row_group: int = 10) -> str:
    """Write a plain Parquet file into its own folder, and return the folder's URL."""
    folder.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, folder / "data.parquet", row_group_size=rows_per_row_group)
    return folder.resolve().as_uri()


def numbers(folder: Path, rows: int, *, rows_per_row_group: int = 10) -> str:
    """Write rows with `id` from 0 and `double`, and return the URL."""
    columns = {"id": list(range(rows)), "double": [2 * number for number in range(rows)]}
    return written(folder, columns, rows_per_row_group=rows_per_row_group)


def ids_of(reader: Any) -> list[int]:
    """Return the ids of a reader's rows, in its order, and close it."""
    with reader:
        return [int(row.id) for row in reader]
