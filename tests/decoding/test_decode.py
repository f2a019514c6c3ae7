"""Cells become values with the missing ones set apart; what is wrong is named by its place among the cells."""

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
def test_values_are_those_of_the_cells_and_what_is_missing_is_zero(cells: list[int | None], skipped: int) -> None:
    found = decoded(pa.array(cells, pa.int32())[skipped:], NUMBER)
    cells = cells[skipped:]
    assert found.values.dtype == np.int32
    assert found.values.tolist() == [cell or 0 for cell in cells]
    is_missing = [cell is None for cell in cells]
    assert found.missing is None if not any(is_missing) else found.missing is not None
    assert found.missing is None or found.missing.tolist() == is_missing


@given(st.lists(st.text() | st.none(), max_size=6))
def test_missing_text_is_none_and_needs_no_mask(cells: list[str | None]) -> None:
    found = decoded(pa.array(cells, pa.string()), TEXT)
    assert (found.values.tolist(), found.missing) == (cells, None)


def test_missing_values_of_a_field_that_has_none_are_refused_by_the_first_of_them() -> None:
    with pytest.raises(DecodeError, match="declare the field nullable=True") as caught:
        decoded(pa.array([1, None, None], pa.int32()), UnischemaField("x", "int32"))
    assert (caught.value.row, caught.value.column) == (1, "x")


@pytest.mark.parametrize("before", [[], [None, 7, None]])
def test_a_bad_cell_is_named_by_its_place_whatever_is_missing_before_it(before: list[Any]) -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(pa.array([*before, 300], pa.int32()), UnischemaField("x", "uint8", nullable=True))
    assert (caught.value.row, caught.value.column) == (len(before), "x")


def test_arrays_with_missing_ones_are_put_into_their_places() -> None:
    field = UnischemaField("x", "int16", (2,), NdarrayCodec(), nullable=True)
    cells = pa.array([None, *(NdarrayCodec().encode(field, np.array([n, n], np.int16)) for n in (1, 2)), None])
    out = Decoded(np.full((4, 2), 9, np.int16), np.zeros(4, np.bool_))
    decode_into(cells, field, NdarrayCodec(), out, max_cell_bytes=None)
    assert out.values.tolist() == [[0, 0], [1, 1], [2, 2], [0, 0]]
    assert out.missing is not None
    assert out.missing.tolist() == [True, False, False, True]


def test_a_cell_that_becomes_too_large_is_refused_by_its_place() -> None:
    cells = pa.array(["a", None, "x" * 5000])
    assert decoded(cells, TEXT, most=20_000).values[2] == "x" * 5000
    with pytest.raises(DecodeError, match="max_cell_bytes") as caught:
        decoded(cells, TEXT, most=5000)
    assert (caught.value.row, caught.value.column) == (2, "word")


def test_no_cells_are_no_values() -> None:
    assert len(decoded(pa.array([], pa.int32()), NUMBER).values) == 0
