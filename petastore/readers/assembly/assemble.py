"""Assemble batches from row groups in memory, within the memory budget.

A span is a sequence of consecutive batches that are assembled together. The number of rows of a span is chosen before
any data is read, from an estimate of their size. After loading, the decoded size is computed from the cells. If a span
is larger than its share of the budget, it is not assembled in advance. Instead, whenever the consumer needs more
batches, as many batches of the span are assembled as fit into the budget. A single batch that exceeds the budget raises
an error before it is decoded.

The budget for values of variable size, such as text and images, is divided into equal shares:

```text
a third    batches that the consumer holds
a third    batches being assembled on request
a third    spans that are assembled in advance
```

If only one span is assembled at a time, nothing is assembled in advance while batches are assembled on request. The
budget then has two halves: one for the consumer's batches, one for the batches being assembled.

Each column of a span is assembled in one buffer, and batches are views of this buffer. Assembly is divided into tasks
of a few milliseconds that write to different parts of the buffer, so that all workers can work on one span. The first
batch of an epoch is then ready sooner, and no worker is idle during the last span.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded, empty_column, empty_missing, may_hold_nulls
from petastore.errors import DecodeError
from petastore.inventory import Inventory
from petastore.lazy import once
from petastore.monitoring.activity import during, running_since
from petastore.plan.order.grouped_rows import GroupedRows, places_by_key
from petastore.plan.order.mix import mix_array
from petastore.plan.plan import Span
from petastore.readers.assembly.encoded import EncodedCells, EncodedColumn
from petastore.readers.assembly.gather import Origin, rows_in_memory, stack_gather
from petastore.readers.batch import Batch, Columns
from petastore.readers.loaded.arena import Layout, needs_decoding
from petastore.readers.loaded.row_group_reader import LoadedRowGroup
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.work.futures import then

if TYPE_CHECKING:
    from petastore.plan.row_group_parts import RowGroupParts
    from petastore.transforming.transform import Transform

__all__ = [
    "VALID_COLUMN",
    "AssembledSpan",
    "Assembler",
    "Assembles",
    "Room",
    "SpanTransform",
    "SpanWork",
    "begin_in_room",
    "of_spans",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """Memory limits for values of unknown size, such as text and images, while batches are assembled."""

    limit: int
    """Value of `memory_budget` in bytes."""

    ahead_bytes: int
    """Budget in bytes of a span (consecutive batches) that is assembled in advance."""

    asked_bytes: int
    """Budget of batches that are assembled together on request, in bytes."""

    workers: int
    """Number of cells decoded at a time. Decoding a cell may need as much working memory as its value takes."""

    least: Callable[[int], int] = lambda size: size
    """Function `least(size)` that returns a sufficient `memory_budget` for a batch whose values take `size` bytes.

    Error messages recommend this budget."""

    @classmethod
    def of(cls, limit: int, values_bytes: int, *, ahead: int, workers: int, least: Callable[[int], int]) -> Self:
        """Divide the memory for variable-size values into shares, and return the limits.

        There is a share for batches that the consumer holds, for batches assembled on request, and for spans assembled
        in advance; see the table in this module's docstring.

        Args:
            limit: Value of `memory_budget` in bytes.
            values_bytes: Bytes of the budget that are available for these values.
            ahead: Number of spans (groups of consecutive batches) that are assembled at a time.
            workers: Number of cells decoded at a time.
            least: Function that returns a sufficient `memory_budget`, given the bytes of a batch's values.
        """
        share = values_bytes // cls.shares(ahead)
        return cls(limit, ahead_bytes=share // ahead, asked_bytes=share, workers=workers, least=least)

    @staticmethod
    def shares(ahead: int) -> int:
        """Return the number of equal shares into which the memory for variable-size values is divided.

        There are three shares: for the consumer's batches, for batches assembled on request, and for spans assembled in
        advance. If only one span is assembled at a time, the last share is omitted.

        Args:
            ahead: Number of spans (groups of consecutive batches) that are assembled at a time.

        Example:
            >>> Room.shares(1), Room.shares(2), Room.shares(5)
            (2, 3, 3)
        """
        return min(ahead + 1, 3)

    def taken(self, total: int, largest: int) -> int:
        """Return the peak memory in bytes for decoding values: the values, and working memory of the decoder.

        Args:
            total: Bytes of all values.
            largest: Bytes of the largest value whose decoding takes memory besides the value.
        """
        return total + min(self.workers * largest, total)


def begin_in_room(assembler: Assembles, room: Room, span: Span, loaded: LoadedRowGroups) -> SpanWork:
    """Return the tasks that assemble a span (consecutive batches) within the memory budget.

    If the values exceed the budget, the result has `SpanWork.parts` instead of tasks for the whole span. A part has as
    many consecutive batches as fit into the budget, and is assembled when it is needed.

    Args:
        assembler: Assembler of the batches.
        room: Memory limits of the values.
        span: Batches to assemble.
        loaded: Loaded row groups of the span, by number.

    Raises:
        DecodeError: A single batch exceeds the budget; the message names the batch's largest cell.
    """
    maker, rows = assembler.decoded_rows(span)
    by_column = maker.decoded_sizes(rows, loaded)
    none = np.zeros(rows.num_rows, np.int64)
    sizes = sum(by_column.values(), none)
    decoded = sum((of_column for name, of_column in by_column.items() if needs_decoding(maker.view[name])), none)
    if room.taken(int(sizes.sum()), int(decoded.max(initial=0))) <= room.ahead_bytes:
        return assembler.begin(span, loaded)
    borders = [0]
    total = largest = 0
    for batch, (first, stop) in enumerate(itertools.pairwise(rows.offsets.tolist())):
        size, most = int(sizes[first:stop].sum()), int(decoded[first:stop].max(initial=0))
        if room.taken(size, most) > room.asked_bytes:
            problem = _no_room(room, by_column, room.taken(size, most), range(first, stop))
            raise maker.placed(problem, rows.groups, rows.rows)
        total, largest = total + size, max(largest, most)
        if room.taken(total, largest) > room.asked_bytes:
            borders.append(batch)
            total, largest = size, most
    parts = [span.part(first, stop) for first, stop in itertools.pairwise([*borders, span.num_batches])]
    return SpanWork([], _nothing, tuple(functools.partial(_begin, assembler, part, loaded) for part in parts))


def _begin(assembler: Assembles, part: Span, loaded: LoadedRowGroups) -> SpanWork:
    """Return the tasks that assemble some of the batches of a span.

    The tasks reference only the row groups of these batches, so that other row groups can be freed earlier.

    Args:
        assembler: Assembler of the batches.
        part: Consecutive batches to assemble.
        loaded: Loaded row groups by number; other batches may need some of them.
    """
    return assembler.begin(part, {group: loaded[group] for group in np.unique(part.groups).tolist()})


def _nothing() -> Any:
    raise AssertionError("internal error: rows that are assembled in parts were requested as a whole")


def _no_room(room: Room, by_column: dict[str, NDArray[np.int64]], taken: int, rows: range) -> DecodeError:
    column, row, size = max(
        ((name, rows.start + int(np.argmax(sizes[rows.start : rows.stop])), int(sizes[rows.start : rows.stop].max()))
         for name, sizes in by_column.items()),
        key=lambda cell: cell[2],
    )  # fmt: skip
    return DecodeError(
        f"the decoded values of a batch must take at most {room.asked_bytes:,} bytes with "
        f"memory_budget={room.limit:,}, got {taken:,} in {len(rows):,} rows, of which this cell takes {size:,}. Raise "
        f"memory_budget to {room.least(taken):,}, use smaller batches, or leave the column out with schema_fields",
        column=column,
        row=row,
    )


VALID_COLUMN = "valid"
"""The boolean column that `last_batch="pad"` adds: False where a row is a repeat."""

_TASK_BYTES = 2 * 1024 * 1024
"""Target size of an assembly task, in decoded bytes."""

_TASK_ROWS = 8192
"""Number of rows of a task that decodes values of variable size, if these values are small or of unknown size."""

_LARGE_VALUE_BYTES = 16 * 1024
"""Minimum mean bytes of values for which tasks are divided by bytes. For smaller values, each task has `_TASK_ROWS`
rows, because starting a task takes as long as decoding several values."""

LoadedRowGroups: TypeAlias = Mapping[int, LoadedRowGroup]
Task: TypeAlias = Callable[[], None]
SpanTransform: TypeAlias = Callable[..., "dict[str, Decoded] | Future[dict[str, Decoded]]"]
"""Function `transform(columns, span)` that returns the transformed columns of a span (consecutive batches) as a new
dict, or a future of this dict. A transform that draws random numbers also takes `keys=`, the random key of each row,
shape (rows, 2)."""


def _where_they_are(groups: NDArray[Any], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the numbers of row groups and rows unchanged: the default of `Assembler.origin`.

    It applies if row groups and rows have the same numbers in memory as in the dataset.
    """
    return groups, rows


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class AssembledSpan:
    """Assembled columns of consecutive batches (a span), and the first row of each batch."""

    span: Span
    columns: Columns

    def batch(self, place: int) -> Batch:
        """Return one of the batches, by its index from 0; its columns are views of the assembled columns."""
        first, stop = self.span.offsets[place : place + 2].tolist()
        return Batch(self.columns, first, stop, self.span.cursor_after(place))


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SpanWork:
    """Tasks that assemble consecutive batches (a span), and the function that returns the result.

    Threads run the tasks in any order. After the last task, one thread calls `finish`.
    """

    tasks: list[Task]
    """Tasks that write to different parts of the columns."""

    finish: Callable[[], AssembledSpan | Future[AssembledSpan]]
    """Function that returns the assembled batches, or a future of them if worker processes still transform rows."""

    parts: tuple[Callable[[], SpanWork], ...] = ()
    """Functions that replace `tasks` and `finish` if all batches together exceed the memory budget. Each function
    returns the tasks for some of the batches, and is called when the consumer needs these batches."""


