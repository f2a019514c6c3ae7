"""Laying: rows of row groups at hand are copied where they lie, segment by segment, and come in order from there.

Stacked columns are copied by NumPy, everything else as Arrow arrays; either way no Python object is made for a row.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers, concatenate
from petastore.decoding.buffers import Buffers
from petastore.plan.order.grouped_rows import GroupedRows, Runs, inverse, places_by_key, stable_order

__all__ = ["NOT_ANNOUNCED", "Laid", "Laying", "come_in_long_runs", "placed"]

_Where: TypeAlias = slice | NDArray[np.int64]

_Segment: TypeAlias = tuple[int, _Where, slice]
"""A row group, its rows there, as a slice where they lie side by side, and their place among all."""

NOT_ANNOUNCED = "the plan asks for rows that it did not announce when their row group was fetched"

_RUN_BYTES = 4096
"""From so many bytes a run on average, runs are copied one by one: two calls cost less than copying all bytes twice."""

_RUN_ROWS = 64
"""From so many rows a run on average, runs are not brought together by row group."""

_SLICE_ROWS = 16
"""From so many rows on average that lie side by side, each of these slices is copied by itself."""

_ROW_BYTES = 512
"""From so many bytes a row, rows are put where they belong one by one, and not gathered first."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Laid:
    """Rows that are copied segment by segment, laid end to end, and how they come in order from there. Thread-safe.

    Of `places` and `targets`, one at most is there; where none is, rows are in order as they are laid.
    """

    segments: list[_Segment]
    """Rows of one row group after the other."""

    buffers: Buffers
    """Where memory comes from that is needed meanwhile."""

    places: NDArray[np.int64] | None = None
    """Where the row that comes i-th is laid, shape (rows,)."""

    targets: NDArray[np.int64] | None = None
    """Where each row comes, shape (rows,): they are put there one by one, and not laid before."""

    def cells(self, columns: Mapping[int, Any]) -> Any:
        """The cells of one column as one `pyarrow.Array`.

        Args:
            columns: Of each row group: the column, a `pyarrow.Array` of all its rows.
        """
        parts = [_taken(columns[group], where) for group, where, _ in self.segments]
        joined = concatenate(parts)
        return joined if self.places is None else joined.take(arrow_numbers(self.places))

    def values(self, columns: Mapping[int, NDArray[Any]], out: NDArray[Any]) -> None:
        """The values of one or several columns into `out`.

        Args:
            columns: Of each row group: the values of all its rows, shape (columns, rows, …), C-contiguous.
            out: Shape (columns, rows taken, …), C-contiguous, of the same dtype; written in place.
        """
        if self.targets is not None:
            self._scatter(columns, self.targets, out)
        elif self.places is None:
            _lay(columns, self.segments, out)
        else:
            laid = self.buffers.empty(out.shape, out.dtype)
            _lay(columns, self.segments, laid)
            np.take(laid, self.places, axis=1, out=out, mode="clip")

    def _scatter(self, columns: Mapping[int, NDArray[Any]], targets: NDArray[np.int64], out: NDArray[Any]) -> None:
        for group, where, segment in self.segments:
            for column, of_column in zip(columns[group], out, strict=True):
                of_column[targets[segment]] = column[where]


class Laying:
    """In which way rows are laid best, for values of any size; what is found is found once. For one thread.

    Args:
        rows: Where they lie in their row groups; by their runs, if they have any.
        buffers: Where memory comes from that is needed meanwhile.

    Example:
        >>> rows = GroupedRows(np.array([7, 2, 7], np.int32), np.array([0, 5, 1]), None)
        >>> laid = Laying(rows).of_values(8)
        >>> laid.segments
        [(2, slice(5, 6, None), slice(0, 1, None)), (7, slice(0, 2, None), slice(1, 3, None))]
        >>> laid.places
        array([1, 0, 2])
    """

    def __init__(self, rows: GroupedRows, buffers: Buffers | None = None) -> None:
        self._rows, self._buffers = rows, Buffers() if buffers is None else buffers
        self._num_runs = len(_changes(rows.groups) if rows.runs is None else rows.runs.groups)
        self._come_in_runs = rows.runs is not None or rows.num_rows >= _RUN_ROWS * self._num_runs
        self._made: dict[tuple[bool, bool], Laid] = {}

    def of_cells(self) -> Laid:
        """For cells, whatever they take."""
        return self._laid(self._come_in_runs, False)

    def of_values(self, row_bytes: int) -> Laid:
        """For values of so many bytes each."""
        rows = self._rows
        are_long = rows.permutation is None and rows.num_rows * row_bytes >= self._num_runs * _RUN_BYTES
        return self._laid(self._come_in_runs or are_long, row_bytes >= _ROW_BYTES)

    def _laid(self, in_runs: bool, one_by_one: bool) -> Laid:
        """Where runs are long as they come they are laid so, and else brought together by row group."""
        made = self._made.get((in_runs, one_by_one))
        if made is None:
            made = self._made[in_runs, one_by_one] = self._made_of(in_runs, one_by_one)
        return made

    def _made_of(self, in_runs: bool, one_by_one: bool) -> Laid:
        rows, buffers, permutation = self._rows, self._buffers, self._rows.permutation
        if in_runs:
            segments = _segments(rows.groups, rows.rows) if rows.runs is None else _segments_of(rows.runs)
            if permutation is not None and permutation.comes_as_order and not one_by_one:
                return Laid(segments, buffers, permutation.order)
            targets = None if permutation is None else permutation.targets
        else:
            together = stable_order(rows.groups)
            segments = _segments(rows.groups[together], rows.rows[together])
            if permutation is not None:
                targets = permutation.targets[together]
            else:
                targets = None if bool((np.diff(together) == 1).all()) else together
        if targets is None or one_by_one:
            return Laid(segments, buffers, targets=targets)
        return Laid(segments, buffers, inverse(targets, buffers.empty(targets.shape, np.int64)))


