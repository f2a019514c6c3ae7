"""Loading: what a reader makes of a row group that is read, to keep it at hand.

Numbers, times, and arrays whose cells are nothing but their values are copied out of Arrow's memory into *stacks*: one
array for all columns of a dtype and shape, column after column. The copy is no loss. Arrow's memory is free again
before the next columns are decoded, so the same few megabytes serve all of them, and ours is used again too
(`petastore.decoding.buffers`); both stay mapped and warm, and what is kept is counted to the byte.

Rows are laid in the order in which the plan comes to them. A shuffled batch takes some rows of many row groups; picked
from all over a column of numbers, each of them would cost a fetch from main memory, for a whole cache line, in every
span anew. The columns are permuted once instead, while they are in the cache, and spans copy what lies side by side.

Everything else stays as it is stored: JPEG bytes, not pixels. So do columns whose cells have to be refused: only the
rows that somebody asks for may fail.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow_memory import flags_of
from petastore.codecs.arrow.arrow_views import ByteCells, byte_cells
from petastore.codecs.registry import BoundCodec
from petastore.decoding.buffers import Buffers
from petastore.decoding.cell_sizes import decoded_sizes
from petastore.decoding.decode import Decoded, decode_cells, decode_into
from petastore.errors import DecodeError
from petastore.once import once
from petastore.readers.loaded.arena import Arena, Place
from petastore.readers.loaded.as_one import AsOne
from petastore.readers.loaded.layout import Layout, Stack
from petastore.readers.loaded.moved_cells import are_movable, moved_cells
from petastore.readers.loaded.row_group import LoadedRowGroup
from petastore.schema.field import UnischemaField
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.dictionaries import MOST_BYTES

__all__ = ["Read", "RowGroupLoader", "at_least"]

Read: TypeAlias = Callable[[Sequence[Part]], Iterator[pa.Table]]

_LONG_COLUMN_BYTES = 64 * 1024
"""Columns of so many bytes are permuted one by one rather than copied once more: NumPy writes to one run of memory."""

_PIECE_BYTES = 8 * 1024 * 1024
"""Bytes of a row group from which it is read by several workers: with large ones the others would have to wait."""

_BYTES_AT_ONCE = 2 * 1024 * 1024
"""Bytes of text or bytes that are read in one go: Arrow's memory for them is used again, and stays in the cache."""

