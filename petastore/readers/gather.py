"""Gather: from row groups at hand, the values or cells of some rows in the order of their batches.

Stacked columns are gathered by NumPy, everything else as Arrow arrays; either way no Python object is made for a row.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow_memory import arrow_numbers
from petastore.plan.grouped_rows import inverse
from petastore.readers.buffers import Buffers

__all__ = ["Picks"]

_Where: TypeAlias = slice | NDArray[np.int64]

_RUN_BYTES = 4096
"""From so many bytes a run on average, runs are copied one by one: two calls cost less than copying all bytes twice."""

_RUN_ROWS = 64
"""From so many rows a run on average, runs are not brought together by row group."""


_ROW_BYTES = 512
"""From so many bytes a row, rows are put where they belong one by one, and not gathered first."""


@dataclasses.dataclass(frozen=True, eq=False)
class Picks:
    """Which rows of which row groups are taken, in what order; worked out once for all columns.

    Example:
        >>> picks = Picks(np.array([7, 2, 7], np.int32), np.array([0, 5, 1]))
        >>> [(group, rows.tolist()) for group, rows in picks.segments]
        [(2, [5]), (7, [0, 1])]
    """

    groups: NDArray[np.int32]
    """Row group of each row, shape (rows,)."""

    rows: NDArray[np.int64]
    """Row inside its row group, shape (rows,)."""

    where: NDArray[np.int64] | None = None
    """Where each row comes, a permutation, shape (rows,); None where they are in order."""

    @functools.cached_property
    def _borders(self) -> NDArray[np.int64]:
        """Where runs of one row group begin."""
        return np.concatenate([[0][: len(self.groups)], np.flatnonzero(self.groups[1:] != self.groups[:-1]) + 1])

    @functools.cached_property
    def runs(self) -> list[tuple[int, NDArray[np.int64]]]:
        """Row groups in the order in which they come, and which rows follow each other there."""
        borders = self._borders
        return list(zip(self.groups[borders].tolist(), np.split(self.rows, borders[1:]), strict=True))

    @functools.cached_property
    def _by_group(self) -> NDArray[np.int64]:
        return _stable_order(self.groups)

    @functools.cached_property
    def by_group(self) -> list[tuple[int, NDArray[np.int64]]]:
        """Row group after row group, each once: where its rows stand in `groups` and `rows`."""
        ordered = self.groups[self._by_group]
        borders = np.flatnonzero(np.diff(ordered, prepend=-1))
        return list(zip(ordered[borders].tolist(), np.split(self._by_group, borders[1:]), strict=True))

    @functools.cached_property
    def _come_in_runs(self) -> bool:
        return len(self.rows) >= _RUN_ROWS * len(self._borders)

    @functools.cached_property
    def segments(self) -> list[tuple[int, NDArray[np.int64]]]:
        """Rows of one row group after the other: runs where these are long, else each row group once."""
        return self.runs if self._come_in_runs else [(group, self.rows[where]) for group, where in self.by_group]

    @functools.cached_property
    def _where_runs_lie(self) -> list[tuple[int, _Where, slice]]:
        return _where_they_lie(self.runs)

    @functools.cached_property
    def _where_segments_lie(self) -> list[tuple[int, _Where, slice]]:
        return _where_they_lie(self.segments)

    @functools.cached_property
    def _targets(self) -> NDArray[np.int64] | None:
        """Where each row of the segments, laid end to end, comes; None where they are in order."""
        if self._come_in_runs:
            return self.where
        if self.where is not None:
            return self.where[self._by_group]
        return None if bool((np.diff(self._by_group) == 1).all()) else self._by_group

    @functools.cached_property
    def _places(self) -> NDArray[np.int64]:
        """Where the row that comes i-th stands in the segments laid end to end."""
        return np.arange(len(self.rows)) if self._targets is None else inverse(self._targets)

    def cells(self, columns: Mapping[int, Any]) -> Any:
        """The cells of one column as one `pyarrow.Array`.

        Args:
            columns: Of each row group: the column, a `pyarrow.Array` of all its rows.
        """
        parts = [_taken(columns[group], rows) for group, rows in self.segments]
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return joined if self._targets is None else joined.take(arrow_numbers(self._places))

    def placed(self, places: Mapping[int, NDArray[np.int32] | None]) -> Picks:
        """The same rows where they lie in row groups whose rows lie in another order.

        Args:
            places: Of each row group: where each of its rows lies, or None for the order of the file.
        """
        if all(of_group is None for of_group in places.values()):
            return self
        rows = self._placed_runs(places) if self._come_in_runs else self._placed_groups(places)
        if len(rows) and int(rows.min()) < 0:
            raise AssertionError("the plan asks for rows that it did not announce when their row group was fetched")
        return Picks(self.groups, rows, self.where)

    def _placed_runs(self, places: Mapping[int, NDArray[np.int32] | None]) -> NDArray[np.int64]:
        found = [(places[group], rows) for group, rows in self.runs]
        return np.concatenate(
            [rows if of_group is None else of_group[rows] for of_group, rows in found], dtype=np.int64
        )

    def _placed_groups(self, places: Mapping[int, NDArray[np.int32] | None]) -> NDArray[np.int64]:
        rows = np.empty_like(self.rows)
        for group, where in self.by_group:
            of_group = places[group]
            rows[where] = self.rows[where] if of_group is None else of_group[self.rows[where]]
        return rows

    def values(self, columns: Mapping[int, NDArray[Any]], out: NDArray[Any], buffers: Buffers) -> None:
        """The values of one or several columns into `out`.

        Args:
            columns: Of each row group: the values of all its rows, shape (columns, rows, …), C-contiguous.
            out: Shape (columns, rows taken, …), C-contiguous, of the same dtype; written in place.
            buffers: Where memory comes from that is needed meanwhile.
        """
        if self.where is None and out.nbytes >= len(self._borders) * len(out) * _RUN_BYTES:
            _lay(columns, self._where_runs_lie, out)
        elif self._targets is None:
            _lay(columns, self._where_segments_lie, out)
        elif out[0, :1].nbytes >= _ROW_BYTES:
            self._scatter(columns, self._targets, out)
        else:
            gathered = buffers.empty(out.shape, out.dtype)
            _lay(columns, self._where_segments_lie, gathered)
            np.take(gathered, self._places, axis=1, out=out, mode="clip")

    def _scatter(self, columns: Mapping[int, NDArray[Any]], targets: NDArray[np.int64], out: NDArray[Any]) -> None:
        for group, where, segment in self._where_segments_lie:
            for column, of_column in zip(columns[group], out, strict=True):
                of_column[targets[segment]] = column[where]


def _lay(columns: Mapping[int, NDArray[Any]], runs: list[tuple[int, _Where, slice]], out: NDArray[Any]) -> None:
    """The rows of some runs end to end."""
    for group, where, target in runs:
        if isinstance(where, slice):
            out[:, target] = columns[group][:, where]
            continue
        for column, of_column in zip(columns[group], out, strict=True):
            np.take(column, where, axis=0, out=of_column[target], mode="clip")


def _where_they_lie(runs: list[tuple[int, NDArray[np.int64]]]) -> list[tuple[int, _Where, slice]]:
    """Of each run: its row group, its rows there, as a slice where they lie side by side, and its place among all."""
    placed: list[tuple[int, _Where, slice]] = []
    stop = 0
    for group, rows in runs:
        target = slice(stop, stop := stop + len(rows))
        first = int(rows[0])
        placed.append((group, slice(first, first + len(rows)) if _is_range(rows) else rows, target))
    return placed


def _stable_order(groups: NDArray[np.int32]) -> NDArray[np.int64]:
    """What `argsort` gives; numbers of 16 bits are sorted by their digits, many times faster than by comparisons."""
    first = int(groups.min())
    if int(groups.max()) - first < 2**16:
        return np.argsort((groups - np.int32(first)).astype(np.uint16), kind="stable")
    return np.argsort(groups, kind="stable")


def _is_range(rows: NDArray[np.int64]) -> bool:
    count = len(rows)
    return int(rows[-1]) - int(rows[0]) == count - 1 and (count == 1 or bool((np.diff(rows) == 1).all()))


def _taken(column: Any, rows: NDArray[np.int64]) -> Any:
    return column.slice(int(rows[0]), len(rows)) if _is_range(rows) else column.take(arrow_numbers(rows))