class Assembles(Protocol):
    """Interface of batch assemblers: `Assembler` for rows, `WindowAssembler` for windows."""

    def begin(self, span: Span, loaded: LoadedRowGroups) -> SpanWork:
        """Return the tasks that assemble a span (consecutive batches) from its loaded row groups."""

    def decoded_rows(self, span: Span) -> tuple[Assembler, Span]:
        """Return the single rows that must be decoded for a span (consecutive batches), to compute their sizes.

        Returns:
            The assembler that decodes these rows, and a span that contains them. For batches of windows, the rows are
            the rows of the windows.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class Assembler:
    """Copies and decodes the rows of loaded row groups into batches. Thread-safe: its only state is reusable memory."""

    inventory: Inventory
    """List of files and row groups (inventory), for error messages that name the file of a row."""

    view: Unischema
    """Fields that are read, before the transform."""

    schema: Unischema
    """Output fields, after the transform."""

    columns: Mapping[str, EncodedColumn]
    """Stored form of each field in each dataset (type, codec, partition values), by field name."""

    transform: SpanTransform | None
    """Transform of the columns, run in this process or in worker processes; None without a transform."""

    layout: Layout
    """Memory layout of row groups: the columns that share an array, and the columns that stay encoded cells."""

    buffers: Buffers
    """Allocator of reusable memory for columns."""

    max_cell_bytes: int | None
    """Maximum decoded bytes of a cell; None means no limit."""

    draws: bool = dataclasses.field(default=False, kw_only=True)
    """Whether the transform draws random numbers, so that it receives a random key for each row."""

    origin: Origin = dataclasses.field(default=_where_they_are, kw_only=True)
    """Function that converts numbers of row groups and rows in memory to their numbers in the dataset."""

    parts: RowGroupParts | None = dataclasses.field(default=None, kw_only=True)
    """Division of huge row groups into parts (row ranges that are loaded one by one). Spans then have part numbers
    instead of row group numbers. None if row groups are loaded whole."""

    def begin(self, span: Span, loaded: LoadedRowGroups) -> SpanWork:
        """Return the tasks that assemble a span (consecutive batches) from its loaded row groups.

        The tasks may raise a `DecodeError` with column, file, row group and row. `finish` may raise a `TransformError`
        if the user's function raises.

        Args:
            span: Consecutive batches to assemble.
            loaded: Loaded row groups that the span needs.
        """
        columns: dict[str, Decoded] = {}
        stacks: list[tuple[tuple[str, ...], NDArray[Any]]] = []
        tasks: list[Task] = []
        if span.num_rows and any(one.members is not None for one in loaded.values()):
            rows, together, origin = rows_in_memory(span, loaded, self.origin)
            tasks = dataclasses.replace(self, origin=origin)._tasks(rows, together, columns, stacks)  # noqa: SLF001
        elif span.num_rows:
            tasks = self._of_loaded._tasks(span, loaded, columns, stacks)  # noqa: SLF001
        if self.parts is not None:
            span = dataclasses.replace(span, picked=span.picked.in_row_groups(self.parts))
        return SpanWork(tasks, functools.partial(self._finish, span, columns, tuple(stacks)))

    def decoded_rows(self, span: Span) -> tuple[Assembler, Span]:
        """Return an assembler that decodes the rows of a span (consecutive batches), and the span unchanged.

        The method exists because batches of windows need other rows; see `WindowAssembler.decoded_rows`.
        """
        return self._of_loaded, span

    @once
    def _of_loaded(self) -> Assembler:
        """Copy of this assembler whose errors name row groups instead of parts (row ranges of huge row groups).

        It is this object itself if row groups are loaded whole.
        """
        return self if self.parts is None else dataclasses.replace(self, origin=self.parts.in_row_groups, parts=None)

    def decoded_sizes(self, span: Span, loaded: LoadedRowGroups) -> dict[str, NDArray[np.int64]]:
        """Return the decoded bytes of each value, shape (rows,), by name of variable-size column; 0 if unknown.

        Args:
            span: Consecutive batches that contain the rows.
            loaded: Loaded row groups of these rows.
        """
        names = set().union(*(row_group.sizes for row_group in loaded.values()))
        sizes = {name: np.zeros(span.num_rows, np.int64) for name in names}
        if names:
            for group, where in places_by_key(span.groups):
                for name, of_group in loaded[group].sizes.items():
                    sizes[name][where] = of_group[span.rows[where]]
        return sizes

    def _tasks(
        self,
        span: Span,
        loaded: LoadedRowGroups,
        columns: dict[str, Decoded],
        stacks: list[tuple[tuple[str, ...], NDArray[Any]]],
    ) -> list[Task]:
        task_of = stack_gather(span.picked, loaded, self.layout, self.buffers)
        # The array of all columns of one dtype and shape is also returned as a whole, so that it can be converted at
        # once. This requires that no row group has nulls or encoded cells in these columns.
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
        """Return the tasks that decode the stored cells of a column, some rows per task, into a new array.

        The array is added to `columns`.
        """
        rows = span.num_rows
        values = empty_column(field, rows, self.buffers, most_rows=span.most_rows)
        inside = may_hold_nulls(field) and any(of.has_nulls_inside(field.name) for of in loaded.values())
        missing = empty_missing(field, rows, inside=inside)
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
            cells = EncodedCells(loaded, self.layout, self.origin, self.max_cell_bytes)
            with during("decoding"):
                cells.decode(self.columns[field.name], picked, out)
        except DecodeError as problem:
            raise self.placed(problem, picked.groups, picked.rows) from problem.__cause__

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
        with during("transform"):
            transformed = self.transform(made, span, **self._keys(span))
        if isinstance(transformed, Future):
            # The callback that logs the time is added first, so that it runs before the consumer is notified.
            transformed.add_done_callback(running_since("transform"))
        return then(transformed, functools.partial(_put_together, span, ()))

    def _keys(self, span: Span) -> dict[str, NDArray[np.uint64]]:
        """Return the keyword arguments of the transform: `{"keys": array}`, or {} if it draws no random numbers.

        The array has the random key of each row of the span, shape (rows, 2).
        """
        return {"keys": random_keys(span, self.origin)} if self.draws else {}

    def placed(self, problem: DecodeError, groups: NDArray[np.int32], rows: NDArray[np.int64]) -> DecodeError:
        """Add file, row group and row to an error whose `row` is an index in `groups` and `rows`; return the error."""
        if problem.row is not None:
            at = [problem.row]
            (group,), (row,) = self.origin(groups[at], rows[at])
            file, ordinal = self.inventory.place_of(int(group))
            problem.row, problem.row_group, problem.file = int(row), ordinal, file.path
        return problem


def of_spans(transform: Transform | None) -> SpanTransform | None:
    """Convert a function `transform(columns, offsets)` to a function `transform(columns, span)`; None stays None.

    `offsets` are the rows at which the batches of the span begin, with the end.
    """
    return None if transform is None else lambda columns, span, **keys: transform(columns, span.offsets, **keys)


def _missing(name: str, span: Span, loaded: LoadedRowGroups) -> NDArray[np.bool_] | None:
    """Return a mask of the missing values of a column in the batches, shape (rows,); None if no value is missing."""
    missing = np.zeros(span.num_rows, dtype=np.bool_)
    for group, row_group in loaded.items():
        if name in row_group.missing:
            where = np.flatnonzero(span.groups == group)
            missing[where] = row_group.missing[name][span.rows[where]]
    return missing if missing.any() else None


def _mean_size(name: str, loaded: LoadedRowGroups) -> int | None:
    """Return the mean decoded bytes of a column's values; None if unknown, or below `_LARGE_VALUE_BYTES`."""
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


def random_keys(span: Span, origin: Origin) -> NDArray[np.uint64]:
    """Return a random key for each row of a span (consecutive batches), from seed, epoch, row group and row number.

    The key does not depend on the batch, the rank, or the worker that calls the transform.

    Args:
        span: Consecutive batches that contain the rows.
        origin: Function that converts numbers of row groups and rows of the span to their numbers in the dataset.

    Returns:
        Array of shape (rows, 2): a hash of seed, epoch and row group, and the row number in the row group.
    """
    groups, rows = origin(span.groups, span.rows)
    streams = span.random_streams()
    keys = np.empty((len(rows), 2), dtype=np.uint64)
    for stream in np.unique(streams).tolist():
        here = streams == stream
        keys[here, 0] = mix_array(stream, groups[here].astype(np.uint64))
    keys[:, 1] = rows
    return keys
