"""Columns that are not stacked: cells as they are stored, decoded for the rows of a batch where they are wanted.

Of five ways the first that fits is taken: partition values, of which each row group has one; stacks, which some row
groups have of a column and others not; values of a free shape that all have one, copied once into one array; files,
decoded where they lie; and cells, brought together as one Arrow column.
Rows that are decoded alike are decoded in one go.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers
from petastore.codecs.registry import codec_of
from petastore.decoding.buffers import Buffers
from petastore.decoding.cell_sizes import measuring_face, refuse_large_cells, refuse_large_values
from petastore.decoding.decode import Decoded, decode_into, empty_column
from petastore.errors import DecodeError
from petastore.plan.batches.spans import each_once
from petastore.plan.order.grouped_rows import GroupedRows, places_by_key
from petastore.readers.assembly.laying import Laying
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.row_group import LoadedRowGroup
from petastore.schema.codec import BytesCodec
from petastore.schema.field import UnischemaField

__all__ = ["ColumnSource", "EncodedCells", "EncodedColumn", "Origin"]

_LARGE_ROW_BYTES = 4096
"""From so many bytes a row, rows are copied one by one: a call costs less than copying them twice."""

Origin: TypeAlias = Callable[[NDArray[Any], NDArray[np.int64]], tuple[NDArray[Any], NDArray[np.int64]]]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ColumnSource:
    """How one dataset has a column."""

    field: UnischemaField
    """The column, with the codec of the dataset."""

    partition_values: Any = None
    """A `pyarrow.Array` with the stored value of each row group, of all datasets; None where files hold the column."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class EncodedColumn:
    """How the datasets that are read as one have a column; mostly there is one."""

    sources: tuple[ColumnSource, ...]
    """One for each dataset; the same object for those that have it alike."""

    first_groups: Sequence[int] = (0,)
    """The number of the first row group of each dataset."""

    @classmethod
    def of(cls, field: UnischemaField, partition_values: Any = None) -> Self:
        """A column of one dataset."""
        return cls((ColumnSource(field, partition_values),))

    @property
    def has_partition_values(self) -> bool:
        """Whether any of the datasets does not have it in its files."""
        return any(source.partition_values is not None for source in self.sources)

    def way_of(self, group: int, row_group: LoadedRowGroup) -> _Way:
        """How the cells of a row group are decoded."""
        source = self.sources[bisect.bisect_right(self.first_groups, group) - 1]
        if source.partition_values is not None:
            return _Way(source, None)
        cells = row_group.cells.get(source.field.name)
        return _Way(source, None if cells is None else cells.type)


