"""Row group reader: loads fixed-size columns as stacked NumPy arrays, and all other columns as Arrow cells.

Numbers, times, and arrays stored as raw values are copied from Arrow's memory into *stacks*: one array for all columns
of a dtype and shape, column after column. The copy takes no additional time overall: Arrow's memory is freed before the
next columns are decoded, so all columns reuse the same few megabytes of memory. The stacks' memory is reused as well
(`petastore.decoding.buffers`), and counted exactly.

Stacks with short rows are stored in the order in which the plan reads them. A shuffled batch has some rows of many row
groups; reading each row at a random index of a column would be a cache miss. The columns are therefore permuted once,
while they are in the CPU cache, so that spans copy contiguous rows.

All other columns stay as stored (JPEG bytes, not pixels). Columns with cells that cannot be decoded also stay as
stored, so that only batches with such a row raise an error.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import flags_of, has_nulls_inside, only_chunk
from petastore.codecs.arrow.arrow_views import ByteCells, byte_cells
from petastore.codecs.registry import BoundCodec
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded, decode_cells, decode_into, decoded_sizes
from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.lazy import once
from petastore.monitoring.activity import Segments, at_work
from petastore.readers.loaded.arena import Arena, Layout, Place, Stack, stacked_array
from petastore.schema.field import UnischemaField
from petastore.storage.row_groups.asked_columns import MOST_BYTES, Part

__all__ = ["PIECE_BYTES", "LoadedRowGroup", "Read", "RowGroupReader", "at_least", "placed", "wrong_row_count"]

Read: TypeAlias = Callable[[Sequence[Part]], Iterator[pa.Table]]

_Made = TypeVar("_Made")

PIECE_BYTES = 8 * 1024 * 1024
"""Bytes of fixed-size columns per task: several workers read a larger row group, instead of waiting for one worker."""

_FEW_COLUMNS = 4
"""Minimum columns of a stack (array of columns) that one Arrow call converts together. NumPy copies fewer columns one
by one, because the Arrow call releases the GIL and must then wait for it."""


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedRowGroup:
    """Columns in memory of one row group, or of several row groups that were loaded together. Immutable."""

    rows: int
    """Number of rows."""

    place: Place
    """Memory of the fixed-size columns. Values of columns that are also in `cells` are arbitrary in this memory."""

    missing: Mapping[str, NDArray[np.bool_]]
    """Masks of the missing values of fixed-size columns, by column name, shape (rows,)."""

    cells: Mapping[str, Any]
    """Encoded columns by name: each a `pyarrow.Array` of all rows."""

    files: Mapping[str, ByteCells]
    """Bytes of each cell, for columns without nulls whose codec decodes bytes directly into the batch (images)."""

    sizes: Mapping[str, NDArray[np.int64]]
    """Decoded bytes of each value in variable-size columns, shape (rows,)."""

    in_file_order: bool = True
    """Whether the plan reads the rows in file order."""

    members: Mapping[int, int] | None = None
    """First row of each row group, by row group number, ascending by row, if several row groups were loaded together;
    None for one row group."""

    @once
    def _nulls_inside(self) -> dict[str, bool]:
        """Cached results of `has_nulls_inside`, by column name."""
        return {}

    def has_nulls_inside(self, name: str) -> bool:
        """Return whether the lists of an encoded column contain nulls; False for other columns."""
        known = self._nulls_inside.get(name)
        if known is None:
            known = self._nulls_inside[name] = name in self.cells and has_nulls_inside(self.cells[name])
        return known

    @once
    def largest(self) -> Mapping[str, int]:
        """Bytes of the largest value of each variable-size column."""
        return {name: int(sizes.max(initial=0)) for name, sizes in self.sizes.items()}

    @once
    def total_bytes(self) -> Mapping[str, int]:
        """Bytes of all values of each variable-size column."""
        return {name: int(sizes.sum()) for name, sizes in self.sizes.items()}


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Reading:
    """State of a row group that is being read; each of the concurrent tasks adds different columns."""

    rows: int
    read_order: NDArray[np.int64] | None
    read: Read
    place: Place | None
    """Range of rows in the shared arrays of the arena; None if the row group has separate arrays."""
    stacks: dict[int, NDArray[Any]] = dataclasses.field(default_factory=dict)
    missing: dict[str, NDArray[np.bool_]] = dataclasses.field(default_factory=dict)
    cells: dict[str, Any] = dataclasses.field(default_factory=dict)
    """A `pyarrow.Array` of all rows, by column name; None if the column must be read again."""


@dataclasses.dataclass(frozen=True)
class RowGroupReader:
    """Reads row groups into memory. Thread-safe."""

    layout: Layout
    """Layout in memory: columns that are stored in arrays (stacks), and columns that stay encoded cells."""

    fields: Mapping[str, UnischemaField]
    """Columns that the files store, with the codec of this dataset."""

    buffers: Buffers
    """Allocator of memory for arrays of columns (stacks)."""

    most_bytes: int = dataclasses.field(default=MOST_BYTES, kw_only=True)
    """Maximum decoded bytes of a dictionary-encoded column in one row group; more raise an error."""

    piece_bytes: int = dataclasses.field(default=PIECE_BYTES, kw_only=True)
    """Bytes of fixed-size columns per task; a larger row group is divided into several tasks."""

    @once
    def columns(self) -> dict[str, BoundCodec]:
        """Codec of each column that the files store."""
        return {name: BoundCodec.of(field) for name, field in self.fields.items()}

    @once
    def parts(self) -> list[Part]:
        """For each stack (array of columns), the columns to read from files, and the number of rows to read at once."""
        stacks = self.layout.stacks
        stored = [tuple(name for name in stack.names if name in self.fields) for stack in stacks]
        return [
            Part(names, stack.rows_at_once, most_bytes=self.most_bytes)
            for names, stack in zip(stored, stacks, strict=True)
        ]

    @once
    def stored_cells(self) -> tuple[str, ...]:
        """Names of columns that stay encoded cells in memory and are decoded for each batch."""
        return tuple(name for name in self.layout.encoded if name in self.fields)

    def load(
        self, rows: int, read_order: NDArray[np.int64] | None, read: Read, arena: Arena | None = None
    ) -> LoadedRowGroup:
        """Read a row group in the calling thread, some columns at a time.

        Args:
            rows: Number of rows in the row group.
            read_order: Distinct rows in read order; None means file order.
            read: Function from parts (sets of columns) to the tables with these columns.
            arena: Arena (shared arrays) for the fixed-size columns, if enough rows are free; None uses separate arrays.
        """
        tasks, finish = self.loading(rows, read_order, read, arena)
        for task in tasks:
            task()
        return finish()

    def loading(
        self, rows: int, read_order: NDArray[np.int64] | None, read: Read, arena: Arena | None = None, *, most: int = 1
    ) -> tuple[Sequence[Callable[[], None]], Callable[[], LoadedRowGroup]]:
        """Return the tasks that read a row group, each for different columns.

        Args:
            rows: Number of rows in the row group.
            read_order: Distinct rows in read order; None means file order.
            read: Function from parts (sets of columns) to the tables with these columns.
            arena: Arena (shared arrays) for the fixed-size columns, if enough rows are free; None uses separate arrays.
            most: Maximum number of tasks; small row groups are one task.

        Returns:
            At least one task, each for different columns; any threads may run the tasks in any order. And a function
            that builds the row group, to be called once after all tasks.
        """
        reading = _Reading(rows, read_order, read, None if arena is None else arena.place(rows))
        pieces = self._divided(rows, most)
        # Tasks are divided by the sizes of the arrays (stacks), so a single task, the last, reads all encoded columns.
        tasks = [functools.partial(self._run, reading, piece, ()) for piece in pieces[:-1]]
        tasks.append(functools.partial(self._run, reading, pieces[-1], self.stored_cells))
        return tasks, functools.partial(self._loaded, reading)

    def _divided(self, rows: int, most: int) -> list[range]:
        """Divide the stacks (arrays of columns) into at most `most` ranges with about equal numbers of bytes."""
        sizes = [rows * len(stack.names) * stack.row_bytes for stack in self.layout.stacks]
        pieces = max(min(most, sum(sizes) // self.piece_bytes, len(sizes)), 1)
        if pieces == 1:
            return [range(len(sizes))]
        ends = np.cumsum(sizes)
        borders = [int(np.searchsorted(ends, ends[-1] * piece / pieces)) for piece in range(1, pieces)]
        return [range(*pair) for pair in itertools.pairwise([0, *borders, len(sizes)])]

    def _run(self, reading: _Reading, numbers: range, names: Sequence[str]) -> None:
        """Run one task: fill the arrays with these stack numbers, and read the named columns as encoded cells."""
        rows, cells = reading.rows, dict[str, Any]()
        read_tables = reading.read([*self.parts[numbers.start : numbers.stop], *self._cell_parts(names)])
        tables = at_least(read_tables, rows)
        for number in numbers:
            cells.update(self._stack(reading, number, tables))
        cells.update((name, _chunk(next(tables).column(0))) for name in names)
        if next(read_tables, None) is not None:
            raise wrong_row_count(rows, "more")
        again = [name for name, column in cells.items() if column is None]
        if again:
            tables = at_least(reading.read(self._cell_parts(again)), rows)
            cells.update((name, _chunk(next(tables).column(0))) for name in again)
        reading.cells.update(cells)

    def _cell_parts(self, names: Iterable[str]) -> list[Part]:
        return [Part((name,), most_bytes=self.most_bytes) for name in names]

    def _stack(self, reading: _Reading, number: int, tables: Iterator[pa.Table]) -> dict[str, Any]:
        """Fill one stack (array of all columns of one dtype and shape) from the next tables.

        Returns:
            Columns that cannot be stacked: each as a `pyarrow.Array` of all rows, or None if it must be read again.
        """
        stack, place, read_order = self.layout.stacks[number], reading.place, reading.read_order
        if stack.rows_at_once is not None:
            out = reading.stacks[number] = self._array(stack, reading.rows, place, number)
            return self._fill_by_pieces(stack, tables, reading, out)
        table, order = next(tables), read_order if stack.in_read_order else None
        whole = None if len(stack.names) < _FEW_COLUMNS else stacked_array(stack, table, self.columns)
        if whole is not None and order is None and place is None:
            reading.stacks[number] = whole  # no copy: Arrow has put the columns into new memory, in the right layout
            return {}
        out = self._array(stack, table.num_rows if order is None else len(order), place, number)
        reading.stacks[number] = out
        if whole is None:
            return self._fill_by_columns(stack, table, order, reading, out)
        _permute(whole, order, out)
        return {}

    def _array(self, stack: Stack, rows: int, place: Place | None, number: int) -> NDArray[Any]:
        """Return the uninitialized output array for one stack, shape `(columns, rows, *shape)`."""
        if place is None:
            return self.buffers.empty((len(stack.names), rows, *stack.shape), stack.dtype)
        return place.stack(number)[:, :rows]

    def _fill_by_columns(
        self, stack: Stack, table: pa.Table, order: NDArray[np.int64] | None, reading: _Reading, out: NDArray[Any]
    ) -> dict[str, Any]:
        """Copy each column of a table to the array of a stack (columns of one dtype and shape).

        Args:
            stack: Names, dtype and shape of the columns.
            table: Table with all rows of the row group.
            order: Rows to copy, in output order; None copies all rows in file order.
            reading: State of the row group, which gets the masks of missing values.
            out: Output array.

        Returns:
            Cells of the columns that the array cannot hold, by name.
        """
        not_stacked = {}
        for name, of_column in zip(stack.names, out, strict=True):
            bound = self.columns.get(name)
            if bound is None:
                continue
            chunk = _chunk(table.column(name))
            decoded = _decoded(bound, chunk)
            if decoded is None:
                not_stacked[name] = chunk
                continue
            values = decoded.values
            if decoded.missing is not None:
                reading.missing[name] = decoded.missing
                values = values.copy()
                values[decoded.missing] = np.zeros((), values.dtype)
            if order is None or values.dtype != out.dtype:
                np.copyto(of_column, values if order is None else values[order])
            else:
                np.take(values, order, axis=0, out=of_column, mode="clip")
        return not_stacked

    def _fill_by_pieces(
        self, stack: Stack, tables: Iterator[pa.Table], reading: _Reading, out: NDArray[Any]
    ) -> dict[str, Any]:
        """Fill one column of large values, in file order, from tables with a few rows each.

        Return {}, or {name: None} if a value cannot be decoded, so that the column must be read again as cells.
        """
        (name,) = stack.names
        bound, rows = self.columns.get(name), reading.rows
        is_missing = np.zeros(rows, dtype=np.bool_)
        first, is_stacked = 0, True
        while first < rows and bound is not None:
            chunk = _chunk(next(tables).column(0))
            where = slice(first, first + len(chunk))
            is_stacked = is_stacked and _decode_to(bound, chunk, Decoded(out[0, where], is_missing[where]))
            first = where.stop
        if rows == 0 or bound is None:
            next(tables)
        if not is_stacked:
            return {name: None}
        if is_missing.any():
            reading.missing[name] = is_missing
        return {}

    def _loaded(self, made: _Reading) -> LoadedRowGroup:
        place, cells, read_order = made.place, made.cells, made.read_order
        if place is None:
            stacks = tuple(made.stacks[number] for number in range(len(self.layout.stacks)))
            is_reordered = read_order is not None and self.layout.reorders_rows
            place = Place(0, made.rows, stacks, np.empty(made.rows, np.int32) if is_reordered else None)
        if place.places is not None:
            place.write_order(read_order)
        files, sizes = cells_in_place(self.columns, cells), cell_sizes(self.columns, cells)
        return LoadedRowGroup(made.rows, place, made.missing, cells, files, sizes, read_order is None)


def placed(task: Callable[[], _Made], *, place: tuple[DataFile, int], log: Segments, group: int) -> _Made:
    """Run a task that reads a row group, and return its result; log its time, and add the file to its errors.

    Args:
        task: Function to call.
        place: File of the row group, and the row group's number in the file.
        log: Log of the time that decoding takes.
        group: Number of the row group, for the log.
    """
    with at_work(log, "decoding", (group,)):
        try:
            return task()
        except DecodeError as problem:
            raise problem.at(file=place[0].path, row_group=place[1]) from problem.__cause__


def at_least(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the tables of a row group; raise an error if the caller then requests another table.

    Args:
        tables: Tables with the rows of the row group.
        rows: Number of rows that the footer declares, for the error message.

    Raises:
        DecodeError: Rows are missing. The error replaces a `StopIteration`, which would silently end the calling loop.

    Example:
        >>> tables = at_least(iter([pa.table({"id": [1]})]), 2)
        >>> next(tables).num_rows
        1
        >>> next(tables)
        Traceback (most recent call last):
        petastore.errors.DecodeError: the row group must have 2 rows in each column, as its footer declares, got
            fewer. Restore the file from a copy, or write it again
    """
    yield from tables
    raise wrong_row_count(rows, "fewer")


