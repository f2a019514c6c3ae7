"""Tests of encoding a scalar column: equal to encoding each value, including the row of the first error."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.codecs.arrow.numpy_to_arrow import cells_array, encode_each, encode_scalars
from petastore.codecs.arrow.scalars import encode_scalar
from petastore.errors import EncodeError

KINDS: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    ("uint8", pa.int16(), st.integers(0, 255)),
    ("int64", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("int64", pa.decimal128(10, 0), st.integers(-(10**10), 10**10)),
    ("uint64", pa.decimal128(20, 0), st.integers(0, 2**64 - 1)),
    ("float32", pa.float32(), st.floats(width=32, allow_nan=False)),
    ("bool", pa.bool_(), st.booleans()),
    (np.str_, pa.string(), st.text()),
    (Decimal, pa.decimal128(9, 2), st.decimals(-(10**7), 10**7, places=2)),
    ("datetime64[us]", pa.timestamp("us"), st.integers(-(10**18), 10**18).map(lambda us: np.datetime64(us, "us"))),
    ("datetime64[D]", pa.date32(), st.integers(-(10**6), 10**6).map(lambda day: np.datetime64(day, "D"))),
    ("timedelta64[ms]", pa.int64(), st.integers(-(10**12), 10**12).map(lambda ms: np.timedelta64(ms, "ms"))),
]
"""A dtype, its stored type, and a strategy for values, some of which cannot be stored."""


def one_by_one(values: Any, field: UnischemaField, stored: pa.DataType) -> pa.Array | int:
    """Encode each value; return the column, or the row of the first value that is rejected."""
    try:
        return encode_each(values, lambda field, value: encode_scalar(field, value, stored), stored, field)
    except EncodeError as problem:
        return -1 if problem.row is None else problem.row


@given(st.sampled_from(KINDS), st.data(), st.booleans())
def test_scalars_encoded_as_a_column_equal_scalars_encoded_singly(
    kind: Any, data: st.DataObject, with_nulls: bool
) -> None:
    dtype, stored, values = kind
    field = UnischemaField("x", dtype)
    drawn = data.draw(st.lists(values | st.none() if with_nulls else values, max_size=6))
    forms: list[Any] = [drawn]
    if not with_nulls and field.dtype.kind != "O" and drawn:
        forms.append(np.array(drawn, dtype=field.dtype))
    expected = one_by_one(drawn, field, stored)
    for form in forms:
        try:
            found = encode_scalars(form, field, stored)
        except EncodeError as problem:
            found = problem.row
        assert found == expected if isinstance(expected, int) else found.equals(expected)


def test_masked_values_become_null_when_encoded() -> None:
    masked = np.ma.masked_array(np.array([1, 2, 300]), [False, True, False])
    assert encode_scalars(masked, UnischemaField("x", "int64"), pa.int64()).to_pylist() == [1, None, 300]
    with pytest.raises(EncodeError) as caught:
        encode_scalars(masked, UnischemaField("x", "uint8"), pa.int16())
    assert caught.value.row == 2


@pytest.mark.parametrize("values", [[], [None, None], np.empty(0, np.int64)], ids=["none", "nulls", "array"])
def test_encoding_no_values_returns_an_empty_typed_column(values: Any) -> None:
    found = encode_scalars(values, UnischemaField("x", "int64"), pa.int32())
    assert (found.type, len(found), found.null_count) == (pa.int32(), len(values), len(values))


def test_dates_after_year_9999_raise_with_their_row_when_encoded() -> None:
    days = np.array(["2026-01-01", "10000-01-01"], "datetime64[D]")
    with pytest.raises(EncodeError, match="years 1 to 9999") as caught:
        encode_scalars(days, UnischemaField("x", "datetime64[D]"), pa.date32())
    assert caught.value.row == 1


def test_cells_that_do_not_fit_the_arrow_type_raise_encode_error() -> None:
    field = UnischemaField("x", np.bytes_)
    assert cells_array([b"a", None], pa.binary(), field).to_pylist() == [b"a", None]
    with pytest.raises(EncodeError, match="cannot be stored as int8"):
        cells_array([300], pa.int8(), field)
    with pytest.raises(EncodeError, match="cannot be stored as binary"):
        cells_array([object()], pa.binary(), field)
