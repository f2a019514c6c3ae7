"""Gather: from row groups at hand, the values or cells of some rows in the order of their batches.

Stacked columns are gathered by NumPy, everything else as Arrow arrays; either way no Python object is made for a row.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow_memory import arrow_numbers
from petastore.decoding.buffers import Buffers
from petastore.plan.batches.spans import each_once
from petastore.plan.order.grouped_rows import GroupedRows, Runs, inverse

__all__ = ["Laying", "Picks"]

_Where: TypeAlias = slice | NDArray[np.int64]

_Segment: TypeAlias = tuple[int, _Where, slice]
"""A row group, its rows there, as a slice where they lie side by side, and their place among all."""

_NOT_ANNOUNCED = "the plan asks for rows that it did not announce when their row group was fetched"

_RUN_BYTES = 4096
"""From so many bytes a run on average, runs are copied one by one: two calls cost less than copying all bytes twice."""

_RUN_ROWS = 64
"""From so many rows a run on average, runs are not brought together by row group."""

_SLICE_ROWS = 16
"""From so many rows on average that lie side by side, each of these slices is copied by itself."""

_ROW_BYTES = 512
"""From so many bytes a row, rows are put where they belong one by one, and not gathered first."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Picks:
    """Which rows of which row groups are taken, in what order. Thread-safe.

    Example:
        >>> picks = Picks(GroupedRows(np.array([7, 2, 7], np.int32), np.array([0, 5, 1]), None))
        >>> picks.distinct()
        [2, 7]
        >>> [(group, where.tolist()) for group, where in picks.by_group()]
        [(2, [1]), (7, [0, 2])]
    """

    picked: GroupedRows
    """The rows, and where each comes."""

    runs: Runs | None = None
    """The same rows where they lie in their row groups, if that is known, and of long runs."""

    buffers: Buffers = dataclasses.field(default_factory=Buffers)
    """Where memory comes from that is needed meanwhile."""

    @property
    def groups(self) -> NDArray[np.int32]:
        """Row group of each row, shape (rows,)."""
        return self.picked.groups

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row inside its row group of each row, shape (rows,)."""
        return self.picked.rows

    @property
    def come_in_long_runs(self) -> bool:
        """Whether the plan knows them as long runs of the read order of their row groups."""
        runs = self.picked.runs
        return runs is not None and self.picked.num_rows >= _RUN_ROWS * len(runs.groups)

    @property
    def are_few_runs(self) -> bool:
        """Whether they are long runs, just in the order in which they are asked for."""
        return self.come_in_long_runs and self.picked.permutation is None

    def distinct(self) -> list[int]:
        """The row groups, each once, ascending."""
        groups: list[int] = each_once(self.picked).tolist()
        return groups

    def by_group(self) -> list[tuple[int, NDArray[np.int64]]]:
        """Row group after row group, each once: where its rows stand in `groups` and `rows`."""
        by_group = _stable_order(self.groups)
        ordered = self.groups[by_group]
        borders = _changes(ordered)
        return list(zip(ordered[borders].tolist(), np.split(by_group, borders[1:]), strict=True))

    def cells(self, columns: Mapping[int, Any]) -> Any:
        """The cells of one column as one `pyarrow.Array`.

        Args:
            columns: Of each row group: the column, a `pyarrow.Array` of all its rows.
        """
        return Laying(self).of_cells().cells(columns)

    def placed(self, places: Mapping[int, NDArray[np.int32] | None]) -> Picks:
        """The same rows where they lie in row groups whose rows lie in read order.

        Args:
            places: Of each row group: where each of its rows lies, or None for the order of the file. Of rows that
                come in long runs nothing is needed.
        """
        if self.come_in_long_runs:
            return Picks(self.picked, self.picked.runs, self.buffers)
        if all(of_group is None for of_group in places.values()):
            return self
        borders = _changes(self.groups)
        come_in_runs = len(self.rows) >= _RUN_ROWS * len(borders)
        rows = self._placed_runs(places, borders) if come_in_runs else self._placed_groups(places)
        if len(rows) and int(rows.min()) < 0:
            raise AssertionError(_NOT_ANNOUNCED)
        return Picks(GroupedRows(self.groups, rows, self.picked.permutation), buffers=self.buffers)

    def _placed_runs(
        self, places: Mapping[int, NDArray[np.int32] | None], borders: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        rows = np.empty_like(self.rows)
        for first, stop in itertools.pairwise([*borders.tolist(), len(rows)]):
            of_group, run = places[int(self.groups[first])], self.rows[first:stop]
            rows[first:stop] = run if of_group is None else of_group[run]
        return rows

    def _placed_groups(self, places: Mapping[int, NDArray[np.int32] | None]) -> NDArray[np.int64]:
        rows = np.empty_like(self.rows)
        for group, where in self.by_group():
            of_group = places[group]
            rows[where] = self.rows[where] if of_group is None else of_group[self.rows[where]]
        return rows

    def in_arena(self, firsts: Mapping[int, int], places: NDArray[np.int32] | None) -> NDArray[np.int64]:
        """Where the rows stand in an arena, in the order in which they are asked for, shape (rows,).

        Args:
            firsts: Of each row group: its first row there.
            places: Of each row there: at which place of the read order of its row group it comes, for stacks in read
                order; None for the others.
        """
        standing = self.buffers.empty((self.picked.num_rows,), np.int64)
        if self.picked.runs is not None and places is not None:
            _write_runs(self.picked.runs, firsts, standing)
        else:
            self._write_rows(firsts, places, standing)
        permutation = self.picked.permutation
        if permutation is None:
            return standing
        ordered = self.buffers.empty(standing.shape, np.int64)
        if permutation.comes_as_order:
            np.take(standing, permutation.order, out=ordered, mode="clip")
        else:
            ordered[permutation.targets] = standing
        return ordered

    def _write_rows(self, firsts: Mapping[int, int], places: NDArray[np.int32] | None, out: NDArray[np.int64]) -> None:
        """Where the rows stand, row by row."""
        distinct = self.distinct()
        begins = np.array([firsts[group] for group in distinct], dtype=np.int64)
        np.take(begins, np.searchsorted(np.array(distinct, dtype=np.int32), self.groups), out=out, mode="clip")
        if places is None:
            out += self.rows
            return
        of_rows = places[out + self.rows]
        if len(of_rows) and int(of_rows.min()) < 0:
            raise AssertionError(_NOT_ANNOUNCED)
        out += of_rows


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
        """As `Picks.cells`."""
        parts = [_taken(columns[group], where) for group, where, _ in self.segments]
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
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
        picks: The rows.

    Example:
        >>> picks = Picks(GroupedRows(np.array([7, 2, 7], np.int32), np.array([0, 5, 1]), None))
        >>> laid = Laying(picks).of_values(8)
        >>> laid.segments
        [(2, slice(5, 6, None), slice(0, 1, None)), (7, slice(0, 2, None), slice(1, 3, None))]
        >>> laid.places
        array([1, 0, 2])
    """

    def __init__(self, picks: Picks) -> None:
        self._picks = picks
        self._num_runs = len(_changes(picks.groups) if picks.runs is None else picks.runs.groups)
        self._come_in_runs = picks.runs is not None or picks.picked.num_rows >= _RUN_ROWS * self._num_runs
        self._made: dict[tuple[bool, bool], Laid] = {}

    def of_cells(self) -> Laid:
        """For cells, whatever they take."""
        return self._laid(self._come_in_runs, False)

    def of_values(self, row_bytes: int) -> Laid:
        """For values of so many bytes each."""
        picked = self._picks.picked
        are_long = picked.permutation is None and picked.num_rows * row_bytes >= self._num_runs * _RUN_BYTES
        return self._laid(self._come_in_runs or are_long, row_bytes >= _ROW_BYTES)

    def _laid(self, in_runs: bool, one_by_one: bool) -> Laid:
        """Where runs are long as they come they are laid so, and else brought together by row group."""
        made = self._made.get((in_runs, one_by_one))
        if made is None:
            made = self._made[in_runs, one_by_one] = self._made_of(in_runs, one_by_one)
        return made

    def _made_of(self, in_runs: bool, one_by_one: bool) -> Laid:
        picks, permutation = self._picks, self._picks.picked.permutation
        if in_runs:
            segments = _segments(picks.groups, picks.rows) if picks.runs is None else _segments_of(picks.runs)
            if permutation is not None and permutation.comes_as_order and not one_by_one:
                return Laid(segments, picks.buffers, permutation.order)
            targets = None if permutation is None else permutation.targets
        else:
            by_group = _stable_order(picks.groups)
            segments = _segments(picks.groups[by_group], picks.rows[by_group])
            if permutation is not None:
                targets = permutation.targets[by_group]
            else:
                targets = None if bool((np.diff(by_group) == 1).all()) else by_group
        if targets is None or one_by_one:
            return Laid(segments, picks.buffers, targets=targets)
        return Laid(segments, picks.buffers, inverse(targets, picks.buffers.empty(targets.shape, np.int64)))


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


