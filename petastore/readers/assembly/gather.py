"""Gather the rows of a batch from row groups in memory: NumPy values by `np.take`, Arrow cells by `take`.

Columns of the same dtype and shape are stored in one NumPy array, a *stack*. Row groups in memory usually share the
large arrays of one arena (`petastore.readers.loaded.arena`); then one call for each stack copies rows from all row
groups. A stack stores its rows in file order, or in the order in which the epoch reads them; row indices are computed
once for each of these two orders. Small row groups that were loaded together count as one row group.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers, concatenate
from petastore.decoding.buffers import Buffers
from petastore.plan.batches.spans import each_once
from petastore.plan.order.grouped_rows import GroupedRows, Runs, inverse, places_by_key
from petastore.plan.plan import Span
from petastore.readers.loaded.arena import Layout
from petastore.readers.loaded.row_group_reader import LoadedRowGroup

__all__ = ["Origin", "cell_gather", "rows_in_memory", "stack_gather"]

Origin: TypeAlias = Callable[[NDArray[Any], NDArray[np.int64]], tuple[NDArray[Any], NDArray[np.int64]]]
"""Function `origin(groups, rows)` that converts numbers of row groups and rows in memory to numbers in the dataset.

It takes and returns two arrays of shape (rows,): the row group of each row, and its number in the row group."""

_Rows: TypeAlias = slice | NDArray[np.int64]

_RUN_ROWS = 64
"""Minimum average rows of a run (range of consecutive rows) for which each run is copied as a slice."""


_Source: TypeAlias = tuple[Sequence[NDArray[Any]], _Rows, _Rows | None]
"""Rows to copy from arrays that row groups share: the arrays, the row indices in the arrays, and the row indices in the
output. There is one array for each stack (all columns of one dtype and shape). The indices in the output are None if
all rows of the output come from these arrays, in order."""


def stack_gather(
    picked: GroupedRows, loaded: Mapping[int, LoadedRowGroup], layout: Layout, buffers: Buffers
) -> Callable[[int, NDArray[Any]], Callable[[], None]]:
    """Return a function `task(number, out)`, which returns the task that copies rows of a stack into `out`.

    A stack is the array of all columns of one dtype and shape, and `number` is its index in the layout.

    Args:
        picked: Rows to copy, at least one.
        loaded: Loaded row groups of these rows.
        layout: Layout that lists the stacks.
        buffers: Allocator of scratch memory.
    """

    @functools.cache
    def sources(in_read_order: bool) -> list[_Source]:
        return _sources(picked, loaded, in_read_order, buffers)

    def task(number: int, out: NDArray[Any]) -> Callable[[], None]:
        # The row groups are referenced until the task is done, so that their memory is not reused meanwhile.
        return functools.partial(_take, number, sources(layout.stacks[number].in_read_order), out, loaded)

    return task


def _sources(
    picked: GroupedRows, loaded: Mapping[int, LoadedRowGroup], in_read_order: bool, buffers: Buffers
) -> list[_Source]:
    """Return for each source array the row indices to copy from it, and their row indices in the output.

    Args:
        picked: Rows of the output.
        loaded: Loaded row groups, by number.
        in_read_order: Whether the stacks (arrays of all columns of one dtype and shape) store rows in the order in
            which the epoch reads them; False means file order.
        buffers: Reusable buffers of row indices.
    """
    groups = each_once(picked)
    row_groups = [loaded[group] for group in groups.tolist()]
    places = [row_group.place for row_group in row_groups]
    permutation, runs = picked.permutation, picked.runs
    if not (in_read_order or all(row_group.in_file_order for row_group in row_groups)):
        runs = None  # runs are ranges of rows in read order, but these arrays are stored in file order
    if runs is not None and permutation is None and picked.num_rows >= _RUN_ROWS * len(runs.groups):
        return _runs_as_slices(runs, loaded)
    firsts = np.array([place.first for place in places], np.int64)
    # arrays: shape (row groups,), number of the set of arrays that stores each row group; row groups in an arena share
    # a set, and all other row groups have their own sets
    numbers: dict[int, int] = {}
    arrays = np.array([numbers.setdefault(id(place.stacks), len(numbers)) for place in places])
    if len(numbers) == 1:
        index = buffers.empty((picked.num_rows,), np.int64)
        if runs is not None:
            _write_runs(runs, firsts[np.searchsorted(groups, runs.groups)], index)
        else:
            np.take(firsts, np.searchsorted(groups, picked.groups), out=index, mode="clip")
            _add_rows(index, picked.rows, places[0].places if in_read_order else None)
        if permutation is not None:
            index = permutation.applied_to(index, buffers.empty(index.shape, np.int64))
        return [(places[0].stacks, _as_slice(index), None)]
    sources: list[_Source] = []
    which = np.searchsorted(groups, picked.groups)
    for number, where in places_by_key(arrays[which]):
        of_array, index = places[int(np.argmax(arrays == number))], firsts[which[where]]
        _add_rows(index, picked.rows[where], of_array.places if in_read_order else None)
        targets = where if permutation is None else permutation.targets[where]
        sources.append((of_array.stacks, _as_slice(index), _as_slice(targets)))
    return sources


def _runs_as_slices(runs: Runs, loaded: Mapping[int, LoadedRowGroup]) -> list[_Source]:
    """Return the rows to copy as slices: one source for each run (range of consecutive rows).

    A source has the arrays of the run's row group, the run's slice of these arrays, and its slice of the output. For
    long runs, copying slices is faster than copying rows by index.
    """
    sources: list[_Source] = []
    stops = np.cumsum(runs.counts).tolist()
    for group, first, count, stop in zip(
        runs.groups.tolist(), runs.firsts.tolist(), runs.counts.tolist(), stops, strict=True
    ):
        place = loaded[group].place
        rows = slice(place.first + first, place.first + first + count)
        sources.append((place.stacks, rows, slice(stop - count, stop)))
    return sources


def _write_runs(runs: Runs, begins: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Write the array index of each row of some runs (ranges of consecutive rows) into `out`.

    Args:
        runs: Ranges of consecutive rows.
        begins: Array index of the first row of each run's row group, shape (runs,).
        out: Output array, shape (rows,).
    """
    filled = runs.counts > 0
    firsts, counts = (begins + runs.firsts)[filled], runs.counts[filled]
    out.fill(1)
    out[np.cumsum(counts) - counts] = np.diff(firsts + counts - 1, prepend=0) - (counts - 1)
    np.cumsum(out, out=out)


