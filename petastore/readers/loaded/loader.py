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

from petastore.codecs.registry import BoundCodec
from petastore.decoding.buffers import Buffers
from petastore.errors import DecodeError
from petastore.once import once
from petastore.readers.loaded.arena import Arena, Place
from petastore.readers.loaded.kept_cells import KeptCells
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.row_group import LoadedRowGroup
from petastore.readers.loaded.stacking import Stacked, Stacking
from petastore.schema.field import UnischemaField
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.dictionaries import MOST_BYTES

__all__ = ["PIECE_BYTES", "Read", "RowGroupLoader", "at_least"]

Read: TypeAlias = Callable[[Sequence[Part]], Iterator[pa.Table]]

PIECE_BYTES = 8 * 1024 * 1024
"""Bytes of a row group from which it is read by several workers: with large ones the others would have to wait."""


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

    piece_bytes: int = dataclasses.field(default=PIECE_BYTES, kw_only=True)
    """Bytes of a row group from which several tasks read it."""

    @once
    def columns(self) -> dict[str, BoundCodec]:
        """What each column that the files hold is read by."""
        return {name: BoundCodec.of(field) for name, field in self.fields.items()}

    @once
    def stacking(self) -> Stacking:
        """What makes stacks."""
        return Stacking(self.columns, self.buffers)

    @once
    def kept_cells(self) -> KeptCells:
        """What reads columns that are kept as cells."""
        return KeptCells(self.columns, self.buffers, self.most_bytes)

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
        files = self.kept_cells.files({name: cells[name] for name in whole.files})
        sizes = {name: of_cells[first:stop] for name, of_cells in whole.sizes.items()}
        alike = {name: values[first:stop] for name, values in whole.alike.items()}
        return LoadedRowGroup(stop - first, None, stacks, missing, cells, files, sizes, alike=alike)

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
        tasks = [functools.partial(self._run, loading, piece, ()) for piece in pieces[:-1]]
        tasks.append(functools.partial(self._run, loading, pieces[-1], self.stored_cells))
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
        pieces = max(min(most, sum(sizes) // self.piece_bytes, len(sizes)), 1)
        if pieces == 1:
            return [range(len(sizes))]
        ends = np.cumsum(sizes)
        borders = [int(np.searchsorted(ends, ends[-1] * piece / pieces)) for piece in range(1, pieces)]
        return [range(*pair) for pair in itertools.pairwise([0, *borders, len(sizes)])]

    def _run(self, loading: _Loading, numbers: range, names: Sequence[str]) -> None:
        """A task: reads the stacks of these numbers, and these columns as cells."""
        rows, cells = loading.rows, dict[str, Any]()
        kept = self.kept_cells.parts(names) if names else []
        read_tables = loading.read([*self.parts[numbers.start : numbers.stop], *kept])
        tables = at_least(read_tables, rows)
        for number in numbers:
            stacked = self._stacked(loading, number, tables)
            loading.stacks[number] = stacked.values
            loading.missing.update(stacked.missing)
            cells.update(stacked.not_stacked)
        if kept:
            cells.update(self.kept_cells.read(kept, tables, rows))
        _check_no_more(read_tables, rows)
        if any(column is None for column in cells.values()):
            again = self.kept_cells.whole_parts(name for name, column in cells.items() if column is None)
            cells.update(self.kept_cells.read(again, at_least(loading.read(again), rows), rows))
        loading.cells.update(cells)

    def _stacked(self, loading: _Loading, number: int, tables: Iterator[pa.Table]) -> Stacked:
        """A stack of the next of some tables."""
        stack = self.layout.stacks[number]
        room = None if loading.place is None else loading.place.columns(number)
        if stack.rows_at_once is None:
            read_order = loading.read_order if stack.in_read_order else None
            return self.stacking.stacked(stack, next(tables), read_order, room)
        return self.stacking.stacked_piece_by_piece(stack, tables, loading.rows, room)

    def _loaded(self, made: _Loading) -> LoadedRowGroup:
        stacks = tuple(made.stacks[number] for number in range(len(self.layout.stacks)))
        cells, missing = made.cells, made.missing
        if not cells:
            return LoadedRowGroup(made.rows, made.read_order, stacks, missing, cells, {}, {}, made.place)
        files, sizes = self.kept_cells.files(cells), self.kept_cells.sizes(cells)
        alike = self.kept_cells.alike(cells)
        return LoadedRowGroup(made.rows, made.read_order, stacks, missing, cells, files, sizes, made.place, alike)


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
