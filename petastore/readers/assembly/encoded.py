"""Columns that are not stacked: cells as they are stored, decoded for the rows of a batch where they are wanted.

Of four ways the first that fits is taken: partition values, of which each row group has one; files, decoded where they
lie; cells, brought together as one Arrow column; and, where some row groups have the column stacked and others do not,
row group by row group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from petastore.arrow_memory import arrow_numbers
from petastore.codecs.registry import codec_of
from petastore.decoding.cell_sizes import measuring_face, refuse_large_cells, refuse_large_values
from petastore.decoding.decode import Decoded, decode_cells, decode_into
from petastore.errors import DecodeError
from petastore.readers.assembly.gather import Picks
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.row_group import LoadedRowGroup
from petastore.schema.codec import BytesCodec
from petastore.schema.field import UnischemaField

__all__ = ["decode_encoded", "decode_partition_values"]


def decode_partition_values(values: Any, field: UnischemaField, picks: Picks, out: Decoded) -> None:
    """The rows of a partition column.

    Args:
        values: A `pyarrow.Array` with the stored value of each row group of the dataset.
        field: The column.
        picks: The rows that are wanted.
        out: Is written.

    Raises:
        DecodeError: `row` is the position among the rows that are wanted.
    """
    decode_into(values.take(arrow_numbers(picks.groups)), field, codec_of(field), out, max_cell_bytes=None)


def decode_encoded(
    field: UnischemaField,
    picks: Picks,
    loaded: Mapping[int, LoadedRowGroup],
    layout: Layout,
    out: Decoded,
    *,
    max_cell_bytes: int | None,
) -> None:
    """The rows of a column that is not stacked in all of the row groups.

    Args:
        field: The column.
        picks: The rows that are wanted.
        loaded: The row groups that they are of.
        layout: How these are kept.
        out: Is written.
        max_cell_bytes: Bytes that a cell may take once it is decoded; None is no limit.

    Raises:
        DecodeError: `row` is the position among the rows that are wanted.
    """
    name, groups = field.name, picks.picked.distinct.tolist()
    _refuse_large(field, picks, loaded, max_cell_bytes)
    if all(name in loaded[group].files for group in groups):
        files = {group: loaded[group].files[name] for group in groups}
        found = [files[group][row] for group, row in zip(picks.groups.tolist(), picks.rows.tolist(), strict=True)]
        try:
            codec = codec_of(field)
            cast("BytesCodec", codec).decode_bytes(found, field, out.values)
            if out.values.dtype.hasobject and measuring_face(codec) is None:
                refuse_large_values(out.values, field, max_cell_bytes)
        except DecodeError as problem:
            raise problem.at(column=name) from problem.__cause__
    elif all(name in loaded[group].cells for group in groups):
        cells = picks.cells({group: loaded[group].cells[name] for group in groups})
        decode_into(cells, field, codec_of(field), out, max_cell_bytes=max_cell_bytes)
    else:
        _group_by_group(field, picks, loaded, layout, out, max_cell_bytes)


def _refuse_large(
    field: UnischemaField, picks: Picks, loaded: Mapping[int, LoadedRowGroup], max_cell_bytes: int | None
) -> None:
    name = field.name
    groups = picks.picked.distinct.tolist()
    if max_cell_bytes is None or all(loaded[group].largest.get(name, 0) <= max_cell_bytes for group in groups):
        return
    sizes = np.zeros(picks.picked.num_rows, np.int64)
    for group, where in picks.by_group:
        if name in loaded[group].sizes:
            sizes[where] = loaded[group].sizes[name][picks.rows[where]]
    refuse_large_cells(sizes, field, max_cell_bytes)


def _group_by_group(
    field: UnischemaField,
    picks: Picks,
    loaded: Mapping[int, LoadedRowGroup],
    layout: Layout,
    out: Decoded,
    max_cell_bytes: int | None,
) -> None:
    for group, where in picks.by_group:
        rows, row_group = picks.rows[where], loaded[group]
        if field.name in row_group.cells:
            made = _cells(field, row_group.cells[field.name], rows, where, max_cell_bytes)
        else:
            made = _stacked(field.name, row_group, layout, rows)
        out.values[where] = made.values
        if out.missing is not None and made.missing is not None:
            out.missing[where] = made.missing


def _cells(
    field: UnischemaField, column: Any, rows: NDArray[np.int64], where: NDArray[np.int64], max_cell_bytes: int | None
) -> Decoded:
    try:
        return decode_cells(column.take(arrow_numbers(rows)), field, codec_of(field), max_cell_bytes=max_cell_bytes)
    except DecodeError as problem:
        problem.row = None if problem.row is None else int(where[problem.row])
        raise


def _stacked(name: str, row_group: LoadedRowGroup, layout: Layout, rows: NDArray[np.int64]) -> Decoded:
    number, place = layout.places[name]
    missing = row_group.missing.get(name)
    moved = row_group.places if layout.stacks[number].in_read_order else None
    at = rows if moved is None else moved[rows]
    return Decoded(row_group.stacks[number][place][at], None if missing is None else missing[rows])
