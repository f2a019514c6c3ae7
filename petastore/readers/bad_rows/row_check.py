"""Row check: decode and transform the rows of a row group, and return the rows that fail with their errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.dataset.stored_cells import stored_cells
from petastore.decoding.decode import Decoded, decode_cells, decoded_sizes, row_ranges
from petastore.errors import DecodeError, TransformError
from petastore.schema.field import UnischemaField
from petastore.transforming.transform import Transform

__all__ = ["RowCheck", "RowError", "failing_rows"]

RowError: TypeAlias = DecodeError | TransformError
"""Error of a bad row."""

_MOST_ROWS = 8192
"""Maximum rows that are decoded together. If decoding fails, parts of these rows are decoded again to find bad rows."""

_MOST_BYTES = 64 * 1024 * 1024
"""Maximum decoded bytes of rows that are decoded together, unless one row has more."""

_UNKNOWN_BYTES = 1024 * 1024
"""Assumed decoded bytes of a cell whose codec cannot compute its size before decoding."""


@dataclasses.dataclass(frozen=True, eq=False)
class RowCheck:
    """Check that decodes and transforms rows as a reader does. Thread-safe if the transform is."""

    dataset: Dataset
    """The dataset."""

    fields: tuple[UnischemaField, ...]
    """Fields that are read."""

    max_cell_bytes: int | None
    """Maximum decoded bytes of a cell; a larger cell fails."""

    transform: Transform | None
    """Function `transform(columns, offsets)`, which calls the user's function; None without a transform."""

    more: Mapping[str, int]
    """Columns that the transform receives although no file stores them: name, and the value for all rows."""

    draws: bool
    """Whether the transform draws random numbers, so that it receives keys."""

    rows_per_call: int
    """Maximum number of rows that are transformed together."""

    def cells(self, group: int, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Read the stored cells of some rows of a row group; return a `pyarrow.Array` for each column, by name."""
        names = [field.name for field in self.fields]
        cells = stored_cells(self.dataset, names, group, partitions=self.dataset.partition_values(names))
        if len(rows) == self.dataset.inventory.rows[group]:
            return cells
        return {name: column.take(arrow_numbers(rows)) for name, column in cells.items()}

    def failing(self, cells: Mapping[str, Any], rows: int) -> NDArray[np.int64]:
        """Return the indices of the rows that cannot be decoded or transformed, ascending, shape (n,).

        Args:
            cells: Stored cells of the rows by column, as the method `cells` returns them.
            rows: Number of rows in `cells`.
        """
        failing: list[int] = []
        sizes = sum((_cell_bytes(cells[field.name], field) for field in self.fields), np.zeros(rows, np.int64))
        for first, stop in row_ranges(sizes, _MOST_BYTES, min(_MOST_ROWS, self.rows_per_call)):
            part = _part(cells, first, stop)
            failing += [first + row for row in self._failing_of_part(part, stop - first)]
        return np.array(failing, np.int64)

    def errors(self, cells: Mapping[str, Any], rows: int) -> list[RowError | None]:
        """Return the error of each row; None for a row that can be decoded and transformed.

        Args:
            cells: Stored cells of the rows by column, as the method `cells` returns them.
            rows: Number of rows in `cells`.
        """
        return [self._error(_part(cells, row, row + 1)) for row in range(rows)]

    def _error(self, cells: Mapping[str, Any]) -> RowError | None:
        try:
            self._transformed({field.name: self._decoded(cells, field) for field in self.fields}, 1)
        except (DecodeError, TransformError) as problem:
            return problem
        return None

    def _failing_of_part(self, cells: Mapping[str, Any], rows: int) -> list[int]:
        columns: dict[str, Decoded] = {}
        failing: set[int] = set()
        for field in self.fields:

            def decode(first: int, stop: int, field: UnischemaField = field) -> None:
                columns[field.name] = self._decoded(_part(cells, first, stop), field)

            failing.update(failing_rows(decode, rows))
        good = np.setdiff1d(np.arange(rows), np.array(sorted(failing), np.int64))
        if self.transform is None or not len(good):
            return sorted(failing)
        chosen = cells if not failing else {name: each.take(arrow_numbers(good)) for name, each in cells.items()}
        # Decoded columns are passed only to the first call, because the function may change its argument.
        decoded = columns if not failing else {}

        def transform(first: int, stop: int) -> None:
            argument = {**decoded} or {
                field.name: self._decoded(_part(chosen, first, stop), field) for field in self.fields
            }
            decoded.clear()
            self._transformed(argument, stop - first)

        return sorted(failing | {int(good[row]) for row in failing_rows(transform, len(good))})

    def _decoded(self, cells: Mapping[str, Any], field: UnischemaField) -> Decoded:
        return decode_cells(cells[field.name], field, codec_of(field), max_cell_bytes=self.max_cell_bytes)

    def _transformed(self, columns: dict[str, Decoded], rows: int) -> None:
        if self.transform is None:
            return
        columns |= {name: Decoded(np.full(rows, value, np.int32), None) for name, value in self.more.items()}
        keys = {"keys": np.zeros((rows, 2), np.uint64)} if self.draws else {}
        made = self.transform(columns, np.array([0, rows], np.int64), **keys)
        if isinstance(made, Future):
            made.result()


def failing_rows(attempt: Callable[[int, int], None], rows: int) -> list[int]:
    """Return the rows for which a function raises an error, in any order, found by bisection.

    If the function raises for a range of rows, the range is split at the row that the error names, or in the middle.

    Args:
        attempt: Function of a half-open range of rows (first row, end row); called first for the range of all rows.
        rows: Number of rows.
    """
    failing, ranges = [], [(0, rows)]
    while ranges:
        first, stop = ranges.pop()
        try:
            attempt(first, stop)
        except (DecodeError, TransformError) as problem:
            row = getattr(problem, "row", None)
            if stop - first == 1:
                failing.append(first)
            elif row is None:
                middle = (first + stop) // 2
                ranges += [(first, middle), (middle, stop)]
            else:
                failing.append(first + row)
                ranges += [(one, end) for one, end in ((first, first + row), (first + row + 1, stop)) if one < end]
    return failing


def _part(cells: Mapping[str, Any], first: int, stop: int) -> dict[str, Any]:
    return {name: column.slice(first, stop - first) for name, column in cells.items()}


def _cell_bytes(cells: Any, field: UnischemaField) -> NDArray[np.int64]:
    """Return the decoded bytes of each cell, shape (rows,); estimated if the codec cannot compute them."""
    if field.decoded_bytes is not None:
        return np.full(len(cells), field.decoded_bytes, np.int64)
    if field.codec is None:
        return np.full(len(cells), 2 * int(cells.nbytes) // max(len(cells), 1), np.int64)
    try:
        sizes = decoded_sizes(cells, field, codec_of(field))
    except DecodeError:
        sizes = None
    if sizes is None:
        return np.full(len(cells), _UNKNOWN_BYTES, np.int64)
    return np.minimum(sizes, _MOST_BYTES)  # a damaged header may claim any size