def _add_rows(index: NDArray[np.int64], rows: NDArray[np.int64], places: NDArray[np.int32] | None) -> None:
    """Add to each entry of `index`, in place, the offset of its row inside its row group.

    Args:
        index: Index of the first row of each row's row group, shape (rows,).
        rows: Number of each row in its row group, in file order, shape (rows,).
        places: For each array index in file order, the index of the same row in read order, counted from the first row
            of its row group. None if the arrays are in file order.
    """
    if places is None:
        index += rows
        return
    of_rows = places[index + rows]
    if len(of_rows) and int(of_rows.min()) < 0:
        raise AssertionError(
            "internal error: the plan requests rows that it did not announce when their row group was loaded"
        )
    index += of_rows


def _take(number: int, sources: Sequence[_Source], out: NDArray[Any], _held: Mapping[int, LoadedRowGroup]) -> None:
    for stacks, rows, where in sources:
        stack = stacks[number]
        if where is None and not isinstance(rows, slice):
            np.take(stack, rows, axis=1, out=out, mode="clip")
        elif isinstance(rows, slice) and (where is None or isinstance(where, slice)):
            out[:, where or slice(None)] = stack[:, rows]
        else:
            for values, of_column in zip(stack, out, strict=True):
                of_column[where] = values[rows]


