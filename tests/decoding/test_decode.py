"""Tests of decoding a column: values, a mask of nulls, and errors with the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.codecs import NdarrayCodec, PlainCodec
from petastore.decoding.decode import Decoded, decode_cells, decode_into
from petastore.errors import DecodeError

NUMBER = UnischemaField("x", "int32", nullable=True)
TEXT = UnischemaField("word", np.str_, nullable=True)


def decoded(cells: pa.Array, field: UnischemaField, codec: Any = None, *, most: int | None = None) -> Decoded:
    return decode_cells(cells, field, codec or PlainCodec(), max_cell_bytes=most)


@given(st.lists(st.integers(-9, 9) | st.none(), max_size=12), st.integers(0, 3))
def test_decoded_number_column_has_zeros_and_a_mask_for_nulls(cells: list[int | None], skipped: int) -> None:
    found = decoded(pa.array(cells, pa.int32())[skipped:], NUMBER)
    cells = cells[skipped:]
    assert found.values.dtype == np.int32
    assert found.values.tolist() == [cell or 0 for cell in cells]
    is_missing = [cell is None for cell in cells]
    assert found.missing is None if not any(is_missing) else found.missing is not None
    assert found.missing is None or found.missing.tolist() == is_missing


@given(st.lists(st.text() | st.none(), max_size=6))
def test_decoded_text_column_has_none_for_nulls(cells: list[str | None]) -> None:
    found = decoded(pa.array(cells, pa.string()), TEXT)
    assert (found.values.tolist(), found.missing) == (cells, None)


def test_null_in_a_non_nullable_field_raises_with_its_row() -> None:
    with pytest.raises(DecodeError, match="Declare the field nullable=True") as caught:
        decoded(pa.array([1, None, None], pa.int32()), UnischemaField("x", "int32"))
    assert (caught.value.row, caught.value.column) == (1, "x")


@pytest.mark.parametrize("before", [[], [None, 7, None]])
def test_value_out_of_range_after_nulls_raises_with_its_row(before: list[Any]) -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(pa.array([*before, 300], pa.int32()), UnischemaField("x", "uint8", nullable=True))
    assert (caught.value.row, caught.value.column) == (len(before), "x")


def test_decoded_arrays_stay_at_their_rows_among_nulls() -> None:
    field = UnischemaField("x", "int16", (2,), NdarrayCodec(), nullable=True)
    cells = pa.array([None, *(NdarrayCodec().encode(field, np.array([n, n], np.int16)) for n in (1, 2)), None])
    out = Decoded(np.full((4, 2), 9, np.int16), np.zeros(4, np.bool_))
    decode_into(cells, field, NdarrayCodec(), out, max_cell_bytes=None)
    assert out.values.tolist() == [[0, 0], [1, 1], [2, 2], [0, 0]]
    assert out.missing is not None
    assert out.missing.tolist() == [True, False, False, True]


def test_cell_above_max_cell_bytes_raises_with_its_row() -> None:
    cells = pa.array(["a", None, "x" * 5000])
    assert decoded(cells, TEXT, most=20_000).values[2] == "x" * 5000
    with pytest.raises(DecodeError, match="max_cell_bytes") as caught:
        decoded(cells, TEXT, most=5000)
    assert (caught.value.row, caught.value.column) == (2, "word")


def test_decoding_no_cells_returns_no_values() -> None:
    assert len(decoded(pa.array([], pa.int32()), NUMBER).values) == 0
