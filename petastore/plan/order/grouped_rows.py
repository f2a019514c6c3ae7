"""Rows as batches take them: those of a row group side by side, and the permutation that brings them in order. Pure."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.plan.order.mix import counting
from petastore.plan.selection import Selection

__all__ = ["GroupedRows", "Permutation", "Runs", "inverse", "joined", "places_by_key", "stable_order"]

_Numbers: TypeAlias = NDArray[np.int64] | Callable[[], NDArray[np.int64]]
"""An array, or who works it out."""

_RUN_ROWS = 64
"""From so many rows a run on average, parts of runs are known as runs."""


class Permutation:
    """In which order rows are asked for: known from one side, and worked out from the other when somebody asks.

    Thread-safe. Nobody writes into its arrays.

    Args:
        targets: Where each row stands in the order in which they are asked for, shape (n,); or who works it out.
        order: Which row is asked for first, which one next, and so on, shape (n,); or who works it out. The inverse of
            `targets`, of which one is given.

    Example:
        >>> Permutation(order=np.array([2, 0, 1])).targets.tolist()
        [1, 2, 0]
    """

    def __init__(self, targets: _Numbers | None = None, *, order: _Numbers | None = None) -> None:
        self._made_by = order if targets is None else targets
        self.comes_as_order = order is not None
        """Whether `order` is what was given, and costs nothing more."""
        if isinstance(self._made_by, np.ndarray):
            self._made_by.flags.writeable = False
            self.__dict__["order" if self.comes_as_order else "targets"] = self._made_by

    @once
    def targets(self) -> NDArray[np.int64]:
        """Where each row stands in the order in which they are asked for, shape (n,), read-only."""
        return _read_only(inverse(self.order) if self.comes_as_order else self._made())

    @once
    def order(self) -> NDArray[np.int64]:
        """Which row is asked for first, which one next, and so on, shape (n,), read-only."""
        return _read_only(self._made() if self.comes_as_order else inverse(self.targets))

    def _made(self) -> NDArray[np.int64]:
        assert callable(self._made_by)  # noqa: S101 - an array is there already
        return self._made_by()


def _read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.flags.writeable = False
    return array


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Runs:
    """Rows that follow each other: in the order in which the plan comes to the rows of their row group.

    That order is what `Span.read_orders` says of a row group; where it says None, it is the order of the file.
    """

    groups: NDArray[np.int32]
    """Row group of each run, shape (runs,)."""

    firsts: NDArray[np.int64]
    """Place of its first row in that order, shape (runs,)."""

    counts: NDArray[np.int64]
    """How many rows it has, shape (runs,)."""

    rows: Callable[[], NDArray[np.int64]]
    """Gives the row inside its row group of each row of all runs, shape (rows,)."""

    @classmethod
    def of_file(cls, groups: NDArray[np.int32], firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> Runs:
        """Runs of rows that come in the order of the file; those without rows are left out.

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
        """Rows of all runs."""
        return int(self.counts.sum())


