"""Encoded columns: cells stay in memory as stored, and are decoded when a batch needs them.

Cells are decoded by the first of these methods that applies:

* Partition column: the row group's value is repeated for each of its rows.
* Column that is decoded in only some of the row groups in memory: their values are copied from the decoded array.
* Files such as images: each file is decoded directly into the batch.
* All other columns: the cells are concatenated into one Arrow column and decoded together.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np

from petastore.arrow import arrow_numbers
from petastore.codecs.registry import codec_of
from petastore.decoding.decode import (
    Decoded,
    decode_into,
    empty_column,
    mask_of_shape,
    measuring_face,
    refuse_large_cells,
    refuse_large_values,
)
from petastore.errors import DecodeError
from petastore.plan.batches.spans import each_once
from petastore.plan.order.grouped_rows import GroupedRows, places_by_key
from petastore.readers.assembly.gather import Origin, cell_gather
from petastore.readers.loaded.arena import Layout
from petastore.readers.loaded.row_group_reader import LoadedRowGroup
from petastore.schema.field import BytesCodec, UnischemaField

__all__ = ["ColumnSource", "EncodedCells", "EncodedColumn"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class ColumnSource:
    """Stored form of a column in one dataset: its field, codec and partition values."""

    field: UnischemaField
    """Field of the column, with the codec of its dataset."""

    partition_values: Any = None
    """A `pyarrow.Array` with one value for each row group of all datasets; None if the files store the column."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class EncodedColumn:
    """Stored form of a column in one dataset, or in several mixed datasets."""

    sources: tuple[ColumnSource, ...]
    """Stored form of the column in each dataset; datasets with equal forms share one object."""

    first_groups: Sequence[int] = (0,)
    """Number of each dataset's first row group, among the row groups of all datasets."""

    @classmethod
    def of(cls, field: UnischemaField, partition_values: Any = None) -> Self:
        """Return the column as it is stored in a single dataset."""
        return cls((ColumnSource(field, partition_values),))

    @property
    def has_partition_values(self) -> bool:
        """Whether the column is a partition column in any of the datasets."""
        return any(source.partition_values is not None for source in self.sources)

    def way_of(self, group: int, row_group: LoadedRowGroup) -> _Way:
        """Return how to decode the cells of one row group.

        Args:
            group: Number of the row group, among the row groups of all datasets.
            row_group: The loaded row group.
        """
        source = self.sources[bisect.bisect_right(self.first_groups, group) - 1]
        if source.partition_values is not None:
            return _Way(source, None)
        cells = row_group.cells.get(source.field.name)
        return _Way(source, None if cells is None else cells.type)


class _Way(NamedTuple):
    """Decoding method of cells."""

    source: ColumnSource
    """Stored form of the column in the dataset to which the cells belong."""

    stored: Any
    """Arrow type of the cells; None if the column is a decoded array in memory, or has partition values."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class EncodedCells:
    """Stored cells of the row groups in memory, decoded when a batch needs them. Thread-safe."""

    loaded: Mapping[int, LoadedRowGroup]
    """Loaded row groups by number."""

    layout: Layout
    """Memory layout of row groups: the columns that share an array, and the columns that stay encoded cells."""

    origin: Origin
    """Function that converts numbers of row groups and rows in memory to their numbers in the datasets."""

    max_cell_bytes: int | None
    """Maximum decoded bytes of a cell; None means no limit."""

    def decode(self, column: EncodedColumn, picked: GroupedRows, out: Decoded) -> None:
        """Decode rows of a column that is a partition column, or stays encoded in at least one of the row groups.

        Args:
            column: Column to decode.
            picked: Rows to decode, in output order; one entry per row, not ranges of rows (runs).
            out: Output array.

        Raises:
            DecodeError: A cell cannot be decoded; `row` is its index in `picked`.
        """
        groups = each_once(picked).tolist()
        way_of_each = [column.way_of(group, self.loaded[group]) for group in groups]
        if all(way == way_of_each[0] for way in way_of_each):  # comparing Arrow types is faster than hashing them
            self._decode(way_of_each[0], picked, groups, out)
            return
        ways: dict[_Way, list[int]] = {}
        for group, way in zip(groups, way_of_each, strict=True):
            ways.setdefault(way, []).append(group)
        for way, of_way in ways.items():
            where = np.flatnonzero(np.isin(picked.groups, of_way))
            rows = GroupedRows(picked.groups[where], picked.rows[where], None)
            missing = None if out.missing is None else np.zeros((len(where), *out.missing.shape[1:]), np.bool_)
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
        """Decode rows of row groups that all have the same decoding method.

        Args:
            way: Decoding method.
            picked: Rows to decode, in output order.
            distinct: Numbers of the row groups of these rows, each once.
            out: Output array.

        Raises:
            DecodeError: A cell cannot be decoded, or is larger than `max_cell_bytes`.
        """
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
        if not all(field.name in row_group.files for row_group in of_groups.values()):
            columns = {group: row_group.cells[field.name] for group, row_group in of_groups.items()}
            cells = cell_gather(picked.groups, picked.rows, columns)
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
        """Copy rows of a column into `out`, if the column was decoded when its row groups were loaded.

        A row group stores its decoded columns of one dtype and shape in one array (stack).
        """
        number, place = self.layout.places[name]
        for group, where in places_by_key(picked.groups):
            rows, row_group = picked.rows[where], self.loaded[group]
            at = row_group.place.places_of(rows, in_read_order=self.layout.stacks[number].in_read_order)
            out.values[where] = row_group.place.stacks[number][place][at]
            if out.missing is not None and name in row_group.missing:
                out.missing[where] = mask_of_shape(row_group.missing[name][rows], out.missing.ndim)