_FEW_COLUMNS = 4
"""Fewer columns than this are looked at one by one: each call into Arrow lets go of the interpreter lock."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Loading:
    """A row group on its way. Each task writes under names and numbers of its own."""

    rows: int
    read_order: NDArray[np.int64] | None
    read: Read
    place: Place | None
    stacks: dict[int, NDArray[Any]] = dataclasses.field(default_factory=dict)
    missing: dict[str, NDArray[np.bool_]] = dataclasses.field(default_factory=dict)
    cells: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Column:
    """A column that files hold: what its codec makes of its cells."""

    bound: BoundCodec

    def values(self, chunk: Any) -> Decoded | None:
        """All values; None where one of them has to be refused, or decoding them is work."""
        field, view = self.bound.field, self.bound.view
        if view is None or (chunk.null_count and not field.nullable):
            return None
        viewed = view(chunk)
        if viewed is not None:
            return Decoded(viewed, flags_of(chunk.is_null()) if chunk.null_count else None)
        if not field.is_scalar or not (pa.types.is_primitive(chunk.type) or pa.types.is_boolean(chunk.type)):
            return None
        try:
            return decode_cells(chunk, field, self.bound.codec, max_cell_bytes=None)
        except DecodeError:
            return None

    def put(self, chunk: Any, out: Decoded) -> bool:
        """All values of a piece of the column into their place; False where one of them has to be refused."""
        viewed = None if self.bound.view is None or chunk.null_count else self.bound.view(chunk)
        if viewed is not None:
            np.copyto(out.values, viewed)
            return True
        try:
            decode_into(chunk, self.bound.field, self.bound.codec, out, max_cell_bytes=None)
        except DecodeError:
            return False
        return True

    def files(self, chunk: Any) -> ByteCells | None:
        """Where the cells lie; None where they are not to be decoded there."""
        if chunk.null_count or not self.bound.takes_bytes:
            return None
        if not (pa.types.is_binary(chunk.type) or pa.types.is_large_binary(chunk.type)):
            return None
        return byte_cells(chunk, self.bound.field)

    def sizes(self, chunk: Any) -> NDArray[np.int64] | None:
        """Bytes of each value once decoded, shape (rows,); None where that is not known."""
        try:
            return decoded_sizes(chunk, self.bound.field, self.bound.codec)
        except DecodeError:
            return None  # the column is of another kind; who asks for one of its rows is told


@dataclasses.dataclass(frozen=True)
class RowGroupLoader:
    """Makes loaded row groups of what is read. Thread-safe: what it remembers is the same whoever finds it out."""

    layout: Layout
    """Which columns are stacked."""

    fields: Mapping[str, UnischemaField]
    """Each column that the files hold, with the codec of this dataset."""

    buffers: Buffers
    """Where the memory of stacks comes from."""

    most_bytes: int = dataclasses.field(default=MOST_BYTES, kw_only=True)
    """What the rows of a column of a row group may take that the file holds as a dictionary."""

    known_rows_at_once: dict[str, int] = dataclasses.field(default_factory=dict, kw_only=True)
    """Of columns of text or bytes: how many rows are best read in one go, as the first row group has shown."""

    @once
    def columns(self) -> dict[str, _Column]:
        """What each column that the files hold is read by."""
        return {name: _Column(BoundCodec.of(field)) for name, field in self.fields.items()}

    @once
    def as_one(self) -> AsOne:
        """What sees several of them as one array."""
        return AsOne({name: column.bound for name, column in self.columns.items()})

    def load(
        self, rows: int, read_order: NDArray[np.int64] | None, read: Read, arena: Arena | None = None
    ) -> LoadedRowGroup:
        """Reads a row group, part by part, in the calling thread; see `loading`."""
        tasks, finish = self.loading(rows, read_order, read, arena)
        for task in tasks:
            task()
        return finish()

    def load_together(self, rows: Sequence[int], read: Read) -> list[LoadedRowGroup]:
        """Reads several small row groups in the order of their files, in the calling thread; a loaded one of each.

        Args:
            rows: Of each row group.
            read: Gives the tables of some parts, each with the rows of all row groups, one after the other.
        """
        whole = self.load(sum(rows), None, read)
        borders = [0, *itertools.accumulate(rows)]
        return [self._cut(whole, first, stop) for first, stop in itertools.pairwise(borders)]

    def _cut(self, whole: LoadedRowGroup, first: int, stop: int) -> LoadedRowGroup:
        stacks = tuple(stack[:, first:stop] for stack in whole.stacks)
        flags = {name: missing[first:stop] for name, missing in whole.missing.items()}
        missing = {name: of_rows for name, of_rows in flags.items() if of_rows.any()}
        cells = {name: column.slice(first, stop - first) for name, column in whole.cells.items()}
        lying = {name: self.columns[name].files(cells[name]) for name in whole.files}
        files = {name: where for name, where in lying.items() if where is not None}
        sizes = {name: of_cells[first:stop] for name, of_cells in whole.sizes.items()}
        return LoadedRowGroup(stop - first, None, stacks, missing, cells, files, sizes)

    def loading(
        self, rows: int, read_order: NDArray[np.int64] | None, read: Read, arena: Arena | None = None, *, most: int = 1
    ) -> tuple[Sequence[Callable[[], None]], Callable[[], LoadedRowGroup]]:
        """The work of reading a row group, part by part.

        Args:
            rows: Of the row group.
            read_order: Rows in the order in which they are going to be wanted, each once; None is the order of the
                file.
            read: Gives the tables of some parts.
            arena: Where the stacks are put, if there is room.
            most: Into how many tasks the work is divided at most; small row groups are not.

        Returns:
            Tasks, at least one, in any order and any thread, each of which reads other columns; and what puts together
            what they made, called once, when all are done.
        """
        loading = _Loading(rows, read_order, read, None if arena is None else arena.place(rows))
        pieces = self._divided(rows, most)
        # What is kept as cells comes with the last piece.
        tasks = [functools.partial(_Task(self, loading).run, piece, ()) for piece in pieces[:-1]]
        tasks.append(functools.partial(_Task(self, loading).run, pieces[-1], self.stored_cells))
        return tasks, functools.partial(self._loaded, loading)

    @once
    def parts(self) -> list[Part]:
        """Of each stack: what is read for it."""
        stored = [tuple(name for name in stack.names if name in self.fields) for stack in self.layout.stacks]
        return [
            Part(names, stack.rows_at_once, most_bytes=self.most_bytes)
            for names, stack in zip(stored, self.layout.stacks, strict=True)
        ]

    @once
    def stored_cells(self) -> tuple[str, ...]:
        """Columns that are kept as cells."""
        return tuple(name for name in self.layout.encoded if name in self.fields)

    def _divided(self, rows: int, most: int) -> list[range]:
        """The numbers of the stacks, in runs of about as many bytes."""
        sizes = [rows * len(stack.names) * stack.row_bytes for stack in self.layout.stacks]
        pieces = max(min(most, sum(sizes) // _PIECE_BYTES, len(sizes)), 1)
        if pieces == 1:
            return [range(len(sizes))]
        ends = np.cumsum(sizes)
        borders = [int(np.searchsorted(ends, ends[-1] * piece / pieces)) for piece in range(1, pieces)]
        return [range(*pair) for pair in itertools.pairwise([0, *borders, len(sizes)])]

    def _loaded(self, made: _Loading) -> LoadedRowGroup:
        lying = {name: self.columns[name].files(chunk) for name, chunk in made.cells.items()}
        files = {name: where for name, where in lying.items() if where is not None}
        stacks = tuple(made.stacks[number] for number in range(len(self.layout.stacks)))
        measured = {name: self.columns[name].sizes(chunk) for name, chunk in made.cells.items()}
        sizes = {name: of_cells for name, of_cells in measured.items() if of_cells is not None}
        return LoadedRowGroup(made.rows, made.read_order, stacks, made.missing, made.cells, files, sizes, made.place)


@dataclasses.dataclass(eq=False, slots=True)
class _Task:
    """A part of loading a row group: some stacks, and some columns as cells, in one thread."""

    loader: RowGroupLoader
    loading: _Loading
    cells: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Columns that are kept as cells; None of those whose cells are to be read once more."""

    def run(self, numbers: range, encoded: Sequence[str]) -> None:
        """Reads the stacks of these numbers, and these columns as cells."""
        loader, loading = self.loader, self.loading
        kept = [self._part(name, loader.known_rows_at_once.get(name)) for name in encoded]
        read_tables = loading.read([*loader.parts[numbers.start : numbers.stop], *kept])
        tables = at_least(read_tables, loading.rows)
        for number in numbers:
            if loader.layout.stacks[number].rows_at_once is None:
                loading.stacks[number] = self._stack(number, next(tables))
            else:
                loading.stacks[number] = self._piece_by_piece(number, tables)
        self._keep_cells(kept, tables)
        _check_no_more(read_tables, loading.rows)
        again = [self._part(name) for name, chunk in self.cells.items() if chunk is None]
        self._keep_cells(again, at_least(loading.read(again) if again else iter(()), loading.rows))
        loading.cells.update(self.cells)

    def _part(self, name: str, rows_at_once: int | None = None) -> Part:
        """What is read of a column that is kept as cells."""
        return Part((name,), rows_at_once, most_bytes=self.loader.most_bytes)

    def _keep_cells(self, parts: Sequence[Part], tables: Iterator[pa.Table]) -> None:
        rows, known, cells = self.loading.rows, self.loader.known_rows_at_once, self.cells
        for part in parts:
            (name,) = part.columns
            try:
                cells[name] = moved_cells(_pieces(tables, rows), rows, self.loader.buffers.empty)
            except pa.ArrowCapacityError as problem:
                raise DecodeError(f"{problem} in a row group; write smaller row groups", column=name) from problem
            if rows and name not in known and are_movable(cells[name]):
                known[name] = max(_BYTES_AT_ONCE * rows // max(cells[name].nbytes, 1), 1)

    def _piece_by_piece(self, number: int, tables: Iterator[pa.Table]) -> NDArray[Any]:
        """A stack of one column of long rows; `cells` says None of it where its cells are to be read once more."""
        (name,) = self.loader.layout.stacks[number].names
        rows, stored = self.loading.rows, self.loader.columns.get(name)
        values, is_missing = self._room(number, rows), np.zeros(rows, dtype=np.bool_)
        first = 0
        while first < rows and stored is not None:
            chunk = _only_chunk(next(tables).column(0))
            where = slice(first, first + len(chunk))
            if name not in self.cells and not stored.put(chunk, Decoded(values[0, where], is_missing[where])):
                self.cells[name] = None
            first = where.stop
        if rows == 0 or stored is None:
            next(tables)
        if name not in self.cells and is_missing.any():
            self.loading.missing[name] = is_missing
        return values

    def _room(self, number: int, rows: int) -> NDArray[Any]:
        """Where so many rows of a stack are put."""
        if self.loading.place is not None:
            return self.loading.place.columns(number)[:, :rows]
        stack = self.loader.layout.stacks[number]
        return self.loader.buffers.empty((len(stack.names), rows, *stack.shape), stack.dtype)

    def _stack(self, number: int, table: pa.Table) -> NDArray[Any]:
        """A stack of columns that were read in one go."""
        stack = self.loader.layout.stacks[number]
        read_order = self.loading.read_order if stack.in_read_order else None
        whole = None if len(stack.names) < _FEW_COLUMNS else self.loader.as_one.values(stack, table)
        if whole is not None and read_order is None and self.loading.place is None:
            return whole  # Arrow put it together in memory of its own, and it is as wanted
        columns = self._room(number, table.num_rows if read_order is None else len(read_order))
        if whole is not None:
            self._permute(whole, read_order, columns)
        else:
            for values, out in zip(self._each(stack, table), columns, strict=True):
                _lay(values, read_order, out)
        return columns

    def _permute(self, whole: NDArray[Any], read_order: NDArray[np.int64] | None, out: NDArray[Any]) -> None:
        if read_order is None:
            np.copyto(out, whole)
        elif out.flags.c_contiguous:
            np.take(whole, read_order, axis=1, out=out, mode="clip")
        elif out[0].nbytes >= _LONG_COLUMN_BYTES:
            for values, column in zip(whole, out, strict=True):
                np.take(values, read_order, axis=0, out=column, mode="clip")
        else:
            permuted = self.loader.buffers.empty(out.shape, out.dtype)
            np.take(whole, read_order, axis=1, out=permuted, mode="clip")
            np.copyto(out, permuted)

    def _each(self, stack: Stack, table: pa.Table) -> list[NDArray[Any] | None]:
        """The values of each column of a stack; None for those that are not there, or become cells."""
        columns: list[NDArray[Any] | None] = []
        for name in stack.names:
            decoded, stored = None, self.loader.columns.get(name)
            if stored is not None:
                chunk = _only_chunk(table.column(name))
                decoded = stored.values(chunk)
                if decoded is None:
                    self.cells[name] = chunk
                elif decoded.missing is not None:
                    self.loading.missing[name] = decoded.missing
            columns.append(None if decoded is None else _with_zeros(decoded))
        return columns


def _lay(values: NDArray[Any] | None, read_order: NDArray[np.int64] | None, out: NDArray[Any]) -> None:
    if values is None:
        return
    if read_order is None or values.dtype != out.dtype:
        np.copyto(out, values if read_order is None else values[read_order])
    else:
        np.take(values, read_order, axis=0, out=out, mode="clip")


def _with_zeros(column: Decoded) -> NDArray[Any]:
    """The values, with zeros where they are missing."""
    if column.missing is None:
        return column.values
    values = column.values.copy()
    values[column.missing] = np.zeros((), values.dtype)
    return values


def _pieces(tables: Iterator[pa.Table], rows: int) -> Iterator[Any]:
    """The arrays of the next tables, which are of one column, until they have so many rows."""
    given = 0
    while True:
        piece = _only_chunk(next(tables).column(0))
        given += len(piece)
        yield piece
        if given >= rows:
            return


def at_least(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The tables of a row group; who asks for more of them than there are is told that rows are lacking.

    Raises:
        DecodeError: In the place of `StopIteration`, which would end whatever iterates.

    Example:
        >>> tables = at_least(iter([pa.table({"id": [1]})]), 2)
        >>> next(tables).num_rows
        1
        >>> next(tables)
        Traceback (most recent call last):
        petastore.errors.DecodeError: it ends before it has given the 2 rows that were planned for each of its columns
    """
    yield from tables
    raise DecodeError(f"it ends before it has given the {rows:,} rows that were planned for each of its columns")


def _check_no_more(tables: Iterator[pa.Table], rows: int) -> None:
    if next(tables, None) is not None:
        raise DecodeError(f"it goes on after it has given the {rows:,} rows that were planned for each of its columns")


def _only_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
