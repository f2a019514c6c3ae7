"""Rows of batches, sorted for fast copying, and the permutation into batch order.

The rows are sorted by lane (one of the sequences of row groups that an epoch interleaves), so that most rows of a row
group are adjacent. No I/O.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from petastore.lazy import once
from petastore.plan.order.mix import counting
from petastore.plan.selection import Selection

if TYPE_CHECKING:
    from petastore.plan.row_group_parts import RowGroupParts

__all__ = ["GroupedRows", "Permutation", "Runs", "inverse", "joined", "places_by_key", "stable_order"]

_RUN_ROWS = 64
"""Minimum average number of rows of a run (range of consecutive rows).

Rows in shorter runs are stored as arrays of single rows instead."""


class Permutation:
    """Requested order of rows: the index of each row in that order.

    Thread-safe. The array must not be written to.

    Args:
        targets: Index of each row in the requested order, shape (n,); or a function that computes this array when it is
            first needed.

    Example:
        >>> Permutation(lambda: np.array([1, 2, 0])).targets.tolist()
        [1, 2, 0]
    """

    def __init__(self, targets: NDArray[np.int64] | Callable[[], NDArray[np.int64]]) -> None:
        self._targets = targets

    @once
    def targets(self) -> NDArray[np.int64]:
        """Index of each row in the requested order, shape (n,), read-only."""
        targets = self._targets() if callable(self._targets) else self._targets
        targets.flags.writeable = False
        return targets

    def applied_to(self, values: NDArray[np.int64], out: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write one value per row into `out`, in the requested order, and return `out`.

        Both arrays have shape (n,).
        """
        out[self.targets] = values
        return out


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Runs:
    """Runs: ranges of rows that this rank reads consecutively from their row groups.

    The order in which a rank reads the rows of a row group is its entry in `Span.read_orders`; None means file order.
    """

    groups: NDArray[np.int32]
    """Row group of each run, shape (runs,)."""

    firsts: NDArray[np.int64]
    """Index of each run's first row in the reading order of its row group; (runs,)."""

    counts: NDArray[np.int64]
    """Number of rows of each run, shape (runs,)."""

    rows: Callable[[], NDArray[np.int64]]
    """Function that returns the row number of each row in its row group.

    The numbers are sorted by run and have shape (rows,)."""

    @classmethod
    def of_file(cls, groups: NDArray[np.int32], firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> Runs:
        """Return runs of rows that are read in file order; empty runs are dropped.

        Example:
            >>> Runs.of_file(np.array([3, 1], np.int32), np.array([5, 0]), np.array([2, 3])).rows().tolist()
            [5, 6, 0, 1, 2]
        """
        if not counts.all():
            kept = counts > 0
            groups, firsts, counts = groups[kept], firsts[kept], counts[kept]
        return cls(groups, firsts, counts, functools.partial(_following, firsts, counts))

    @property
    def num_rows(self) -> int:
        """Total number of rows of all runs."""
        return int(self.counts.sum())


def _following(firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row numbers of all runs, concatenated, shape (rows,).

    Run i has the `counts[i]` numbers from `firsts[i]` on.
    """
    rows = np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    rows += counting(len(rows))
    return rows


class GroupedRows:
    """Rows of some batches, and the permutation that brings them into batch order.

    The rows are usually stored lane by lane, so that a reader can copy ranges of consecutive rows (runs) at once. A
    lane is one of the sequences of row groups that an epoch interleaves.

    Args:
        groups: Row group of each row, shape (n,); None if `runs` is given.
        rows: Number of each row in its row group, shape (n,); None if `runs` is given.
        permutation: Requested order of the rows; None if the rows already have it.
        runs: The same rows as runs of consecutive rows, if the plan has runs.

    Example:
        >>> permutation = Permutation(np.array([2, 0, 1]))
        >>> picked = GroupedRows(np.array([4, 4, 9], np.int32), np.array([0, 1, 7]), permutation)
        >>> [array.tolist() for array in picked.in_order()]
        [[4, 9, 4], [1, 7, 0]]
        >>> runs = Runs.of_file(np.array([4], np.int32), np.array([10]), np.array([3]))
        >>> GroupedRows.of_runs(runs, None).rows.tolist()
        [10, 11, 12]
    """

    def __init__(
        self,
        groups: NDArray[np.int32] | None,
        rows: NDArray[np.int64] | None,
        permutation: Permutation | None,
        runs: Runs | None = None,
    ) -> None:
        self.permutation = permutation
        """Requested order of the rows; None if the rows already have it."""
        self.runs = runs
        """The rows as runs (ranges of consecutive rows); None if there are only arrays."""
        self.num_rows = 0 if runs is None else runs.num_rows
        """Number of rows."""
        if groups is not None and rows is not None:
            self.num_rows = len(rows)
            # Set the cached properties `groups` and `rows`, so that they are not computed.
            vars(self).update(groups=groups, rows=rows)

    @classmethod
    def of_runs(cls, runs: Runs, permutation: Permutation | None) -> GroupedRows:
        """Return the rows of some runs (ranges of consecutive rows).

        Arrays with one entry per row are allocated only when they are needed.
        """
        return cls(None, None, permutation, runs)

    @once
    def groups(self) -> NDArray[np.int32]:
        """Row group of each row, shape (n,)."""
        assert self.runs is not None  # noqa: S101 - without arrays, there are runs
        return np.repeat(self.runs.groups, self.runs.counts)

    @once
    def rows(self) -> NDArray[np.int64]:
        """Number of each row in its row group, shape (n,)."""
        assert self.runs is not None  # noqa: S101 - without arrays, there are runs
        return self.runs.rows()

    def permuted(self, permutation: Permutation | None) -> GroupedRows:
        """Return the same rows with another requested order."""
        written = vars(self)
        return GroupedRows(written.get("groups"), written.get("rows"), permutation, self.runs)

    def without_runs(self) -> GroupedRows:
        """Return the same rows as arrays with one entry per row, without runs.

        Runs are ranges of consecutive rows.
        """
        return GroupedRows(self.groups, self.rows, self.permutation)

    def selected(self, selection: Selection) -> GroupedRows:
        """Convert `rows` from indices among the selected rows to row numbers.

        Return the same rows. Before, `rows` are indices among the rows of a row group that the filter selects;
        afterwards, row numbers in it.
        """
        if self.runs is None:
            return GroupedRows(self.groups, selection.rows_at(self.groups, self.rows), self.permutation)
        of_selected = dataclasses.replace(self.runs, rows=lambda: selection.rows_at(self.groups, self.rows))
        return GroupedRows.of_runs(of_selected, self.permutation)

    def numbered_from(self, first_group: int) -> GroupedRows:
        """Return the same rows with `first_group` added to the row group numbers.

        This numbers row groups across several datasets.
        """
        if self.runs is None:
            return GroupedRows(self.groups + np.int32(first_group), self.rows, self.permutation)
        runs = dataclasses.replace(self.runs, groups=self.runs.groups + np.int32(first_group))
        return GroupedRows.of_runs(runs, self.permutation)

    def in_row_groups(self, parts: RowGroupParts) -> GroupedRows:
        """Return the same rows, with parts of row groups converted to row groups.

        Before, `groups` are numbers of parts and `rows` row numbers in parts; afterwards, both refer to whole row
        groups.
        """
        if self.runs is None:
            return GroupedRows(*parts.in_row_groups(self.groups, self.rows), self.permutation)
        runs, firsts = self.runs, parts.firsts[self.runs.groups]
        of_groups = Runs(
            groups=parts.groups[runs.groups],
            firsts=runs.firsts + firsts,
            counts=runs.counts,
            rows=lambda: self.rows + np.repeat(firsts, runs.counts),
        )
        return GroupedRows.of_runs(of_groups, self.permutation)

    def in_order(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the row group and the row number of each row, in the requested order.

        Both arrays have shape (n,).
        """
        if self.permutation is None:
            return self.groups, self.rows
        groups, rows = np.empty_like(self.groups), np.empty_like(self.rows)
        targets = self.permutation.targets
        groups[targets], rows[targets] = self.groups, self.rows
        return groups, rows

    def cut(self, borders: NDArray[np.int64]) -> list[GroupedRows]:
        """Split the rows into ranges of the requested order, such as single batches.

        Inside each result, rows keep their stored order, and a permutation leads to the requested order.

        Args:
            borders: Result i has the rows [borders[i], borders[i + 1]) of the requested order. The first border is 0,
                the last the number of rows; shape (results + 1,).
        """
        if len(borders) == 2:
            return [self]
        if self.permutation is None:
            if self.runs is not None:
                ends = np.cumsum(self.runs.counts)
                return [self._part_of_runs(self.runs, ends, part) for part in _slices(borders)]
            return [GroupedRows(self.groups[part], self.rows[part], None) for part in _slices(borders)]
        targets = self.permutation.targets
        in_runs = None if self.runs is None else self._cut_runs(self.runs, targets, borders)
        if in_runs is not None:
            return in_runs
        part_of: NDArray[np.int64] = np.repeat(np.arange(len(borders) - 1), borders[1:] - borders[:-1])[targets]
        by_part = np.argsort(part_of.astype(np.uint16), kind="stable")  # 16 bits, for which NumPy uses fast radix sort
        groups, rows = self.groups[by_part], self.rows[by_part]
        targets = targets[by_part] - borders[part_of[by_part]]
        return [GroupedRows(groups[part], rows[part], Permutation(targets[part])) for part in _slices(borders)]

    def _part_of_runs(self, runs: Runs, ends: NDArray[np.int64], part: slice) -> GroupedRows:
        """Return a slice of these rows as runs, in the stored order.

        Args:
            runs: All rows as runs (ranges of consecutive rows).
            ends: Index after the last row of each run, shape (runs,).
            part: Slice of the rows.
        """
        first, last = np.searchsorted(ends, [part.start, part.stop - 1], side="right").tolist()
        here = slice(first, last + 1) if part.start < part.stop else slice(0)
        begins = ends[here] - runs.counts[here]
        stops, starts = np.minimum(ends[here], part.stop), np.maximum(begins, part.start)
        firsts = runs.firsts[here] + starts - begins
        return GroupedRows.of_runs(Runs(runs.groups[here], firsts, stops - starts, lambda: self.rows[part]), None)

    def _cut_runs(self, runs: Runs, targets: NDArray[np.int64], borders: NDArray[np.int64]) -> list[GroupedRows] | None:
        """Return the result of `cut` as runs (ranges of consecutive rows).

        None if the runs would have fewer than `_RUN_ROWS` rows on average.
        """
        part_of = np.repeat(np.arange(len(borders) - 1, dtype=np.int32), np.diff(borders))[targets]
        ends = np.cumsum(runs.counts)
        begins = part_of[1:] != part_of[:-1]
        begins[ends[:-1] - 1] = True
        # starts, stops: (pieces,) half-open ranges of rows; each range belongs to a single run and a single result
        starts = np.concatenate([[0], np.flatnonzero(begins) + 1])
        if self.num_rows < _RUN_ROWS * len(starts):
            return None
        stops = np.append(starts[1:], len(targets))
        run = np.searchsorted(ends, starts, side="right")
        groups, firsts = runs.groups[run], runs.firsts[run] + starts - (ends - runs.counts)[run]
        parts = []
        for part, begin in enumerate(borders[:-1].tolist()):
            here = np.flatnonzero(part_of[starts] == part)
            slices = [slice(*pair) for pair in zip(starts[here].tolist(), stops[here].tolist(), strict=True)]
            rows = functools.partial(_rows_of, self, slices)
            of_part = Runs(groups[here], firsts[here], stops[here] - starts[here], rows)
            of_targets = np.concatenate([targets[:0], *(targets[each] for each in slices)]) - begin
            parts.append(GroupedRows.of_runs(of_part, Permutation(of_targets)))
        return parts


def joined(picked: Sequence[GroupedRows], permutation: Permutation | None) -> GroupedRows:
    """Concatenate rows, and set the requested order of all of them."""
    if len(picked) == 1:
        return picked[0].permuted(permutation)
    runs = [rows.runs for rows in picked if rows.runs is not None]
    if not picked or len(runs) < len(picked):
        groups = np.concatenate([np.empty(0, np.int32), *(rows.groups for rows in picked)])
        rows = np.concatenate([np.empty(0, np.int64), *(rows.rows for rows in picked)])
        return GroupedRows(groups, rows, permutation)
    groups, firsts, counts = (
        np.concatenate(arrays) for arrays in zip(*((run.groups, run.firsts, run.counts) for run in runs), strict=True)
    )
    of_all = Runs(groups, firsts, counts, lambda: np.concatenate([run.rows() for run in runs]))
    return GroupedRows.of_runs(of_all, permutation)


def _rows_of(picked: GroupedRows, slices: Sequence[slice]) -> NDArray[np.int64]:
    """Return the row numbers of some slices of the rows, concatenated."""
    return np.concatenate([picked.rows[:0], *(picked.rows[each] for each in slices)])


def _slices(borders: NDArray[np.int64]) -> Iterator[slice]:
    return (slice(*pair) for pair in itertools.pairwise(borders.tolist()))


def inverse(permutation: NDArray[Any], out: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the inverse of a permutation; shape (n,).

    Args:
        permutation: Permutation of [0, n), shape (n,).
        out: Output array; None allocates one.

    Example:
        >>> inverse(np.array([2, 0, 1])).tolist()
        [1, 2, 0]
    """
    places = np.empty(len(permutation), dtype=np.int64) if out is None else out
    places[permutation] = counting(len(permutation))
    return places


def stable_order(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return the indices that sort integers in ascending order (stable argsort).

    NumPy sorts 16-bit integers by radix sort, many times faster than by comparisons.
    """
    first = int(keys.min()) if len(keys) else 0
    if int(keys.max(initial=first)) - first < 2**16:
        return np.argsort((keys - first).astype(np.uint16), kind="stable")
    return np.argsort(keys, kind="stable")


def places_by_key(keys: NDArray[Any]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return each distinct key, ascending, with the indices at which it occurs.

    Example:
        >>> [(key, places.tolist()) for key, places in places_by_key(np.array([7, 2, 7], np.int32))]
        [(2, [1]), (7, [0, 2])]
    """
    if len(keys) == 0:
        return []
    if keys[0] == keys[-1] and (keys == keys[0]).all():
        return [(int(keys[0]), np.arange(len(keys)))]
    places = stable_order(keys)
    ordered = keys[places]
    borders = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return [(int(keys[part[0]]), part) for part in np.split(places, borders)]
