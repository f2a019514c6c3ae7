"""A batch: named columns of equal length, and the cursor after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.plan.cursor import Cursor

__all__ = ["Batch"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Batch(Mapping[str, NDArray[Any]]):
    """Column name to array, in column order.

    A field of fixed shape is an array `(rows, *shape)` of its dtype; where values are missing it is a
    `numpy.ma.MaskedArray` of the same dtype. Text, bytes, decimals and fields of free shape are object arrays
    `(rows,)`, with None where a value is missing. With `tail="pad"` the column `valid` says which rows are no
    repeats.

    The arrays belong to whoever received the batch: nothing is written into them again. Those of neighbouring batches
    may be views of one buffer.
    """

    columns: Mapping[str, NDArray[Any]]
    """The columns; treat as read-only."""

    num_rows: int
    """Rows of each column."""

    cursor: Cursor
    """Where to go on after this batch; the same on every rank."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {_describe(column)}" for name, column in self.columns.items())
        return f"Batch({self.num_rows:,} rows; {columns})"


def _describe(column: NDArray[Any]) -> str:
    missing = ", some missing" if isinstance(column, np.ma.MaskedArray) else ""
    return f"{column.dtype}{list(column.shape[1:]) or ''}{missing}"
