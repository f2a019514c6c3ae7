"""Tests of single scalars: exact round trip or an error, for declared types, stored types and list items."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.codecs.arrow.scalars import (
    InexactError,
    decode_scalar,
    describe,
    encode_scalar,
    exact_number,
    exact_time,
    nested_values,
)
from petastore.errors import DecodeError, EncodeError

NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.decimals(allow_nan=True) | st.booleans()
DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "bool", "float32", "float64"]


@given(NUMBERS, st.sampled_from(DTYPES))
def test_number_round_trips_exactly_or_raises(number: Any, dtype: str) -> None:
    try:
        found = exact_number(number, np.dtype(dtype))
    except InexactError:
        return
    assert found.dtype == dtype
    if dtype.startswith("float"):
        nearest = np.dtype(dtype).type(float(number))
        assert found == nearest or (math.isnan(found) and math.isnan(number))
        assert math.isinf(found) <= math.isinf(number)
    else:
        assert int(found) == number


@pytest.mark.parametrize(
    ("number", "dtype", "said"),
    [
        (300, "uint8", "the value must be from 0 to 255, the range of uint8"),
        (3.7, "int32", "the value must be an integer"),
        (math.nan, "int32", "the value must be finite"),
        (Decimal("1e999999"), "int64", "too large"),
        (2, "bool", "True, False, 1 or 0"),
        (1.0, "bool", "True, False, 1 or 0"),
        (2**53 + 1, "float64", "cannot hold this integer exactly"),
        (1e39, "float32", "too large for float32"),
        (10**400, "float64", "too large"),
        (Decimal("sNaN"), "int32", "the value must be finite"),
        (Decimal("sNaN"), "float64", "signaling NaN"),
        ("3", "int32", "the value must be a number"),
        (None, "int32", "the value must be a number"),
    ],
)
def test_inexact_number_raises_with_the_reason(number: Any, dtype: str, said: str) -> None:
    with pytest.raises(InexactError, match=said):
        exact_number(number, np.dtype(dtype))


@pytest.mark.parametrize(
    ("time", "dtype", "said"),
    [
        (np.datetime64("NaT", "s"), "datetime64[s]", "NaT"),
        (np.timedelta64(3), "timedelta64[s]", "the time must have a unit"),
        (np.datetime64(1, "ns"), "datetime64[us]", "cannot hold this time exactly"),
        (np.datetime64("2500-01-01", "s"), "datetime64[ns]", "cannot hold this time exactly"),
        (dt.timedelta(1), "datetime64[s]", "the value must be a date or time"),
        (dt.date(2026, 1, 1), "timedelta64[s]", "the value must be a duration"),
        (7, "datetime64[s]", "the value must be a date or time"),
    ],
)
def test_inexact_time_raises_with_the_reason(time: Any, dtype: str, said: str) -> None:
    with pytest.raises(InexactError, match=said):
        exact_time(time, np.dtype(dtype))


def test_times_with_a_zone_are_converted_to_utc() -> None:
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert exact_time(noon, np.dtype("datetime64[h]")) == np.datetime64("2026-01-01T10")


@pytest.mark.parametrize(
    ("dtype", "value", "stored", "cell"),
    [
        (np.str_, "ä", pa.string(), "ä"),
        (np.str_, "ä", pa.binary(), "ä".encode()),
        (np.bytes_, b"ab", pa.string(), "ab"),
        (np.bytes_, "ab", pa.string(), "ab"),
        (np.bytes_, memoryview(b"ab"), pa.binary(), b"ab"),
        ("uint8", 7, pa.int16(), 7),
        ("float32", np.float32(3.7), pa.decimal128(9, 2), Decimal("3.70")),
        ("uint64", 2**64 - 1, pa.decimal128(20, 0), Decimal(2**64 - 1)),
        (Decimal, 3, pa.decimal128(9, 1), Decimal("3.0")),
        ("timedelta64[ms]", dt.timedelta(seconds=1), pa.int64(), 1000),
        ("datetime64[D]", dt.date(2026, 1, 2), pa.date32(), dt.date(2026, 1, 2)),
        (
            "datetime64[us]",
            np.datetime64("2026-01-02", "us"),
            pa.timestamp("us", "UTC"),
            dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        ),
        ("int32", np.array(7), pa.int32(), 7),
    ],
)
def test_scalar_round_trips_through_its_cell(dtype: Any, value: Any, stored: pa.DataType, cell: Any) -> None:
    field = UnischemaField("x", dtype)
    found = encode_scalar(field, value, stored)
    assert (found, type(found)) == (cell, type(cell))
    assert encode_scalar(field, decode_scalar(field, cell), stored) == cell


@pytest.mark.parametrize(
    ("dtype", "value", "stored", "said"),
    [
        (
            "int32",
            None,
            pa.int32(),
            "column 'x': the value must not be None, because a codec encodes only values that exist. For a missing",
        ),
        (
            "int32",
            "3",
            pa.int32(),
            "column 'x': str '3' cannot be written as int32 stored as int32: the value must be a number",
        ),
        (
            np.str_,
            3,
            pa.string(),
            "column 'x': int 3 cannot be written as str stored as string: the value must be text",
        ),
        (np.bytes_, b"\xff", pa.string(), "the bytes must be valid UTF-8"),
        (np.str_, "\ud800", pa.string(), "lone surrogate"),
        (
            Decimal,
            3.7,
            pa.decimal128(9, 1),
            r"column 'x': float 3\.7 cannot be written as decimal stored as decimal128\(9, 1\): the value must be a",
        ),
        (Decimal, Decimal("NaN"), pa.decimal128(9, 1), "must be finite"),
        (
            Decimal,
            Decimal("0.25"),
            pa.decimal128(9, 1),
            r"column 'x': Decimal Decimal\('0\.25'\) cannot be written as decimal stored as decimal128\(9, 1\):",
        ),
        (
            Decimal,
            Decimal(10**8),
            pa.decimal128(9, 1),
            r"column 'x': Decimal Decimal\('100000000'\) cannot be written as decimal stored as decimal128\(9,",
        ),
        ("datetime64[s]", np.datetime64("-0005-01-01", "s"), pa.timestamp("us"), "years 1 to 9999"),
        (
            np.object_,
            {},
            pa.string(),
            r"column 'x': dict \{\} cannot be written as object stored as string: Arrow has no type for object",
        ),
    ],
)
def test_scalar_that_loses_precision_raises(dtype: Any, value: Any, stored: pa.DataType, said: str) -> None:
    with pytest.raises(EncodeError, match=said) as caught:
        encode_scalar(UnischemaField("x", dtype), value, stored)
    assert caught.value.column == "x"


@pytest.mark.parametrize(
    ("dtype", "cell", "said"),
    [
        ("uint8", 300, "the cell int 300 cannot be read as uint8: the value must be from 0 to 255, the range of uint8"),
        (np.str_, b"\xff", "the bytes must be valid UTF-8"),
        (Decimal, "three", "the text must be a decimal number"),
        (Decimal, "Infinity", "must be finite"),
        ("timedelta64[s]", True, "the value must be a duration"),
    ],
)
def test_scalar_cell_of_the_wrong_type_raises_when_decoded(dtype: Any, cell: Any, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode_scalar(UnischemaField("x", dtype), cell)


def test_description_of_an_invalid_value_in_errors_is_short() -> None:
    assert describe(np.zeros((2, 3), np.int8)) == "an array of int8 with shape (2, 3)"
    assert describe(7) == "int 7"
    assert describe("x" * 999).endswith("x...")
    assert len(describe("x" * 999)) == len("str ") + 60


@given(st.lists(st.lists(st.integers(), min_size=3, max_size=3), max_size=4))
def test_nested_lists_flatten_to_values_and_shape(rows: list[list[int]]) -> None:
    assert nested_values(rows, 2) == ([each for row in rows for each in row], (len(rows), 3 if rows else 0))
    assert nested_values(rows, 1) == (rows, (len(rows),))


@pytest.mark.parametrize(("value", "depth"), [([[1], [2, 3]], 2), ([1, [2]], 2), (7, 1), ("ab", 1), ([[1]], 3)])
def test_ragged_nested_lists_raise(value: Any, depth: int) -> None:
    with pytest.raises(InexactError, match="lists"):
        nested_values(value, depth)