def come_in_long_runs(rows: GroupedRows) -> bool:
    """Whether the plan knows rows as long runs of the read order of their row groups."""
    return rows.runs is not None and rows.num_rows >= _RUN_ROWS * len(rows.runs.groups)


def placed(rows: GroupedRows, places: Mapping[int, NDArray[np.int32] | None]) -> GroupedRows:
    """Where rows lie in row groups whose rows lie in read order; without runs.

    Args:
        rows: Rows of the files.
        places: Of each row group: where each of its rows lies, or None for the order of the file.

    Example:
        >>> rows = GroupedRows(np.array([7, 2, 7], np.int32), np.array([0, 5, 1]), None)
        >>> placed(rows, {2: None, 7: np.array([1, 0], np.int32)}).rows.tolist()
        [1, 5, 0]
    """
    lie = np.empty_like(rows.rows)
    borders = _changes(rows.groups)
    pieces: Sequence[tuple[int, _Where]]
    if len(lie) >= _RUN_ROWS * len(borders):
        ends = itertools.pairwise([*borders.tolist(), len(lie)])
        pieces = [(int(rows.groups[first]), slice(first, stop)) for first, stop in ends]
    else:
        pieces = places_by_key(rows.groups)
    for group, where in pieces:
        of_group = places[group]
        lie[where] = rows.rows[where] if of_group is None else of_group[rows.rows[where]]
    if len(lie) and int(lie.min()) < 0:
        raise AssertionError(NOT_ANNOUNCED)
    return GroupedRows(rows.groups, lie, rows.permutation)


def _lay(columns: Mapping[int, NDArray[Any]], segments: list[_Segment], out: NDArray[Any]) -> None:
    """The rows of some segments end to end."""
    for group, where, target in segments:
        if isinstance(where, slice):
            out[:, target] = columns[group][:, where]
            continue
        for column, of_column in zip(columns[group], out, strict=True):
            np.take(column, where, axis=0, out=of_column[target], mode="clip")


def _segments(groups: NDArray[np.int32], rows: NDArray[np.int64]) -> list[_Segment]:
    """Rows as they come, cut where they do not lie side by side; if that is often, where the row group changes."""
    other_group = groups[1:] != groups[:-1]
    borders = _borders(other_group | (rows[1:] - rows[:-1] != 1), len(rows))
    lie_together = len(rows) >= _SLICE_ROWS * len(borders)
    if not lie_together:
        borders = _borders(other_group, len(rows))
    segments: list[_Segment] = []
    of_segments, firsts = groups[borders].tolist(), rows[borders].tolist()
    ends = itertools.pairwise([*borders.tolist(), len(rows)])
    for group, lies, (first, stop) in zip(of_segments, firsts, ends, strict=True):
        is_slice = lie_together or _is_range(rows[first:stop])
        segments.append((group, slice(lies, lies + stop - first) if is_slice else rows[first:stop], slice(first, stop)))
    return segments


def _segments_of(runs: Runs) -> list[_Segment]:
    stops = np.cumsum(runs.counts).tolist()
    lie = zip(runs.groups.tolist(), runs.firsts.tolist(), runs.counts.tolist(), stops, strict=True)
    return [(group, slice(first, first + count), slice(stop - count, stop)) for group, first, count, stop in lie]


def _changes(groups: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where runs of one row group begin."""
    return _borders(groups[1:] != groups[:-1], len(groups))


def _borders(changes: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Where something new begins among so many: at the first one, and after each change."""
    return np.concatenate([[0][:count], np.flatnonzero(changes) + 1])


def _is_range(rows: NDArray[np.int64]) -> bool:
    count = len(rows)
    return int(rows[-1]) - int(rows[0]) == count - 1 and (count == 1 or bool((np.diff(rows) == 1).all()))


def _taken(column: Any, where: _Where) -> Any:
    if isinstance(where, slice):
        return column.slice(where.start, where.stop - where.start)
    return column.take(arrow_numbers(where))