def wrong_row_count(rows: int, got: Literal["fewer", "more"]) -> DecodeError:
    """Return the error of a row group whose columns have fewer or more rows than its footer declares."""
    return DecodeError(
        f"the row group must have {rows:,} rows in each column, as its footer declares, got {got}. Restore the file "
        "from a copy, or write it again"
    )


def _permute(whole: NDArray[Any], order: NDArray[np.int64] | None, out: NDArray[Any]) -> None:
    """Copy the columns of an array into `out`, with rows in the given order; None keeps the file order."""
    if order is None:
        np.copyto(out, whole)
    else:
        for values, column in zip(whole, out, strict=True):
            np.take(values, order, axis=0, out=column, mode="clip")


def _chunk(column: pa.ChunkedArray) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else only_chunk(column)


def _decoded(bound: BoundCodec, chunk: Any) -> Decoded | None:
    """Return all values of a column; None if a value cannot be decoded, or if decoding needs more than a copy."""
    field = bound.field
    if bound.view is None or (chunk.null_count and not field.nullable):
        return None
    viewed = bound.view(chunk)
    if viewed is not None:
        return Decoded(viewed, flags_of(chunk.is_null()) if chunk.null_count else None)
    if not field.is_scalar or not (pa.types.is_primitive(chunk.type) or pa.types.is_boolean(chunk.type)):
        return None
    try:
        return decode_cells(chunk, field, bound.codec, max_cell_bytes=None)
    except DecodeError:
        return None


