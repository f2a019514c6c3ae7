"""Columns become one array, whichever way they lie; and those of whose cells some are refused do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from petastore import UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.codecs.registry import BoundCodec
from petastore.decoding.buffers import Buffers
from petastore.readers.loaded.layout import Stack
from petastore.readers.loaded.stacking import Stacked, Stacking


def stacking(*fields: UnischemaField) -> Stacking:
    return Stacking({field.name: BoundCodec.of(field) for field in fields}, Buffers())


@pytest.mark.parametrize("columns", [2, 6])  # looked at one by one, and as one array
@pytest.mark.parametrize("read_order", [None, [3, 0, 2]])
@pytest.mark.parametrize("wide", [None, 9])
def test_columns_are_laid_in_read_order_in_the_room_that_they_are_given(
    columns: int, read_order: list[int] | None, wide: int | None
) -> None:
    names = tuple(f"c{number}" for number in range(columns))
    stack, rows = Stack(names, np.dtype(np.int32), ()), np.arange(4)
    table = pa.table({name: pa.array(100 * number + rows, pa.int32()) for number, name in enumerate(names)})
    room = None if wide is None else np.full((columns, wide), -1, np.int32)
    order = None if read_order is None else np.array(read_order)
    made = stacking(*(UnischemaField(name, "int32") for name in names)).stacked(stack, table, order, room)
    wanted = rows if order is None else order
    assert made.values.tolist() == (100 * np.arange(columns)[:, None] + wanted).tolist()
    assert (made.missing, made.not_stacked) == ({}, {})
    if room is not None:
        assert np.shares_memory(made.values, room)
        assert (room[:, len(wanted) :] == -1).all()


def test_missing_values_are_zeros_and_refused_ones_leave_their_column_as_cells() -> None:
    fields = [UnischemaField("a", "int32", (), None, True), UnischemaField("b", "int32"), UnischemaField("c", "int32")]
    table = pa.table({"a": pa.array([7, None], pa.int32()), "b": pa.array([1, None], pa.int32())})
    made = stacking(*fields[:2]).stacked(Stack(("a", "b", "c"), np.dtype(np.int32), ()), table, np.array([1, 0]), None)
    assert made.values[0].tolist() == [0, 7]
    assert made.missing["a"].tolist() == [False, True]
    assert {name: cells.to_pylist() for name, cells in made.not_stacked.items()} == {"b": [1, None]}


def piece_by_piece(cells: list[bytes | None], *, nullable: bool = False) -> tuple[Stacked, list[Any]]:
    """What becomes of cells that come two at a time, and which tables are left."""
    field = UnischemaField("x", "float32", (3,), NdarrayCodec(), nullable)
    pieces = iter([pa.table({"x": pa.array(cells[at : at + 2], pa.binary())}) for at in range(0, len(cells), 2)])
    stack = Stack(("x",), np.dtype(np.float32), (3,))
    made = stacking(field).stacked_piece_by_piece(stack, pieces, len(cells), None)
    return made, list(pieces)


def test_long_rows_come_piece_by_piece() -> None:
    field = UnischemaField("x", "float32", (3,), NdarrayCodec())
    cells = [NdarrayCodec().encode(field, np.full(3, row, np.float32)) for row in range(5)]
    made, left = piece_by_piece(list(cells))
    assert made.values[0, :, 1].tolist() == [0, 1, 2, 3, 4]
    assert (made.missing, made.not_stacked, left) == ({}, {}, [])
    made, left = piece_by_piece([cells[0], None, cells[2]], nullable=True)
    assert (made.missing["x"].tolist(), made.not_stacked, left) == ([False, True, False], {}, [])
    made, left = piece_by_piece([b"damaged", None, cells[2]], nullable=True)
    assert (made.missing, made.not_stacked, left) == ({}, {"x": None}, [])
