"""Tests of zero-copy views of binary cells in every Arrow binary type, including slices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs.arrow.arrow_views import byte_cells, equal_cells_array, offsets_of
from petastore.errors import DecodeError
from petastore.schema import UnischemaField

FIELD = UnischemaField("x", bytes)


def in_layout(cells: pa.Array, layout: str) -> pa.Array:
    if layout == "dictionary":
        return cells.dictionary_encode()
    if layout == "run ends":
        return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(cells) + 1), pa.int32()), cells)
    if layout == "extension":
        return pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "x", "y"), cells)
    return cells.cast(
        {"large": pa.large_binary(), "view": pa.binary_view(), "fixed": pa.binary(3)}.get(layout, cells.type)
    )


@pytest.mark.parametrize("layout", ["binary", "large", "view", "fixed", "dictionary", "run ends", "extension"])
@given(data=st.data())
def test_views_of_binary_cells_equal_the_bytes_for_every_arrow_binary_type(layout: str, data: st.DataObject) -> None:
    size = st.just(3) if layout == "fixed" else st.integers(0, 20)
    values = [b"ab" * 10 for _ in range(data.draw(st.integers(1 if layout == "run ends" else 0, 6)))]
    values = [value[: data.draw(size)] for value in values]
    cells = in_layout(pa.array(values, pa.binary()), layout)
    first = data.draw(st.integers(0, len(values)))
    found = byte_cells(cells.slice(first), FIELD)
    assert [found[row].tobytes() for row in range(len(found))] == values[first:]
    sizes = {len(value) for value in values[first:]}
    if found.even_size is not None:
        assert sizes == {found.even_size}
    elif layout in ("binary", "large", "fixed"):
        assert len(sizes) != 1


@given(
    st.lists(st.text(max_size=5) | st.none()),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_byte_offsets_are_correct_for_slices(
    values: list[str | None], stored: pa.DataType, first: int, count: int
) -> None:
    part = pa.array(values, pa.string()).cast(stored).slice(min(first, len(values)), count)
    offsets, there = offsets_of(part), part.is_valid().to_pylist()
    data = b"" if part.buffers()[2] is None else part.buffers()[2].to_pybytes()
    cut = [data[offsets[row] : offsets[row + 1]] for row in range(len(part))]
    wanted = part.cast(pa.large_binary()).to_pylist()
    assert [cell for cell, is_there in zip(cut, there, strict=True) if is_there] == [
        cell for cell in wanted if cell is not None
    ]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
@given(st.lists(st.lists(st.integers(0, 9), max_size=3)), st.integers(0, 9), st.integers(0, 9))
def test_list_offsets_are_correct_for_slices(
    make: Callable[[pa.DataType], pa.DataType], values: list[list[int]], first: int, count: int
) -> None:
    part = pa.array(values, make(pa.int8())).slice(min(first, len(values)), count)
    offsets, numbers = offsets_of(part), part.values.to_pylist()
    assert [numbers[offsets[row] : offsets[row + 1]] for row in range(len(part))] == part.to_pylist()


@pytest.mark.parametrize("cells", [pa.array([b"a", None]), pa.array([1, 2]), pa.array([[b"a"]])])
def test_view_of_bytes_raises_for_columns_that_are_not_binary(cells: pa.Array) -> None:
    with pytest.raises(DecodeError) as refused:
        byte_cells(cells, FIELD)
    assert refused.value.column == "x"


def test_uint8_rows_become_arrow_binary_cells_zero_copy() -> None:
    data = np.arange(6, dtype=np.uint8).reshape(2, 3)
    cells = equal_cells_array(data, FIELD)
    assert cells.to_pylist() == [b"\x00\x01\x02", b"\x03\x04\x05"]
    assert cells.buffers()[2].address == data.ctypes.data
