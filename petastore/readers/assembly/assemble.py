"""Assemble: from a span and the row groups at hand, the columns of its batches.

Every column of a span is made once, in one buffer; batches are views of it. The work is given out in tasks of a few
milliseconds that write to different places, so that all workers can be at one span: the first batch of an epoch is
there sooner, and the last one does not keep one worker busy while the others have nothing to do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded, empty_column
from petastore.errors import DecodeError
from petastore.inventory import Inventory
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.plan import Span
from petastore.readers.assembly.gather import Picks
from petastore.readers.assembly.loose import decode_loose, decode_partition_values
from petastore.readers.batch import Batch, Columns
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.resident import Resident
from petastore.readers.loaded.shelf import Shelf
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import Transform

__all__ = ["VALID_COLUMN", "AssembledSpan", "Assembler", "SpanWork", "then"]

VALID_COLUMN = "valid"
"""The boolean column that `tail="pad"` adds: False where a row is a repeat."""

_TASK_BYTES = 2 * 1024 * 1024
"""Decoded bytes of a task."""

_TASK_ROWS = 8192
"""Rows of a task whose values have no known size."""

_LARGE_VALUE_BYTES = 16 * 1024
"""Smaller values are decoded by many more at a time, whatever their size: to give out a task costs as much as some."""

Residents: TypeAlias = Mapping[int, Resident]
Task: TypeAlias = Callable[[], None]
_Made = TypeVar("_Made")


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class AssembledSpan:
    """The columns of a span, and where its batches begin."""

    span: Span
    columns: Columns

    def batch(self, place: int) -> Batch:
        """One of the batches, by its place in the span; its columns are views."""
        first, stop = self.span.offsets[place : place + 2].tolist()
        return Batch(self.columns, first, stop, self.span.cursor_after(place))

    def batches(self) -> Iterator[Batch]:
        """All batches in order."""
        return map(self.batch, range(self.span.num_batches))


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

    def done(self) -> AssembledSpan:
        """All of it, in the calling thread."""
        for task in self.tasks:
            task()
        made = self.finish()
        return made.result() if isinstance(made, Future) else made


@dataclasses.dataclass(frozen=True, eq=False)
class Assembler:
    """Makes spans of one reader. Thread-safe: holds no state but memory to be used again."""

    inventory: Inventory
    """What exists; says where a row came from when it cannot be decoded."""

    view: Unischema
    """The fields that are read, before the transform."""

    schema: Unischema
    """The fields that come out."""

    partition_values: Mapping[str, Any]
    """Of each partition column that is read: a `pyarrow.Array` with its value for each row group of the dataset."""

    transform: Transform | None
    """What the user's function makes of the columns, here or in other processes."""

    layout: Layout
    """How row groups at hand are kept."""

    buffers: Buffers
    """Where the memory of columns comes from."""

    max_cell_bytes: int | None
    """Bytes that a cell may take once it is decoded; None is no limit."""

    def begin(self, span: Span, residents: Residents) -> SpanWork:
        """The work of a span.

        Its tasks raise DecodeError, naming column, file, row group and row; `finish` raises TransformError from the
        user's function.

        Args:
            span: What is wanted.
            residents: The row groups that the span needs.
        """
        columns: dict[str, Decoded] = {}
        stacks: list[tuple[tuple[str, ...], NDArray[Any]]] = []
        tasks = self._tasks(span, residents, columns, stacks) if span.num_rows else []
        return SpanWork(tasks, functools.partial(self._finish, span, columns, tuple(stacks)))

    def decoded_rows(self, span: Span) -> tuple[Assembler, Span]:
        """Who decodes rows for a span, and which these are, batch after batch."""
        return self, span

    def decoded_sizes(self, span: Span, residents: Residents) -> dict[str, NDArray[np.int64]]:
        """Of each column whose values differ in size: bytes of each once decoded, shape (rows,), 0 if it is not known.

        Args:
            span: The rows.
            residents: The row groups that they are of.
        """
        names = set().union(*(resident.sizes for resident in residents.values()))
        sizes = {name: np.zeros(span.num_rows, np.int64) for name in names}
        if names:
            for group, where in Picks(GroupedRows(span.groups, span.rows, None)).by_group:
                for name, of_group in residents[group].sizes.items():
                    sizes[name][where] = of_group[span.rows[where]]
        return sizes

    def placed(self, problem: DecodeError, span: Span) -> DecodeError:
        """The same error with the place of its row, which is one of a span, filled in."""
        return self._placed(problem, Picks(GroupedRows(span.groups, span.rows, None)))

    def _tasks(
        self,
        span: Span,
        residents: Residents,
        columns: dict[str, Decoded],
        stacks: list[tuple[tuple[str, ...], NDArray[Any]]],
    ) -> list[Task]:
        task_of = _tasks_of_stacks(Picks(span.picked, buffers=self.buffers), residents, self.layout)
        # What is stacked in all of the row groups, and whole there, comes out as a stack too.
        loose = set().union(*(resident.cells for resident in residents.values()))
        missing = set().union(*(resident.missing for resident in residents.values()))
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
                if name in loose:
                    tasks += self.loose_tasks(self.view[name], span, residents, columns)
                else:
                    of_rows = _missing(name, span, residents) if name in missing else None
                    columns[name] = Decoded(values, of_rows)
            if loose.isdisjoint(names) and missing.isdisjoint(names):
                stacks.append((names, whole))
        for name in self.layout.loose:
            if name in self.view:
                tasks += self.loose_tasks(self.view[name], span, residents, columns)
        return tasks

    def loose_tasks(
        self, field: UnischemaField, span: Span, residents: Residents, columns: dict[str, Decoded]
    ) -> list[Task]:
        """The tasks that make one column that is not stacked in all of the row groups.

        Args:
            field: The column.
            span: What is wanted.
            residents: The row groups that the span needs.
            columns: Where the column is put.
        """
        rows = span.num_rows
        values = empty_column(field, rows, self.buffers, most_rows=span.most_rows)
        missing = None if values.dtype == np.dtype(object) else np.zeros(rows, dtype=np.bool_)
        columns[field.name] = Decoded(values, missing)
        size = _mean_size(field.name, residents) if field.decoded_bytes is None else field.decoded_bytes
        at_once = _TASK_ROWS if size is None else max(_TASK_BYTES // max(size, 1), 1)
        pieces = max(round(rows / at_once), 1)
        borders = [rows * piece // pieces for piece in range(pieces + 1)]
        return [
            functools.partial(self._decode, field, span, residents, columns[field.name], slice(*borders[place:][:2]))
            for place in range(pieces)
        ]

    def _decode(self, field: UnischemaField, span: Span, residents: Residents, column: Decoded, where: slice) -> None:
        picks = Picks(GroupedRows(span.groups[where], span.rows[where], None))
        out = Decoded(column.values[where], None if column.missing is None else column.missing[where])
        try:
            if field.name in self.partition_values:
                decode_partition_values(self.partition_values[field.name], field, picks, out)
            else:
                decode_loose(field, picks, residents, self.layout, out, max_cell_bytes=self.max_cell_bytes)
        except DecodeError as problem:
            raise self._placed(problem, picks) from problem.__cause__

    def _finish(
        self,
        span: Span,
        columns: Mapping[str, Decoded],
        stacks: tuple[tuple[tuple[str, ...], NDArray[Any]], ...],
    ) -> AssembledSpan | Future[AssembledSpan]:
        if span.num_rows == 0:
            empty = {field.name: Decoded(empty_column(field, 0), None) for field in self.schema}
            return AssembledSpan(span, Columns(empty))
        made = {field.name: _without_idle_mask(columns[field.name]) for field in self.view}
        if self.transform is None:
            return _put_together(span, stacks, made)
        transformed = self.transform(made, span.offsets)
        if isinstance(transformed, Future):
            return then(transformed, functools.partial(_put_together, span, ()))
        return _put_together(span, (), transformed)

    def _placed(self, problem: DecodeError, picks: Picks) -> DecodeError:
        if problem.row is not None:
            group = int(picks.groups[problem.row])
            problem.row = int(picks.rows[problem.row])
            problem.file = self.inventory.files[self.inventory.file[group]].path
            problem.row_group = int(self.inventory.ordinal[group])
        return problem


def _tasks_of_stacks(picks: Picks, residents: Residents, layout: Layout) -> Callable[[int, NDArray[Any]], Task]:
    """What makes, of the number of a stack and of where its values go, the task that puts them there."""
    shelf = _shelf_of(residents)
    if shelf is not None and not picks.are_few_runs:
        return _from_shelf(picks, residents, layout, shelf)
    in_file = picks.placed({}) if all(resident.comes_as_in_file for resident in residents.values()) else picks
    in_turns = in_file
    if layout.turns_rows:
        known = picks.come_in_long_runs
        in_turns = picks.placed({} if known else {group: resident.places for group, resident in residents.items()})

    def task(number: int, out: NDArray[Any]) -> Task:
        stacks = {group: resident.stacks[number] for group, resident in residents.items()}
        return functools.partial((in_turns if layout.stacks[number].in_turns else in_file).values, stacks, out)

    return task


def _from_shelf(
    picks: Picks, residents: Residents, layout: Layout, shelf: Shelf
) -> Callable[[int, NDArray[Any]], Task]:
    firsts = {group: resident.place.first for group, resident in residents.items() if resident.place is not None}

    @functools.cache
    def index(in_turns: bool) -> NDArray[np.int64]:
        if in_turns and picks.picked.runs is None:
            for resident in residents.values():
                _ = resident.places  # written down on the shelf now, if not before
        return picks.on_shelf(firsts, shelf.turns if in_turns else None)

    def task(number: int, out: NDArray[Any]) -> Task:
        # Stacks are held until the task is done: nobody else is given their places meanwhile.
        held = [resident.stacks[number] for resident in residents.values()]
        return functools.partial(_take, shelf.stacks[number], index(layout.stacks[number].in_turns), out, held)

    return task


def _take(stack: NDArray[Any], index: NDArray[np.int64], out: NDArray[Any], _held: Sequence[NDArray[Any]]) -> None:
    np.take(stack, index, axis=1, out=out, mode="clip")


def _shelf_of(residents: Residents) -> Shelf | None:
    """The shelf that all of them stand on; None where they do not."""
    shelves = {None if resident.place is None else resident.place.shelf for resident in residents.values()}
    return shelves.pop() if len(shelves) == 1 else None


def _missing(name: str, span: Span, residents: Residents) -> NDArray[np.bool_] | None:
    """Of a stacked column: which of the rows taken are missing; None where none is."""
    missing = np.zeros(span.num_rows, dtype=np.bool_)
    for group, resident in residents.items():
        if name in resident.missing:
            where = np.flatnonzero(span.groups == group)
            missing[where] = resident.missing[name][span.rows[where]]
    return missing if missing.any() else None


def _mean_size(name: str, residents: Residents) -> int | None:
    """Bytes of the values of a column in the mean, as their cells tell, if that is much; None where nobody knows."""
    known = [resident for resident in residents.values() if name in resident.sizes]
    rows = sum(resident.rows for resident in known)
    mean = sum(resident.total_bytes[name] for resident in known) // max(rows, 1)
    return mean if mean >= _LARGE_VALUE_BYTES else None


def _put_together(
    span: Span, stacks: tuple[tuple[tuple[str, ...], NDArray[Any]], ...], columns: dict[str, Decoded]
) -> AssembledSpan:
    if span.valid is not None:
        columns[VALID_COLUMN] = Decoded(span.valid, None)
    return AssembledSpan(span, Columns(columns, stacks))


def then(made: Future[_Made], go_on: Callable[[_Made], AssembledSpan]) -> Future[AssembledSpan]:
    """The future of what is made of the result of another one."""
    future: Future[AssembledSpan] = Future()

    def settle(made: Future[_Made]) -> None:
        if made.cancelled():
            future.cancel()
            return
        try:
            future.set_result(go_on(made.result()))
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the span
            future.set_exception(problem)

    made.add_done_callback(settle)
    return future


def _without_idle_mask(column: Decoded) -> Decoded:
    return column if column.missing is None or column.missing.any() else Decoded(column.values, None)
