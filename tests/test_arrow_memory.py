"""Arrow's memory seen by NumPy, and the other way round, is what the libraries' own conversions give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.arrow_memory import arrow_numbers, flags_of, moved_cells, numbers_of

TYPES = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]


@given(st.lists(st.integers(0, 100)), st.sampled_from(TYPES), st.integers(0, 9), st.integers(0, 9))
def test_numbers_are_those_of_the_array_slices_included(
    values: list[int], stored: pa.DataType, first: int, count: int
) -> None:
    part = pa.array(values, stored).slice(min(first, len(values)), count)
    found = numbers_of(part)
    assert found.tolist() == part.to_pylist()
    assert found.dtype == part.to_numpy().dtype
    assert arrow_numbers(found).equals(part)


@given(st.lists(st.booleans() | st.none()), st.integers(0, 20), st.integers(0, 20))
def test_flags_are_those_of_the_array_slices_included(values: list[bool | None], first: int, count: int) -> None:
    part = pa.array(values, pa.bool_()).slice(min(first, len(values)), count)
    assert flags_of(part.is_null()).tolist() == part.is_null().to_pylist()
    present = part.drop_null()
    assert flags_of(present).tolist() == present.to_pylist()


def test_memory_is_shared() -> None:
    values = np.arange(10)
    found = numbers_of(arrow_numbers(values))
    assert found.ctypes.data == values.ctypes.data


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
