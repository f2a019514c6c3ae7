"""Cells that were moved are the same cells, in memory of the caller's, and what they came in is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.readers.loaded.moved_cells import moved_cells


@given(
    st.lists(st.lists(st.binary(max_size=5) | st.none()), min_size=1),
    st.sampled_from([pa.binary(), pa.string(), pa.large_binary(), pa.large_string()]),
    st.integers(0, 3),
)
def test_moved_cells_are_the_same_in_memory_of_the_callers(
    values: list[list[Any]], kind: pa.DataType, first: int
) -> None:
    cells = [[None if cell is None else cell.hex()[:5].encode() for cell in piece] for piece in values]
    pieces = [pa.array(piece, pa.binary()).cast(kind).slice(first) for piece in cells]
    rows = sum(map(len, pieces))
    given: list[NDArray[Any]] = []

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        given.append(np.empty(shape, dtype))
        return given[-1]

    moved = moved_cells(iter(pieces), rows, empty)
    moved.validate(full=True)
    assert moved.equals(pa.concat_arrays(pieces))
    if rows:
        ours = {array.ctypes.data for array in given}
        assert {buffer.address for buffer in moved.buffers()[1:] if buffer.size} <= ours


def test_pieces_are_let_go_of_one_by_one() -> None:
    alive: list[int] = []

    def pieces() -> Iterator[pa.Array]:
        pool = pa.default_memory_pool()
        before = pool.bytes_allocated()
        for _ in range(5):
            alive.append(pool.bytes_allocated() - before)
            yield pa.array([b"x" * 100_000])

    moved_cells(pieces(), 5, np.empty)
    assert max(alive) < 150_000


def test_cells_that_do_not_lie_side_by_side_stay_where_they_are() -> None:
    lists = pa.array([[1, 2], []])
    assert moved_cells(iter([lists]), 2, np.empty) is lists
    assert moved_cells(iter([lists, lists]), 4, np.empty).to_pylist() == [[1, 2], [], [1, 2], []]


@pytest.mark.parametrize("first", [pa.string(), pa.large_string(), pa.null()])
@pytest.mark.parametrize("second", [pa.string(), pa.large_string(), pa.null()])
def test_pieces_of_other_types_are_cast(first: pa.DataType, second: pa.DataType) -> None:
    pieces = [pa.nulls(2, kind) if pa.types.is_null(kind) else pa.array(["ab", "c"], kind) for kind in (first, second)]
    moved = moved_cells(iter(pieces), 4, np.empty)
    moved.validate(full=True)
    assert moved.to_pylist() == [cell for piece in pieces for cell in piece.to_pylist()]