def _decode_to(bound: BoundCodec, chunk: Any, out: Decoded) -> bool:
    """Decode some rows of a column into the output array; return False if a value cannot be decoded."""
    viewed = None if bound.view is None or chunk.null_count else bound.view(chunk)
    if viewed is not None:
        np.copyto(out.values, viewed)
        return True
    try:
        decode_into(chunk, bound.field, bound.codec, out, max_cell_bytes=None)
    except DecodeError:
        return False
    return True


def cells_in_place(columns: Mapping[str, BoundCodec], cells: Mapping[str, pa.Array]) -> dict[str, ByteCells]:
    """Return the bytes of each cell, by name of column without nulls whose codec decodes directly into an array."""
    return {
        name: byte_cells(chunk, columns[name].field)
        for name, chunk in cells.items()
        if columns[name].takes_bytes
        and not chunk.null_count
        and (pa.types.is_binary(chunk.type) or pa.types.is_large_binary(chunk.type))
    }


def cell_sizes(columns: Mapping[str, BoundCodec], cells: Mapping[str, pa.Array]) -> dict[str, NDArray[np.int64]]:
    """Return the decoded bytes of each value, shape (rows,), by name of variable-size column."""
    measured = {name: _sizes(columns[name], chunk) for name, chunk in cells.items()}
    return {name: sizes for name, sizes in measured.items() if sizes is not None}


def _sizes(bound: BoundCodec, chunk: pa.Array) -> NDArray[np.int64] | None:
    try:
        return decoded_sizes(chunk, bound.field, bound.codec)
    except DecodeError:
        return None  # the column does not have its declared type: the error is raised when a row is decoded