def cell_gather(groups: NDArray[np.int32], rows: NDArray[np.int64], columns: Mapping[int, Any]) -> Any:
    """Return the cells of some rows of a column as one `pyarrow.Array`.

    Args:
        groups: Row group of each row, shape (rows,), at least one row.
        rows: Index of each row in its row group, shape (rows,).
        columns: Dict from row group to its column, a `pyarrow.Array` of all its rows.

    Example:
        >>> import pyarrow as pa
        >>> columns = {2: pa.array(["a", "b"]), 7: pa.array(["c", "d"])}
        >>> cell_gather(np.array([7, 2, 7], np.int32), np.array([0, 1, 1]), columns).to_pylist()
        ['c', 'b', 'd']
    """
    # Sort row groups by their first row in the batch, so that unshuffled rows need no permutation.
    parts = sorted(places_by_key(groups), key=lambda part: int(part[1][0]))
    joined = concatenate([_cells(columns[group], _as_slice(rows[where])) for group, where in parts])
    together = np.concatenate([where for _, where in parts])
    return joined if isinstance(_as_slice(together), slice) else joined.take(arrow_numbers(inverse(together)))


def _cells(column: Any, rows: _Rows) -> Any:
    return (
        column.slice(rows.start, rows.stop - rows.start)
        if isinstance(rows, slice)
        else column.take(arrow_numbers(rows))
    )


def _as_slice(rows: NDArray[np.int64]) -> _Rows:
    """Convert consecutive row indices to a slice; other indices are returned unchanged."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first != len(rows) - 1 or not bool((np.diff(rows) == 1).all()):
        return rows
    return slice(first, last + 1)


def rows_in_memory(
    span: Span, loaded: Mapping[int, LoadedRowGroup], origin: Origin
) -> tuple[Span, Mapping[int, LoadedRowGroup], Origin]:
    """Renumber the rows of a span, so that row groups that were loaded together count as one row group.

    A batch then copies its rows from a few large row groups, instead of from thousands of small ones.

    Args:
        span: Rows of consecutive batches, each by row group and row number.
        loaded: Loaded row groups by number.
        origin: Function that converts numbers of row groups and rows of the span to their numbers in the dataset.

    Returns:
        The renumbered span; the loaded row groups by new number; and the function that converts new numbers to numbers
        in the dataset. Row groups that were loaded together get the lowest of their numbers.
    """
    groups = np.sort(np.fromiter(loaded, np.int32, len(loaded)))
    keys: dict[int, int] = {}
    by_key: dict[int, LoadedRowGroup] = {}
    key_of, first_of = groups.copy(), np.zeros(len(groups), np.int64)
    for place, group in enumerate(groups.tolist()):
        one = loaded[group]
        # Row groups that were loaded together share one object, and are recognized by its `id`. The number of the first
        # one is not unique, because this row group may have been loaded again, together with other row groups.
        key_of[place] = key = keys.setdefault(id(one), group)
        by_key[key] = one
        if one.members is not None:
            first_of[place] = one.members[group]
    places = np.searchsorted(groups, span.groups)
    rows = GroupedRows(key_of[places], span.rows + first_of[places], None)
    renumbered = dataclasses.replace(span, picked=rows, needed=np.array(sorted(by_key), np.int32))
    return renumbered, by_key, functools.partial(_dataset_rows, by_key, origin)


def _dataset_rows(
    loaded: Mapping[int, LoadedRowGroup], origin: Origin, keys: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Convert numbers from `rows_in_memory` to row groups and rows of the dataset; two arrays of shape (rows,)."""
    groups, rows = keys.copy(), rows.copy()
    for key, where in places_by_key(keys):
        members = loaded[key].members
        if members is not None:
            firsts = np.fromiter(members.values(), np.int64, len(members))
            at = np.searchsorted(firsts, rows[where], side="right") - 1
            groups[where] = np.fromiter(members, np.int32, len(members))[at]
            rows[where] -= firsts[at]
    return origin(groups, rows)