def _write_runs(runs: Runs, firsts: Mapping[int, int], out: NDArray[np.int64]) -> None:
    """Where the rows of runs stand: from one to the next it is a step of one, but where a run begins."""
    filled = runs.counts > 0
    begins = np.array([firsts[group] for group in runs.groups[filled].tolist()], dtype=np.int64) + runs.firsts[filled]
    counts = runs.counts[filled]
    out.fill(1)
    if len(begins):
        out[np.cumsum(counts) - counts] = np.diff(begins + counts - 1, prepend=0) - (counts - 1)
        np.cumsum(out, out=out)


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


def _stable_order(groups: NDArray[np.int32]) -> NDArray[np.int64]:
    """What `argsort` gives; numbers of 16 bits are sorted by their digits, many times faster than by comparisons."""
    first = int(groups.min())
    if int(groups.max()) - first < 2**16:
        return np.argsort((groups - np.int32(first)).astype(np.uint16), kind="stable")
    return np.argsort(groups, kind="stable")


def _is_range(rows: NDArray[np.int64]) -> bool:
    count = len(rows)
    return int(rows[-1]) - int(rows[0]) == count - 1 and (count == 1 or bool((np.diff(rows) == 1).all()))


def _taken(column: Any, where: _Where) -> Any:
    if isinstance(where, slice):
        return column.slice(where.start, where.stop - where.start)
    return column.take(arrow_numbers(where))