class _Way(NamedTuple):
    """How cells are decoded."""

    source: ColumnSource
    """What has them."""

    stored: Any
    """Their Arrow type; None where they are stacked, or values of partitions."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class EncodedCells:
    """The cells of row groups at hand, to be decoded. Thread-safe."""

    loaded: Mapping[int, LoadedRowGroup]
    """The row groups."""

    layout: Layout
    """How they are kept."""

    origin: Origin
    """Where rows lie in the datasets that are named otherwise in row groups at hand."""

    max_cell_bytes: int | None
    """Bytes that a cell may take once it is decoded; None is no limit."""

    buffers: Buffers = dataclasses.field(default_factory=Buffers)
    """Where memory comes from of values that all have one shape."""

    def decode(self, column: EncodedColumn, picked: GroupedRows, out: Decoded) -> None:
        """The rows of a column that is not stacked in all of the row groups.

        Args:
            column: The column.
            picked: The rows that are wanted, in order; without runs.
            out: Is written.

        Raises:
            DecodeError: `row` is the position among the rows that are wanted.
        """
        groups = each_once(picked).tolist()
        way_of_each = [column.way_of(group, self.loaded[group]) for group in groups]
        if all(way == way_of_each[0] for way in way_of_each):  # Arrow types are compared faster than hashed
            self._decode(way_of_each[0], picked, groups, out)
            return
        ways: dict[_Way, list[int]] = {}
        for group, way in zip(groups, way_of_each, strict=True):
            ways.setdefault(way, []).append(group)
        for way, of_way in ways.items():
            where = np.flatnonzero(np.isin(picked.groups, of_way))
            rows = GroupedRows(picked.groups[where], picked.rows[where], None)
            missing = None if out.missing is None else np.zeros(len(where), np.bool_)
            made = Decoded(empty_column(way.source.field, len(where)), missing)
            try:
                self._decode(way, rows, of_way, made)
            except DecodeError as problem:
                problem.row = None if problem.row is None else int(where[problem.row])
                raise
            out.values[where] = made.values
            if out.missing is not None:
                out.missing[where] = missing

    def _decode(self, way: _Way, picked: GroupedRows, distinct: Sequence[int], out: Decoded) -> None:
        """Rows that are decoded alike, of these row groups."""
        field, codec = way.source.field, codec_of(way.source.field)
        if way.source.partition_values is not None:
            groups, _ = self.origin(picked.groups, picked.rows)
            values = way.source.partition_values.take(arrow_numbers(groups))
            decode_into(values, field, codec, out, max_cell_bytes=None)
            return
        if way.stored is None:
            self._take_stacked(field.name, picked, out)
            return
        of_groups = {group: self.loaded[group] for group in distinct}
        self._refuse_large(field, picked, of_groups)
        alike = _alike(field.name, of_groups)
        if alike is not None:
            _put_alike(alike, picked, self.buffers, out.values)
            return
        if not all(field.name in row_group.files for row_group in of_groups.values()):
            columns = {group: row_group.cells[field.name] for group, row_group in of_groups.items()}
            cells = Laying(picked).of_cells().cells(columns)
            decode_into(cells, field, codec, out, max_cell_bytes=self.max_cell_bytes)
            return
        files = {group: row_group.files[field.name] for group, row_group in of_groups.items()}
        cells = [files[group][row] for group, row in zip(picked.groups.tolist(), picked.rows.tolist(), strict=True)]
        try:
            cast("BytesCodec", codec).decode_bytes(cells, field, out.values)
            if out.values.dtype.hasobject and measuring_face(codec) is None:
                refuse_large_values(out.values, field, self.max_cell_bytes)
        except DecodeError as problem:
            raise problem.at(column=field.name) from problem.__cause__

    def _refuse_large(
        self, field: UnischemaField, picked: GroupedRows, of_groups: Mapping[int, LoadedRowGroup]
    ) -> None:
        name, most = field.name, self.max_cell_bytes
        if most is None or all(row_group.largest.get(name, 0) <= most for row_group in of_groups.values()):
            return
        sizes = np.zeros(picked.num_rows, np.int64)
        for group, where in places_by_key(picked.groups):
            if name in of_groups[group].sizes:
                sizes[where] = of_groups[group].sizes[name][picked.rows[where]]
        refuse_large_cells(sizes, field, most)

    def _take_stacked(self, name: str, picked: GroupedRows, out: Decoded) -> None:
        """Rows of row groups that have the column stacked."""
        number, place = self.layout.places[name]
        for group, where in places_by_key(picked.groups):
            rows, row_group = picked.rows[where], self.loaded[group]
            moved = row_group.places if self.layout.stacks[number].in_read_order else None
            out.values[where] = row_group.stacks[number][place][rows if moved is None else moved[rows]]
            if out.missing is not None and name in row_group.missing:
                out.missing[where] = row_group.missing[name][rows]


def _alike(name: str, of_groups: Mapping[int, LoadedRowGroup]) -> dict[int, NDArray[Any]] | None:
    """The values of a column in each of some row groups, if all arrays have one shape; else None."""
    viewed = {group: row_group.alike[name] for group, row_group in of_groups.items() if name in row_group.alike}
    kinds = {(values.shape[1:], values.dtype) for values in viewed.values()}
    return viewed if len(viewed) == len(of_groups) and len(kinds) == 1 else None


def _put_alike(viewed: Mapping[int, NDArray[Any]], picked: GroupedRows, buffers: Buffers, out: NDArray[Any]) -> None:
    """Rows of columns whose arrays all have one shape; they become parts of one array, whose memory is used again."""
    first = next(iter(viewed.values()))
    values = buffers.empty((len(out), *first.shape[1:]), first.dtype.newbyteorder("="))
    are_large = values[:1].nbytes >= _LARGE_ROW_BYTES
    for group, where in places_by_key(picked.groups):
        rows, of_group = picked.rows[where], viewed[group]
        if are_large:
            for place, row in zip(where.tolist(), rows.tolist(), strict=True):
                values[place] = of_group[row]
        else:
            values[where] = of_group[rows]
    out[:] = np.fromiter(values, np.object_, count=len(out))
