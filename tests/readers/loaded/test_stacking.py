"""Tests of stacking columns in one array: read order, long rows in parts, and columns with invalid values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from petastore import UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.decoding.buffers import Buffers
from petastore.readers.loaded.arena import Arena, Layout, Stack
from petastore.readers.loaded.row_group_reader import LoadedRowGroup, RowGroupReader
from petastore.storage.row_groups.asked_columns import Part


def loaded(
    stack: Stack,
    fields: Sequence[UnischemaField],
    table: pa.Table,
    order: NDArray[np.int64] | None = None,
    wide: int | None = None,
    asked: list[Part] | None = None,
) -> LoadedRowGroup:
    """Load a row group with one stack, in an arena of `wide` rows or in separately allocated arrays."""

    def read(parts: Sequence[Part]) -> Iterator[pa.Table]:
        for part in parts:
            if asked is not None:
                asked.append(part)
            step = part.rows_at_once or table.num_rows
            for first in range(0, table.num_rows, step):
                yield table.select(list(part.columns)).slice(first, step).combine_chunks()

    layout = Layout((stack,), ())
    arena = None if wide is None else Arena(layout, wide, Buffers())
    reader = RowGroupReader(layout, {field.name: field for field in fields}, Buffers())
    return reader.load(table.num_rows, order, read, arena)


@pytest.mark.parametrize("columns", [2, 6])  # viewed one by one, and as one array
@pytest.mark.parametrize("read_order", [None, [3, 0, 2]])
@pytest.mark.parametrize("wide", [None, 9])
def test_stacking_copies_columns_in_read_order(columns: int, read_order: list[int] | None, wide: int | None) -> None:
    names = tuple(f"c{number}" for number in range(columns))
    stack, rows = Stack(names, np.dtype(np.int32), (), in_read_order=True), np.arange(4)
    table = pa.table({name: pa.array(100 * number + rows, pa.int32()) for number, name in enumerate(names)})
    order = None if read_order is None else np.array(read_order)
    made = loaded(stack, [UnischemaField(name, "int32") for name in names], table, order, wide)
    wanted = rows if order is None else order
    assert made.place.stacks[0][:, : len(wanted)].tolist() == (100 * np.arange(columns)[:, None] + wanted).tolist()
    assert (made.missing, made.cells) == ({}, {})
    if wide is not None:
        assert not made.place.stacks[0][:, len(wanted) :].any()


def test_stacking_leaves_columns_with_invalid_values_encoded() -> None:
    fields = [UnischemaField("a", "int32", (), None, True), UnischemaField("b", "int32")]
    table = pa.table({"a": pa.array([7, None], pa.int32()), "b": pa.array([1, None], pa.int32())})
    stack = Stack(("a", "b", "c"), np.dtype(np.int32), (), in_read_order=True)
    made = loaded(stack, fields, table, np.array([1, 0]))
    assert made.place.stacks[0][0].tolist() == [0, 7]
    assert made.missing["a"].tolist() == [False, True]
    assert {name: cells.to_pylist() for name, cells in made.cells.items()} == {"b": [1, None]}


def piece_by_piece(cells: list[bytes | None], *, nullable: bool = False) -> tuple[LoadedRowGroup, list[Any]]:
    """Load cells of long rows; return the row group, and how many rows each read requested at once."""
    field = UnischemaField("x", "float32", (3,), NdarrayCodec(), nullable)
    stack, asked = Stack(("x",), np.dtype(np.float32), (3,)), list[Part]()
    vars(stack)["rows_at_once"] = 2
    made = loaded(stack, [field], pa.table({"x": pa.array(cells, pa.binary())}), asked=asked)
    return made, [part.rows_at_once for part in asked]


def test_stacking_reads_long_rows_in_parts() -> None:
    field = UnischemaField("x", "float32", (3,), NdarrayCodec())
    cells = [NdarrayCodec().encode(field, np.full(3, row, np.float32)) for row in range(5)]
    made, asked = piece_by_piece(list(cells))
    assert made.place.stacks[0][0, :, 1].tolist() == [0, 1, 2, 3, 4]
    assert (made.missing, made.cells, asked) == ({}, {}, [2])
    made, asked = piece_by_piece([cells[0], None, cells[2]], nullable=True)
    assert (made.missing["x"].tolist(), made.cells, asked) == ([False, True, False], {}, [2])


def test_stacking_leaves_long_rows_encoded_if_one_is_damaged() -> None:
    field = UnischemaField("x", "float32", (3,), NdarrayCodec())
    cell = NdarrayCodec().encode(field, np.zeros(3, np.float32))
    made, asked = piece_by_piece([b"damaged", None, cell], nullable=True)
    assert made.missing == {}
    assert made.cells["x"].to_pylist() == [b"damaged", None, cell]
    assert len(asked) == 2
