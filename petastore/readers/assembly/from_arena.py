"""From an arena: the rows of a span are taken of all its row groups in one call for each stack.

For that it is worked out where they stand there, once for all stacks whose rows lie in the same order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.buffers import Buffers
from petastore.plan.batches.spans import each_once
from petastore.plan.order.grouped_rows import GroupedRows, Runs
from petastore.readers.assembly.laying import NOT_ANNOUNCED
from petastore.readers.loaded.arena import Arena
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.row_group import LoadedRowGroup

__all__ = ["tasks_from_arena"]


def tasks_from_arena(
    picked: GroupedRows, loaded: Mapping[int, LoadedRowGroup], layout: Layout, arena: Arena, buffers: Buffers
) -> Callable[[int, NDArray[Any]], Callable[[], None]]:
    """What makes, of the number of a stack and of where its values go, the task that puts them there.

    Args:
        picked: Rows of the files.
        loaded: Their row groups, all of which stand in the arena.
        layout: Which stacks there are.
        arena: Where they stand.
        buffers: Where memory comes from that is needed meanwhile.
    """
    firsts = {group: row_group.place.first for group, row_group in loaded.items() if row_group.place is not None}

    @functools.cache
    def index(in_read_order: bool) -> NDArray[np.int64]:
        if in_read_order and picked.runs is None:
            for row_group in loaded.values():
                _ = row_group.places  # written down in the arena now, if not before
        return rows_in_arena(picked, firsts, arena.places if in_read_order else None, buffers)

    def task(number: int, out: NDArray[Any]) -> Callable[[], None]:
        # Stacks are held until the task is done: nobody else is given their places meanwhile.
        held = [row_group.stacks[number] for row_group in loaded.values()]
        return functools.partial(_take, arena.stacks[number], index(layout.stacks[number].in_read_order), out, held)

    return task


def _take(stack: NDArray[Any], index: NDArray[np.int64], out: NDArray[Any], _held: Sequence[NDArray[Any]]) -> None:
    np.take(stack, index, axis=1, out=out, mode="clip")


def rows_in_arena(
    picked: GroupedRows, firsts: Mapping[int, int], places: NDArray[np.int32] | None, buffers: Buffers
) -> NDArray[np.int64]:
    """Where rows stand in an arena, in the order in which they are asked for, shape (rows,).

    Args:
        picked: Rows of the files.
        firsts: Of each row group: its first row there.
        places: Of each row there: at which place of the read order of its row group it comes, for stacks in read order;
            None for the others.
        buffers: Where the memory comes from.

    Example:
        >>> picked = GroupedRows(np.array([7, 2, 7], np.int32), np.array([0, 5, 1]), None)
        >>> rows_in_arena(picked, {2: 100, 7: 300}, None, Buffers()).tolist()
        [300, 105, 301]
    """
    standing = buffers.empty((picked.num_rows,), np.int64)
    if picked.runs is not None and places is not None:
        _write_runs(picked.runs, firsts, standing)
    else:
        _write_rows(picked, firsts, places, standing)
    permutation = picked.permutation
    if permutation is None:
        return standing
    ordered = buffers.empty(standing.shape, np.int64)
    if permutation.comes_as_order:
        np.take(standing, permutation.order, out=ordered, mode="clip")
    else:
        ordered[permutation.targets] = standing
    return ordered


def _write_runs(runs: Runs, firsts: Mapping[int, int], out: NDArray[np.int64]) -> None:
    """Where the rows of runs stand: from one to the next it is a step of one, but where a run begins."""
    filled = runs.counts > 0
    begins = np.array([firsts[group] for group in runs.groups[filled].tolist()], dtype=np.int64) + runs.firsts[filled]
    counts = runs.counts[filled]
    out.fill(1)
    if len(begins):
        out[np.cumsum(counts) - counts] = np.diff(begins + counts - 1, prepend=0) - (counts - 1)
        np.cumsum(out, out=out)


def _write_rows(
    picked: GroupedRows, firsts: Mapping[int, int], places: NDArray[np.int32] | None, out: NDArray[np.int64]
) -> None:
    """Where rows stand, row by row."""
    groups = each_once(picked)
    begins = np.array([firsts[group] for group in groups.tolist()], dtype=np.int64)
    np.take(begins, np.searchsorted(groups, picked.groups), out=out, mode="clip")
    if places is None:
        out += picked.rows
        return
    of_rows = places[out + picked.rows]
    if len(of_rows) and int(of_rows.min()) < 0:
        raise AssertionError(NOT_ANNOUNCED)
    out += of_rows
