"""Tests of `UnischemaField`: normalized dtype and shape, validation, equality, immutability, repr."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs import NdarrayCodec, ScalarCodec
from petastore.errors import SchemaError
from petastore.schema import UnischemaField
from petastore.schema.dtypes import canonical_dtype, dtype_from_name, dtype_name

NAMES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "str", "bytes", "object", "decimal", "datetime64[D]", "datetime64[ns]",
    "timedelta64[us]", "timedelta64[25s]",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_field_dtype_round_trips_by_name(name: str) -> None:
    assert dtype_name(dtype_from_name(name)) == name
    field = UnischemaField("x", dtype_from_name(name))
    assert field.dtype_name == name
    assert UnischemaField("x", dtype_from_name(field.dtype_name)) == field


@pytest.mark.parametrize(
    ("spellings", "canonical"),
    [
        ([int, "int64", "<i8", ">i8", np.int64, np.dtype("i8"), "longlong", np.longlong, "q"], np.int64),
        ([float, "f8", np.float64, "double"], np.float64),
        ([bool, "?", np.bool_], np.bool_),
        ([str, np.str_, "U5", "str"], np.str_),
        ([bytes, np.bytes_, "S5", "bytes"], np.bytes_),
        ([Decimal, "decimal"], Decimal),
        ([object, "O"], np.object_),
        ([">M8[us]", "datetime64[us]"], np.dtype("datetime64[us]")),
        (["datetime64", np.datetime64], np.datetime64),
        (["ulonglong", "Q", np.uint64], np.uint64),
    ],
)
def test_field_dtype_is_normalized(spellings: list[Any], canonical: Any) -> None:
    for spelling in spellings:
        found = canonical_dtype(spelling)
        assert found is canonical or found == canonical
        assert UnischemaField("x", spelling) == UnischemaField("x", canonical)
        assert hash(UnischemaField("x", spelling)) == hash(UnischemaField("x", canonical))


@pytest.mark.parametrize(
    "bad", [None, "no dtype", "i4,i4", "(2,)i4", np.dtype([("a", "i4")]), "V8", [1], 5, "M8[parsec]"]
)
def test_invalid_dtype_raises_with_the_field(bad: Any) -> None:
    with pytest.raises(SchemaError, match="field 'x'"):
        UnischemaField("x", bad)


@given(name=st.text(max_size=16) | st.text("biufcSUmMVOde0123456789,()[]<>|=: 'nsuDY", max_size=14))
def test_any_dtype_name_round_trips_or_raises_schema_error(name: str) -> None:
    try:
        found = dtype_from_name(name)
    except SchemaError:
        return
    assert dtype_from_name(dtype_name(found)) == found


def test_datetime_without_unit_means_microseconds() -> None:
    field = UnischemaField("t", np.datetime64)
    assert field.dtype == np.dtype("datetime64[us]")
    assert field == UnischemaField("t", "datetime64[us]")
    assert UnischemaField("t", np.timedelta64).dtype == np.dtype("timedelta64[us]")


@pytest.mark.parametrize("shape", [[2, None], (np.int64(2), None), iter((2, None)), (size for size in (2, None))])
def test_field_shape_is_a_tuple_of_ints(shape: Any) -> None:
    field = UnischemaField("x", "int32", shape)
    assert field.shape == (2, None)
    assert type(field.shape[0]) is int


@pytest.mark.parametrize("shape", ["23", b"23", 3, (2.0,), (-1,), (True,), ("2",), None])
def test_invalid_shape_raises(shape: Any) -> None:
    with pytest.raises(SchemaError, match="field 'x'"):
        UnischemaField("x", "int32", shape)


@pytest.mark.parametrize("name", [None, 5, b"x"])
def test_field_name_must_be_text(name: Any) -> None:
    with pytest.raises(SchemaError, match="name must be text, got"):
        UnischemaField(name, "int32")


@pytest.mark.parametrize("codec", [NdarrayCodec, "ndarray", 5, object()])
def test_field_codec_without_the_codec_methods_raises(codec: Any) -> None:
    with pytest.raises(
        SchemaError,
        match=r"field 'x': codec must be an object such as petastore\.codecs\.NdarrayCodec\(\), or None, got",
    ):
        UnischemaField("x", "int32", (2,), codec)


def test_decoded_bytes_is_none_for_fields_of_variable_size() -> None:
    assert UnischemaField("x", "float32", (4, 3)).decoded_bytes == 48
    assert UnischemaField("x", "bool").decoded_bytes == 1
    assert UnischemaField("x", "float32", (0, 3)).decoded_bytes == 0
    for free in (UnischemaField("x", "float32", (None, 3)), UnischemaField("x", str), UnischemaField("x", Decimal)):
        assert free.decoded_bytes is None


def test_is_fixed_is_false_for_text_arrays_and_variable_shapes() -> None:
    assert UnischemaField("x", str).is_fixed
    assert not UnischemaField("x", str, (2,)).is_fixed
    assert UnischemaField("x", "int32", (2, 0)).is_fixed
    assert not UnischemaField("x", "int32", (2, None)).is_fixed


def test_field_equality_compares_every_attribute() -> None:
    fields = [
        UnischemaField("x", "int32"), UnischemaField("y", "int32"), UnischemaField("x", "int64"),
        UnischemaField("x", "int32", (2,)), UnischemaField("x", "int32", (2,), NdarrayCodec()),
        UnischemaField("x", "int32", (), ScalarCodec("bigint")), UnischemaField("x", "int32", (), None, True),
    ]  # fmt: skip
    assert len(set(fields)) == len(fields)
    assert fields == pickle.loads(pickle.dumps(fields))  # noqa: S301 - our own bytes
    assert fields[0] != "x"


@pytest.mark.parametrize(
    ("dtype", "spark_type"),
    [("int32", "int"), ("uint8", "smallint"), (np.str_, "string"), ("float64", "double"), (bool, "boolean")],
)
def test_field_with_an_implied_codec_equals_one_without(dtype: Any, spark_type: str) -> None:
    said, unsaid = UnischemaField("x", dtype, (), ScalarCodec(spark_type)), UnischemaField("x", dtype)
    assert said == unsaid
    assert hash(said) == hash(unsaid)
    assert UnischemaField("x", np.str_, (), ScalarCodec("varchar(9)")) != UnischemaField("x", np.str_)


def test_field_is_immutable() -> None:
    with pytest.raises(AttributeError):
        UnischemaField("x", "int32").name = "y"  # type: ignore[misc]


def test_repr_shows_non_default_attributes() -> None:
    assert repr(UnischemaField("x", "int32")) == "UnischemaField('x', int32)"
    assert repr(UnischemaField("x", "int32", (2,), NdarrayCodec(), True)) == (
        "UnischemaField('x', int32, (2,), NdarrayCodec(), nullable=True)"
    )
