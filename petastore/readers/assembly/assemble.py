"""Assemble: from a span and the row groups at hand, the columns of its batches.

Every column of a span is made once, in one buffer; batches are views of it. The work is given out in tasks of a few
milliseconds that write to different places, so that all workers can be at one span: the first batch of an epoch is
there sooner, and the last one does not keep one worker busy while the others have nothing to do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded, empty_column
from petastore.errors import DecodeError
from petastore.inventory import Inventory
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.plan import Span
from petastore.readers.assembly.encoded import EncodedCells, EncodedColumn, Origin
from petastore.readers.assembly.from_arena import tasks_from_arena
from petastore.readers.assembly.laying import Laying, by_group, come_in_long_runs, placed
from petastore.readers.batch import Batch, Columns
from petastore.readers.loaded.arena import Arena
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.row_group import LoadedRowGroup
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.work.futures import after

if TYPE_CHECKING:
    from petastore.transforming.transform import Transform

__all__ = ["VALID_COLUMN", "AssembledSpan", "Assembler", "Assembles", "SpanTransform", "SpanWork", "of_spans"]

VALID_COLUMN = "valid"
"""The boolean column that `last_batch="pad"` adds: False where a row is a repeat."""

_TASK_BYTES = 2 * 1024 * 1024
"""Decoded bytes of a task."""

_TASK_ROWS = 8192
"""Rows of a task whose values have no known size."""

_LARGE_VALUE_BYTES = 16 * 1024
"""Smaller values are decoded by many more at a time, whatever their size: to give out a task costs as much as some."""

LoadedRowGroups: TypeAlias = Mapping[int, LoadedRowGroup]
Task: TypeAlias = Callable[[], None]
SpanTransform: TypeAlias = Callable[..., "dict[str, Decoded] | Future[dict[str, Decoded]]"]
"""`transform(columns, span)` makes of the columns of a span the columns after a transform; they are a new dict. One
whose functions draw random numbers also takes `keys=`: of each row, shape (rows, 2)."""


def _where_they_are(groups: NDArray[Any], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    return groups, rows


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class AssembledSpan:
    """The columns of a span, and where its batches begin."""

    span: Span
    columns: Columns

    def batch(self, place: int) -> Batch:
        """One of the batches, by its place in the span; its columns are views."""
        first, stop = self.span.offsets[place : place + 2].tolist()
        return Batch(self.columns, first, stop, self.span.cursor_after(place))


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SpanWork:
    """What has to be done for a span: tasks in any order and any thread, then `finish`."""

    tasks: list[Task]
    """Each writes to its own part of the columns."""

    finish: Callable[[], AssembledSpan | Future[AssembledSpan]]
    """Puts together what the tasks made; called once, when all are done. A future where other processes are still at
    it."""

    parts: tuple[Callable[[], SpanWork], ...] = ()
    """In place of both, where the whole would take too much memory: the work of some of its batches after the other,
    each to be begun when it is asked for."""


class Assembles(Protocol):
    """What makes spans: of rows, as `Assembler`, or of windows of rows."""

    def begin(self, span: Span, loaded: LoadedRowGroups) -> SpanWork:
        """The work of a span, given the row groups that it needs."""

    def decoded_rows(self, span: Span) -> tuple[Assembler, Span]:
        """Who decodes rows for a span, and which these are, batch after batch."""


@dataclasses.dataclass(frozen=True, eq=False)
class Assembler:
    """Makes spans of one reader. Thread-safe: holds no state but memory to be used again."""

    inventory: Inventory
    """What exists; says where a row came from when it cannot be decoded."""

    view: Unischema
    """The fields that are read, before the transform."""

    schema: Unischema
    """The fields that come out."""

    columns: Mapping[str, EncodedColumn]
    """Of each field that is read: how the datasets that rows come from have it."""

    transform: SpanTransform | None
    """What the user's functions make of the columns, here or in other processes."""

    layout: Layout
    """How row groups at hand are kept."""

    buffers: Buffers
    """Where the memory of columns comes from."""

    max_cell_bytes: int | None
    """Bytes that a cell may take once it is decoded; None is no limit."""

    draws: bool = dataclasses.field(default=False, kw_only=True)
    """Whether the user's functions draw random numbers."""

    origin: Origin = dataclasses.field(default=_where_they_are, kw_only=True)
    """Where rows lie in the dataset that are named otherwise in row groups at hand."""

    def begin(self, span: Span, loaded: LoadedRowGroups) -> SpanWork:
        """The work of a span.

        Its tasks raise DecodeError, naming column, file, row group and row; `finish` raises TransformError from the
        user's function.

        Args:
            span: What is wanted.
            loaded: The row groups that the span needs.
        """
        columns: dict[str, Decoded] = {}
        stacks: list[tuple[tuple[str, ...], NDArray[Any]]] = []
        tasks = self._tasks(span, loaded, columns, stacks) if span.num_rows else []
        return SpanWork(tasks, functools.partial(self._finish, span, columns, tuple(stacks)))

    def decoded_rows(self, span: Span) -> tuple[Assembler, Span]:
        """Who decodes rows for a span, and which these are, batch after batch."""
        return self, span

    def decoded_sizes(self, span: Span, loaded: LoadedRowGroups) -> dict[str, NDArray[np.int64]]:
        """Of each column whose values differ in size: bytes of each once decoded, shape (rows,), 0 if it is not known.

        Args:
            span: The rows.
            loaded: The row groups that they are of.
        """
        names = set().union(*(row_group.sizes for row_group in loaded.values()))
        sizes = {name: np.zeros(span.num_rows, np.int64) for name in names}
        if names:
            for group, where in by_group(span.groups):
                for name, of_group in loaded[group].sizes.items():
                    sizes[name][where] = of_group[span.rows[where]]
        return sizes

    def placed(self, problem: DecodeError, span: Span) -> DecodeError:
        """The same error with the place of its row, which is one of a span, filled in."""
        return self._placed(problem, span.groups, span.rows)

    def _tasks(
        self,
        span: Span,
        loaded: LoadedRowGroups,
        columns: dict[str, Decoded],
        stacks: list[tuple[tuple[str, ...], NDArray[Any]]],
    ) -> list[Task]:
        task_of = _tasks_of_stacks(span.picked, loaded, self.layout, self.buffers)
        # What is stacked in all of the row groups, and whole there, comes out as a stack too.
        encoded = set().union(*(row_group.cells for row_group in loaded.values()))
        missing = set().union(*(row_group.missing for row_group in loaded.values()))
        tasks: list[Task] = []
        for numbers in self.layout.kinds:
            names = tuple(name for number in numbers for name in self.layout.stacks[number].names)
            stack = self.layout.stacks[numbers[0]]
            room = len(names) * span.most_rows * stack.row_bytes
            whole = self.buffers.empty((len(names), span.num_rows, *stack.shape), stack.dtype, room=room)
            first = 0
            for number in numbers:
                out = whole[first : (first := first + len(self.layout.stacks[number].names))]
                tasks.append(task_of(number, out))
            for name, values in zip(names, whole, strict=True):
                if name in encoded:
                    tasks += self._encoded_tasks(self.view[name], span, loaded, columns)
                else:
                    of_rows = _missing(name, span, loaded) if name in missing else None
                    columns[name] = Decoded(values, of_rows)
            if encoded.isdisjoint(names) and missing.isdisjoint(names):
                stacks.append((names, whole))
        for name in self.layout.encoded:
            tasks += self._encoded_tasks(self.view[name], span, loaded, columns)
        return tasks

    def _encoded_tasks(
        self, field: UnischemaField, span: Span, loaded: LoadedRowGroups, columns: dict[str, Decoded]
    ) -> list[Task]:
        """The tasks that make one column that is not stacked in all of the row groups, and put it there."""
        rows = span.num_rows
        values = empty_column(field, rows, self.buffers, most_rows=span.most_rows)
        missing = None if values.dtype == np.dtype(object) else np.zeros(rows, dtype=np.bool_)
        columns[field.name] = Decoded(values, missing)
        size = _mean_size(field.name, loaded) if field.decoded_bytes is None else field.decoded_bytes
        at_once = _TASK_ROWS if size is None else max(_TASK_BYTES // max(size, 1), 1)
        pieces = max(round(rows / at_once), 1)
        borders = [rows * piece // pieces for piece in range(pieces + 1)]
        return [
            functools.partial(self._decode, field, span, loaded, columns[field.name], slice(*borders[place:][:2]))
            for place in range(pieces)
        ]

    def _decode(
        self, field: UnischemaField, span: Span, loaded: LoadedRowGroups, column: Decoded, where: slice
    ) -> None:
        picked = GroupedRows(span.groups[where], span.rows[where], None)
        out = Decoded(column.values[where], None if column.missing is None else column.missing[where])
        try:
            cells = EncodedCells(loaded, self.layout, self.origin, self.max_cell_bytes, self.buffers)
            cells.decode(self.columns[field.name], picked, out)
        except DecodeError as problem:
            raise self._placed(problem, picked.groups, picked.rows) from problem.__cause__

    def _finish(
        self,
        span: Span,
        columns: Mapping[str, Decoded],
        stacks: tuple[tuple[tuple[str, ...], NDArray[Any]], ...],
    ) -> AssembledSpan | Future[AssembledSpan]:
        if span.num_rows == 0:
            empty = {field.name: Decoded(empty_column(field, 0), None) for field in self.schema}
            return AssembledSpan(span, Columns(empty))
        made = {
            name: column if column.missing is None else column.without_idle_mask()
            for name, column in ((name, columns[name]) for name in self.view.fields)
        }
        if self.transform is None:
            return _put_together(span, stacks, made)
        transformed = self.transform(made, span, **self._keys(span))
        if isinstance(transformed, Future):
            return after([transformed], lambda: _put_together(span, (), transformed.result()))
        return _put_together(span, (), transformed)

    def _keys(self, span: Span) -> dict[str, NDArray[np.uint64]]:
        """The random keys of the rows of a span, as the argument `keys` of a transform that draws random numbers."""
        if not self.draws:
            return {}
        from petastore.readers.assembly.random_keys import random_keys  # a reader that draws none need not import it

        return {"keys": random_keys(span, self.origin)}

    def _placed(self, problem: DecodeError, groups: NDArray[np.int32], rows: NDArray[np.int64]) -> DecodeError:
        if problem.row is not None:
            at = [problem.row]
            (group,), (row,) = self.origin(groups[at], rows[at])
            file, ordinal = self.inventory.place_of(int(group))
            problem.row, problem.row_group, problem.file = int(row), ordinal, file.path
        return problem


def of_spans(transform: Transform | None) -> SpanTransform | None:
    """A transform of columns, and where their batches begin, as one of spans."""
    return None if transform is None else lambda columns, span, **keys: transform(columns, span.offsets, **keys)


def _tasks_of_stacks(
    picked: GroupedRows, loaded: LoadedRowGroups, layout: Layout, buffers: Buffers
) -> Callable[[int, NDArray[Any]], Task]:
    """What makes, of the number of a stack and of where its values go, the task that puts them there."""
    in_runs = come_in_long_runs(picked)
    arena = _arena_of(loaded)
    if arena is not None and not (in_runs and picked.permutation is None):
        return tasks_from_arena(picked, loaded, layout, arena, buffers)
    lie_as_in_files = all(row_group.read_order is None for row_group in loaded.values())

    @functools.cache
    def laying(in_read_order: bool) -> Laying:
        if in_runs and (in_read_order or lie_as_in_files):
            return Laying(picked, buffers)
        if in_read_order and not lie_as_in_files:
            return Laying(placed(picked, {group: row_group.places for group, row_group in loaded.items()}), buffers)
        return Laying(picked if picked.runs is None else picked.without_runs(), buffers)

    def task(number: int, out: NDArray[Any]) -> Task:
        stack = layout.stacks[number]
        laid = laying(stack.in_read_order).of_values(stack.row_bytes)
        return functools.partial(laid.values, {group: one.stacks[number] for group, one in loaded.items()}, out)

    return task


def _arena_of(loaded: LoadedRowGroups) -> Arena | None:
    """The arena that all of them stand in; None where they do not."""
    arenas = {None if row_group.place is None else row_group.place.arena for row_group in loaded.values()}
    return arenas.pop() if len(arenas) == 1 else None


def _missing(name: str, span: Span, loaded: LoadedRowGroups) -> NDArray[np.bool_] | None:
    """Of a stacked column: which of the rows taken are missing; None where none is."""
    missing = np.zeros(span.num_rows, dtype=np.bool_)
    for group, row_group in loaded.items():
        if name in row_group.missing:
            where = np.flatnonzero(span.groups == group)
            missing[where] = row_group.missing[name][span.rows[where]]
    return missing if missing.any() else None


def _mean_size(name: str, loaded: LoadedRowGroups) -> int | None:
    """Bytes of the values of a column in the mean, as their cells tell, if that is much; None where nobody knows."""
    known = [row_group for row_group in loaded.values() if name in row_group.sizes]
    rows = sum(row_group.rows for row_group in known)
    mean = sum(row_group.total_bytes[name] for row_group in known) // max(rows, 1)
    return mean if mean >= _LARGE_VALUE_BYTES else None


def _put_together(
    span: Span, stacks: tuple[tuple[tuple[str, ...], NDArray[Any]], ...], columns: dict[str, Decoded]
) -> AssembledSpan:
    if span.valid is not None:
        columns[VALID_COLUMN] = Decoded(span.valid, None)
    return AssembledSpan(span, Columns(columns, stacks))
