"""Batch: named columns of equal length, and the position (cursor) after the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded
from petastore.plan.cursor import Cursor

__all__ = ["Batch", "Columns"]


_SIDE = 64
"""Pixels of the longer side of an image that a notebook shows."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Columns:
    """Columns of consecutive batches, assembled together.

    Convert these columns once, for example to tensors, and slice the result into batches: this takes as long as
    converting one batch.
    """

    by_name: Mapping[str, Decoded]
    """Columns by name, in column order."""

    stacks: tuple[tuple[tuple[str, ...], NDArray[Any]], ...] = ()
    """Columns that are stored together: their names, and the array `(columns, rows, ...)` that holds them."""


@dataclasses.dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class Batch(Mapping[str, NDArray[Any]]):
    """A batch of rows: a read-only mapping from column name to NumPy array, in column order.

    A field of fixed shape is an array `(rows, *shape)` of its dtype, or a `numpy.ma.MaskedArray` if values are missing.
    Text, bytes, decimals and fields of free shape are object arrays `(rows,)`, with None for missing values. With
    `last_batch="pad"`, the bool column `valid` (rows,) is False for repeated rows.

    The caller owns the arrays: the reader never writes to them while a reference exists. Arrays may be views of a
    buffer that several batches share, so a few rows can keep several megabytes in memory. If you keep rows for long,
    copy them. Several threads may read a batch. A batch is equal only to itself.

    Example:
        >>> columns = Columns({"id": Decoded(np.arange(5), None)})
        >>> batch = Batch(columns, 2, 4, Cursor(0, 4))
        >>> batch["id"], batch.num_rows
        (array([2, 3]), 2)
    """

    source: Columns
    """The columns from which this batch is sliced."""

    first: int
    """Index of the batch's first row in `source`."""

    stop: int
    """Index after the batch's last row in `source` (half-open range)."""

    cursor: Cursor
    """Reader position after this batch, from which to resume; the same on every rank."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.first

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns as a new dict from name to array."""
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
        return self is other  # comparing arrays with `==` returns arrays, which have no truth value

    def __hash__(self) -> int:
        return id(self)

    def _repr_html_(self) -> str:
        from petastore.decoding.display import data_uri, drawable, in_words, thumbnail_png
        from petastore.notebook import HtmlImage, html_table

        def shown(value: Any) -> str:
            pixels = drawable(value)
            if pixels is not None:
                return HtmlImage(data_uri(thumbnail_png(pixels, _SIDE)))
            return "null" if value is None or value is np.ma.masked else in_words(value, _dtype_of(value))

        columns = {name: column.each(self.first, self.stop) for name, column in self.source.by_name.items()}
        rows = (list(map(shown, row)) for row in zip(*columns.values(), strict=True))
        return html_table(f"Batch of {self.num_rows:,} rows", list(columns), rows, count=self.num_rows)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {_describe(column)}" for name, column in self.items())
        return f"Batch({self.num_rows:,} rows; {columns})"


def _dtype_of(value: Any) -> str:
    return str(value.dtype) if isinstance(value, np.ndarray) else type(value).__name__


def _describe(column: NDArray[Any]) -> str:
    missing = ", some missing" if isinstance(column, np.ma.MaskedArray) else ""
    return f"{column.dtype}{list(column.shape[1:]) or ''}{missing}"
