"""Batches: named columns of equal length, and the cursor after them; and the columns of which they are cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded
from petastore.plan.cursor import Cursor

__all__ = ["Batch", "Columns"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Columns:
    """The columns of several consecutive batches, made in one go.

    Who converts columns into something else converts them here, once, and cuts what comes out: that costs as much as
    for one batch.
    """

    by_name: Mapping[str, Decoded]
    """The columns, in column order."""

    stacks: tuple[tuple[tuple[str, ...], NDArray[Any]], ...] = ()
    """Some of them once more: names of columns that lie in one array `(columns, rows, ...)`, and this array."""


@dataclasses.dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class Batch(Mapping[str, NDArray[Any]]):
    """Column name to array, in column order.

    A field of fixed shape is an array `(rows, *shape)` of its dtype; where values are missing it is a
    `numpy.ma.MaskedArray` of the same dtype. Text, bytes, decimals and fields of free shape are object arrays
    `(rows,)`, with None where a value is missing. With `last_batch="pad"` the column `valid` says which rows are no
    repeats.

    The arrays belong to whoever received the batch: nothing is written into them as long as one of them lives. Those of
    neighbouring batches may be views of one buffer, so keeping a few rows for long keeps some megabytes; copy them.
    Thread-safe to read. A batch is equal to itself alone.

    Example:
        >>> columns = Columns({"id": Decoded(np.arange(5), None)})
        >>> batch = Batch(columns, 2, 4, Cursor(0, 4))
        >>> batch["id"], batch.num_rows
        (array([2, 3]), 2)
    """

    source: Columns
    """The columns that this batch is cut of."""

    first: int
    """Its first row there."""

    stop: int
    """The row after its last one there."""

    cursor: Cursor
    """Where to go on after this batch; the same on every rank."""

    @property
    def num_rows(self) -> int:
        """Rows of each column."""
        return self.stop - self.first

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns as a new dict."""
        return {name: column.rows(self.first, self.stop) for name, column in self.source.by_name.items()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.source.by_name[name].rows(self.first, self.stop)

    def __contains__(self, name: object) -> bool:
        return name in self.source.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.source.by_name)

    def __len__(self) -> int:
        return len(self.source.by_name)

    def __eq__(self, other: object) -> bool:
        return self is other  # arrays, which other mappings would compare, have no one answer

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {_describe(column)}" for name, column in self.items())
        return f"Batch({self.num_rows:,} rows; {columns})"


def _describe(column: NDArray[Any]) -> str:
    missing = ", some missing" if isinstance(column, np.ma.MaskedArray) else ""
    return f"{column.dtype}{list(column.shape[1:]) or ''}{missing}"