def _following(firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    rows = np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    rows += counting(len(rows))
    return rows


class GroupedRows:
    """Some rows in an order in which those of a row group come together; a reader copies them run by run.

    Args:
        groups: Row group of each row, shape (n,); None where `runs` say it.
        rows: Row inside its row group of each row, shape (n,); None where `runs` say it.
        permutation: In which order they are asked for; None where that is this order.
        runs: The same rows as a few runs, where the plan has them so.

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
        """In which order they are asked for; None where that is this order."""
        self.runs = runs
        """The rows as a few runs, where the plan has them so."""
        self.num_rows = 0 if runs is None else runs.num_rows
        """How many rows there are."""
        if groups is not None and rows is not None:
            self.num_rows = len(rows)
            vars(self).update(groups=groups, rows=rows)  # as `once` keeps what it has worked out

    @classmethod
    def of_runs(cls, runs: Runs, permutation: Permutation | None) -> GroupedRows:
        """The rows of some runs; they are not written out, unless somebody asks for them."""
        return cls(None, None, permutation, runs)

    @once
    def groups(self) -> NDArray[np.int32]:
        """Row group of each row, shape (n,)."""
        assert self.runs is not None  # noqa: S101 - or they were given
        return np.repeat(self.runs.groups, self.runs.counts)

    @once
    def rows(self) -> NDArray[np.int64]:
        """Row inside its row group of each row, shape (n,)."""
        assert self.runs is not None  # noqa: S101 - or they were given
        return self.runs.rows()

    def permuted(self, permutation: Permutation | None) -> GroupedRows:
        """The same rows, asked for in another order."""
        written = vars(self)
        return GroupedRows(written.get("groups"), written.get("rows"), permutation, self.runs)

    def without_runs(self) -> GroupedRows:
        """The same rows, for whoever must not rely on runs."""
        return GroupedRows(self.groups, self.rows, self.permutation)

    def selected(self, selection: Selection) -> GroupedRows:
        """The rows that these are of those that a selection keeps, counted among them."""
        if self.runs is None:
            return GroupedRows(self.groups, selection.rows_at(self.groups, self.rows), self.permutation)
        rows = functools.partial(_selected, self, selection)
        return GroupedRows.of_runs(dataclasses.replace(self.runs, rows=rows), self.permutation)

    def numbered_from(self, first_group: int) -> GroupedRows:
        """The same rows, where row groups have numbers from here on."""
        if self.runs is None:
            return GroupedRows(self.groups + np.int32(first_group), self.rows, self.permutation)
        runs = self.runs
        groups = runs.groups + np.int32(first_group)
        return GroupedRows.of_runs(Runs(groups, runs.firsts, runs.counts, runs.rows), self.permutation)

    def in_order(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Row groups and rows in the order in which they are asked for, both of shape (n,)."""
        if self.permutation is None:
            return self.groups, self.rows
        groups, rows = np.empty_like(self.groups), np.empty_like(self.rows)
        targets = self.permutation.targets
        groups[targets], rows[targets] = self.groups, self.rows
        return groups, rows

    def cut(self, borders: NDArray[np.int64]) -> list[GroupedRows]:
        """The rows that are asked for first, those asked for next, and so on, each again row group by row group.

        Args:
            borders: Part i is what is asked for in [borders[i], borders[i + 1]); from 0 to all rows, shape
                (parts + 1,).
        """
        if len(borders) == 2:
            return [self]
        if self.permutation is None:
            return [GroupedRows(self.groups[part], self.rows[part], None) for part in _slices(borders)]
        targets = self.permutation.targets
        in_runs = None if self.runs is None else self._cut_runs(self.runs, targets, borders)
        if in_runs is not None:
            return in_runs
        part_of: NDArray[np.int64] = np.repeat(np.arange(len(borders) - 1), borders[1:] - borders[:-1])[targets]
        by_part = np.argsort(part_of.astype(np.uint16), kind="stable")  # so few bits are sorted by their digits
        groups, rows = self.groups[by_part], self.rows[by_part]
        targets = targets[by_part] - borders[part_of[by_part]]
        return [GroupedRows(groups[part], rows[part], Permutation(targets[part])) for part in _slices(borders)]

    def _cut_runs(self, runs: Runs, targets: NDArray[np.int64], borders: NDArray[np.int64]) -> list[GroupedRows] | None:
        """The parts as runs, too; None where these would be short."""
        part_of = np.repeat(np.arange(len(borders) - 1, dtype=np.int32), np.diff(borders))[targets]
        ends = np.cumsum(runs.counts)
        begins = part_of[1:] != part_of[:-1]
        begins[ends[:-1] - 1] = True
        # starts, stops: (pieces,) parts of runs that are asked for in one part
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
    """Rows one after the other; in which order all of them are asked for is said anew."""
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
    return np.concatenate([picked.rows[:0], *(picked.rows[each] for each in slices)])


def _selected(picked: GroupedRows, selection: Selection) -> NDArray[np.int64]:
    return selection.rows_at(picked.groups, picked.rows)


def _slices(borders: NDArray[np.int64]) -> Iterator[slice]:
    return (slice(*pair) for pair in itertools.pairwise(borders.tolist()))


def inverse(permutation: NDArray[Any], out: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Which place of a permutation holds 0, which 1, and so on; shape (n,).

    Args:
        permutation: Each number below n once, shape (n,).
        out: Written to and returned, if it is given.

    Example:
        >>> inverse(np.array([2, 0, 1])).tolist()
        [1, 2, 0]
    """
    places = np.empty(len(permutation), dtype=np.int64) if out is None else out
    places[permutation] = counting(len(permutation))
    return places


def stable_order(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return the indices of a stable `argsort` of integers.

    NumPy sorts 16-bit integers by radix sort, many times faster than by comparisons.
    """
    first = int(keys.min()) if len(keys) else 0
    if int(keys.max(initial=first)) - first < 2**16:
        return np.argsort((keys - first).astype(np.uint16), kind="stable")
    return np.argsort(keys, kind="stable")


def places_by_key(keys: NDArray[Any]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return each distinct key, in ascending order, with the indices at which it stands.

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
