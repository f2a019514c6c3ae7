"""Tests of `ScalarCodec`: codec laws, and exact round trips or errors, without truncation."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from petastore.codecs import ScalarCodec
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import Case, empty_column
from tests.codecs.measured_laws import MeasuredCodecLaws


def field_of(dtype: Any, spark_type: Any) -> UnischemaField:
    return UnischemaField("x", dtype, (), ScalarCodec(spark_type))


class TestScalarLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        small = st.integers(0, 127)
        return {
            "boolean": Case(field_of(bool, "boolean"), st.booleans(), ["True", 2, 1.0]),
            "tinyint": Case(field_of("uint8", "tinyint"), small.map(np.uint8), [128, -1, "1", 0.5]),
            "smallint": Case(field_of("uint8", "smallint"), hnp.from_dtype(np.dtype("uint8")), [256, -1]),
            "int": Case(field_of("int32", "int"), hnp.from_dtype(np.dtype("int32")), [3.7, 2**31, "3", [3], b"3"]),
            "bigint": Case(field_of("int64", "bigint"), hnp.from_dtype(np.dtype("int64")), [2**63, 1e300, np.nan]),
            "unsigned": Case(
                field_of("uint64", "decimal(20,0)"), hnp.from_dtype(np.dtype("uint64")), [-1, 2**64, Decimal("0.5")]
            ),
            "float": Case(field_of("float32", "float"), hnp.from_dtype(np.dtype("float32")), [1e300, "1", 2**24 + 1]),
            "double": Case(field_of("float32", "double"), hnp.from_dtype(np.dtype("float32")), ["nan", 1e39]),
            "money": Case(
                field_of(Decimal, "decimal(10,4)"),
                st.decimals(-999_999, 999_999, places=4),
                [Decimal("0.00001"), Decimal(10**6), 3.7, "3.7", True, Decimal("Infinity")],
            ),
            "decimal_text": Case(
                field_of(Decimal, "string"), st.decimals(allow_nan=False, allow_infinity=False), [Decimal("sNaN"), 1.5]
            ),
            "string": Case(field_of(str, "string"), st.text(), [5, b"5", "\udc80"]),
            "varchar": Case(field_of(str, "varchar(3)"), st.text(max_size=3), ["four"]),
            "utf8": Case(field_of(bytes, "string"), st.text().map(str.encode), [b"\xff", "\ud800", 7]),
            "binary": Case(field_of(bytes, "binary"), st.binary(), ["text"]),
            "binary_text": Case(field_of(str, "binary"), st.text(), [b"bytes"]),
            "date": Case(
                field_of("datetime64[D]", "date"),
                st.dates().map(lambda date: np.datetime64(date, "D")),
                ["2026-01-01", np.datetime64("2026-01-01T01")],
            ),
            "timestamp": Case(
                field_of("datetime64[us]", "timestamp"),
                st.datetimes().map(lambda time: np.datetime64(time, "us")),
                [5, np.datetime64("2026-01-01T00:00:00.000000001"), np.datetime64("12000-01-01")],
            ),
            "timestamp_ntz": Case(
                field_of("datetime64[s]", "timestamp_ntz"),
                st.datetimes().map(lambda time: np.datetime64(time, "s")),
                [np.datetime64("2026-01-01T00:00:00.5")],
            ),
        }

    def golden_folder(self) -> Path:
        return Path(__file__).parent / "golden" / "scalar"

    def golden_values(self, name: str) -> Sequence[Any]:
        values: dict[str, list[Any]] = {
            "boolean": [True, False],
            "tinyint": [0, 127],
            "smallint": [0, 255],
            "int": [-(2**31), 7, 2**31 - 1],
            "bigint": [-(2**63), 7, 2**63 - 1],
            "unsigned": [0, 2**64 - 1],
            "float": [np.float32(0.1), np.float32("-inf")],
            "double": [np.float32(0.1), np.float32("nan")],
            "money": [Decimal("3.7035"), Decimal("-999999.9999"), Decimal(0)],
            "decimal_text": [Decimal("1E+40"), Decimal("-0.1")],
            "string": ["", "título 深い"],
            "varchar": ["", "深い深"],
            "utf8": [b"", "深".encode()],
            "binary": [b"", b"\x00\xff"],
            "binary_text": ["", "深"],
            "date": [np.datetime64("0001-01-01"), np.datetime64("9999-12-31")],
            "timestamp": [np.datetime64("1969-12-31T23:59:59.999999")],
            "timestamp_ntz": [np.datetime64("2026-02-28T23:59:59")],
        }
        return values[name]


@pytest.mark.parametrize(
    ("dtype", "spark_type", "value", "cell"),
    [
        ("int32", "int", 3.0, 3),
        ("int32", "int", np.array(3), 3),
        ("int32", "int", True, 1),
        ("int32", "int", Decimal("3.00"), 3),
        ("float64", "double", 3, 3.0),
        ("float64", "double", Decimal("0.1"), 0.1),
        ("bool", "boolean", np.bool_(True), True),
        ("bool", "boolean", 0, False),
        ("float64", "decimal(10,2)", 3.7, Decimal("3.70")),
        ("float32", "decimal(10,2)", np.float32(3.7), Decimal("3.70")),
        ("int16", "decimal(10,2)", 5, Decimal("5.00")),
        (Decimal, "decimal(10,2)", 5, Decimal("5.00")),
        (str, "string", np.str_("a"), "a"),
        (bytes, "binary", bytearray(b"a"), b"a"),
        ("datetime64[us]", "timestamp_ntz", dt.date(2026, 1, 1), dt.datetime(2026, 1, 1)),  # noqa: DTZ001
        ("datetime64[us]", "timestamp", dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        ("timedelta64[s]", "bigint", dt.timedelta(minutes=1), 60),
    ],
)
def test_scalar_codec_accepts_equal_values(dtype: Any, spark_type: str, value: Any, cell: Any) -> None:
    field = field_of(dtype, spark_type)
    assert field.codec is not None
    found = field.codec.encode(field, value)
    assert found == cell
    assert type(found) is type(cell)
    assert field.codec.encode_column([value], field).to_pylist() == [cell]


@pytest.mark.parametrize("value", [3.7, 2**31, -(2**31) - 1, "3", b"3", float("nan"), Decimal("3.5"), None, [3], 3j])
def test_scalar_codec_never_truncates_to_int(value: Any) -> None:
    field = field_of("int32", "int")
    with pytest.raises(EncodeError) as caught:
        field.codec.encode(field, value)  # type: ignore[union-attr]
    assert caught.value.column == "x"


def test_scalar_codec_checks_the_range_of_the_dtype() -> None:
    field = field_of("uint8", "int")
    with pytest.raises(EncodeError, match="the value must be from 0 to 255, the range of uint8"):
        field.codec.encode(field, 300)  # type: ignore[union-attr]


@given(
    number=st.floats(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False),
    spark_type=st.sampled_from(["tinyint", "smallint", "int", "bigint", "decimal(12,3)", "double"]),
    dtype=st.sampled_from(["int8", "uint16", "int64", "uint64", "float64"]),
)
def test_scalar_codec_round_trips_or_raises(number: Any, spark_type: str, dtype: str) -> None:
    field = field_of(dtype, spark_type)
    assert field.codec is not None
    try:
        cell = field.codec.encode(field, number)
    except EncodeError:
        return
    if isinstance(number, Decimal) or spark_type.startswith("decimal"):
        # Decimals become the nearest double, and doubles the shortest decimal that converts back to them.
        assert float(cell) == float(number)
    else:
        assert cell == number
    assert field.codec.decode(field, cell) == np.dtype(dtype).type(number)


def test_scalar_codec_accepts_text_for_bytes_stored_as_text() -> None:
    field = UnischemaField("noun_id", np.bytes_, (), ScalarCodec("string"))
    assert field.codec is not None
    assert field.codec.encode(field, "n01") == field.codec.encode(field, b"n01") == "n01"
    cells = field.codec.encode_column(["n01", b"n02", None], field)
    assert cells.to_pylist() == ["n01", "n02", None]
    assert field.codec.decode(field, "n01") == b"n01"
    with pytest.raises(
        EncodeError,
        match="column 'raw': str 'n01' cannot be written as bytes stored as binary: the value must be bytes",
    ):
        ScalarCodec("binary").encode(UnischemaField("raw", np.bytes_, (), ScalarCodec("binary")), "n01")


def test_scalar_codec_raises_for_text_longer_than_varchar() -> None:
    field = field_of(str, "varchar(2)")
    with pytest.raises(EncodeError, match=r"at most 2 characters for varchar\(2\), got 3") as caught:
        field.codec.encode_column([None, "ab", "abc"], field)  # type: ignore[union-attr]
    assert caught.value.row == 2


def test_scalar_codec_raises_for_lone_surrogates_with_the_row() -> None:
    field = field_of(str, "string")
    with pytest.raises(EncodeError) as caught:
        field.codec.encode_column(["a", "\ud800"], field)  # type: ignore[union-attr]
    assert caught.value.row == 1


def test_scalar_codec_raises_for_text_that_is_not_a_decimal() -> None:
    field = field_of(Decimal, "string")
    for bad in ("x", "NaN", ""):
        with pytest.raises(DecodeError) as caught:
            field.codec.decode_column(pa.array(["1.5", bad]), field, empty_column(field, 2))  # type: ignore[union-attr]
        assert caught.value.row == 1


@pytest.mark.parametrize(
    ("dtype", "shape", "spark_type"),
    [
        ("int32", (3,), "int"),
        ("int32", (), "string"),
        (str, (), "int"),
        (Decimal, (), "double"),
        ("datetime64[us]", (), "bigint"),
        ("timedelta64[us]", (), "timestamp"),
        ("complex64", (), "float"),
        ("longdouble", (), "double"),
        (object, (), "string"),
    ],
)
def test_scalar_codec_raises_for_fields_that_do_not_fit(dtype: Any, shape: tuple[int, ...], spark_type: str) -> None:
    with pytest.raises(SchemaError, match="field 'x'"):
        UnischemaField("x", dtype, shape, ScalarCodec(spark_type))


def test_scalar_codecs_of_equal_types_are_equal() -> None:
    from pyspark.sql import types

    spellings: list[Any] = [types.IntegerType(), types.IntegerType, "int", "Integer", pa.int32()]
    assert {ScalarCodec(spelling) for spelling in spellings} == {ScalarCodec("int")}
    assert ScalarCodec("int") != ScalarCodec("bigint")
    assert ScalarCodec(types.DecimalType(10, 4)) == ScalarCodec("decimal( 10, 4 )")
