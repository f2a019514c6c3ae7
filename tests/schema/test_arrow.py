"""Tests of converting Arrow types to fields and back: all types that Parquet can store, as Spark stores them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.codecs import NdarrayCodec, ScalarCodec
from petastore.errors import SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import field_from_arrow, natural_storage_type, storage_schema, storage_type

STRUCT = pa.struct({"a": pa.int32()})


@pytest.mark.parametrize(
    ("arrow_type", "dtype", "shape"),
    [
        *(
            (pa.type_for_alias(name), name, ())
            for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
        ),
        (pa.bool_(), "bool", ()),
        (pa.float16(), "float16", ()),
        (pa.float32(), "float32", ()),
        (pa.float64(), "float64", ()),
        *((text, str, ()) for text in (pa.string(), pa.large_string(), pa.string_view())),
        *((binary, bytes, ()) for binary in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(5))),
        (pa.decimal128(10, 2), Decimal, ()),
        (pa.decimal256(50, 2), Decimal, ()),
        (pa.date32(), "datetime64[D]", ()),
        (pa.date64(), "datetime64[ms]", ()),
        (pa.timestamp("ns"), "datetime64[ns]", ()),
        (pa.timestamp("us", "Europe/Berlin"), "datetime64[us]", ()),
        (pa.time32("ms"), "timedelta64[ms]", ()),
        (pa.time64("ns"), "timedelta64[ns]", ()),
        (pa.duration("s"), "timedelta64[s]", ()),
        (pa.dictionary(pa.int8(), pa.string()), str, ()),
        (pa.list_(pa.float32()), "float32", (None,)),
        (pa.large_list(pa.string()), str, (None,)),
        (pa.list_view(pa.int8()), "int8", (None,)),
        (pa.list_(pa.float32(), 3), "float32", (3,)),
        (pa.list_(pa.list_(pa.uint16(), 2)), "uint16", (None, 2)),
        (pa.fixed_shape_tensor(pa.int32(), (2, 3)), "int32", (2, 3)),
        (pa.uuid(), bytes, ()),
        (STRUCT, object, ()),
        (pa.map_(pa.string(), pa.int32()), object, ()),
        (pa.list_(STRUCT), object, ()),
        (pa.list_(pa.list_(STRUCT, 2)), object, ()),
    ],
    ids=str,
)
def test_arrow_column_becomes_a_field(arrow_type: pa.DataType, dtype: Any, shape: tuple[int | None, ...]) -> None:
    for nullable in (False, True):
        found = field_from_arrow(pa.field("any name", arrow_type, nullable))
        has_items = pa.types.is_nested(arrow_type) and bool(shape)  # elements may be null
        assert found == UnischemaField("any name", dtype, shape, None, nullable or has_items)


def test_required_list_of_required_items_is_not_nullable() -> None:
    for nullable in (False, True):
        inner = pa.list_(pa.field("item", pa.int8(), nullable))
        stored = pa.field("x", pa.list_(pa.field("item", inner, nullable=False)), nullable=False)
        assert field_from_arrow(stored) == UnischemaField("x", "int8", (None, None), nullable=nullable)


def test_arrow_null_column_has_dtype_object() -> None:
    assert field_from_arrow(pa.field("x", pa.null())) == UnischemaField("x", object, nullable=True)


@pytest.mark.parametrize(
    "arrow_type", [pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int8())])], ids=str
)
def test_unsupported_arrow_type_raises_with_its_name(arrow_type: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="'x'"):
        field_from_arrow(pa.field("x", arrow_type))


@pytest.mark.parametrize(
    ("dtype", "shape", "stored"),
    [
        ("bool", (), pa.bool_()),
        ("uint8", (), pa.int16()),
        ("uint16", (), pa.int32()),
        ("uint32", (), pa.int64()),
        ("uint64", (), pa.decimal128(20, 0)),
        ("longlong", (), pa.int64()),
        ("float16", (), pa.float32()),
        (str, (), pa.string()),
        (bytes, (), pa.binary()),
        (Decimal, (), pa.decimal128(38, 18)),
        ("datetime64[D]", (), pa.date32()),
        ("datetime64", (), pa.timestamp("us")),
        ("datetime64[s]", (), pa.timestamp("us")),
        ("datetime64[ns]", (), pa.timestamp("ns")),
        ("timedelta64[ms]", (), pa.int64()),
    ],
)
def test_field_without_a_codec_is_stored_in_the_type_that_spark_uses(
    dtype: Any, shape: tuple[int, ...], stored: pa.DataType
) -> None:
    assert natural_storage_type(UnischemaField("x", dtype, shape)) == stored
    lists = natural_storage_type(UnischemaField("x", dtype, (2, None)))
    assert lists == pa.list_(pa.field("element", pa.list_(pa.field("element", stored, False)), False))


@pytest.mark.parametrize("dtype", [object, "complex64", "longdouble"])
def test_dtype_without_a_parquet_type_needs_a_codec(dtype: Any) -> None:
    with pytest.raises(SchemaError, match=r"field 'x'.*codec"):
        natural_storage_type(UnischemaField("x", dtype))


def test_codec_decides_the_storage_type() -> None:
    assert storage_type(UnischemaField("x", "int32", (), ScalarCodec("bigint"))) == pa.int64()
    assert storage_type(UnischemaField("x", "int32", (2,), NdarrayCodec())) == pa.binary()


def test_non_nullable_field_is_required_in_the_file(tmp_path: Any) -> None:
    fields = [
        UnischemaField("a", "int32"),
        UnischemaField("b", "int32", nullable=True),
        UnischemaField("c", "int8", (2,)),
    ]
    schema = storage_schema(fields)
    table = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([None], pa.int32()), "c": [[1, 2]]}, schema=schema)
    pq.write_table(table, tmp_path / "x.parquet")
    columns = pq.ParquetFile(tmp_path / "x.parquet").schema
    assert [columns.column(index).max_definition_level for index in range(3)] == [0, 1, 1]


def test_schema_inferred_from_written_columns_has_equal_or_wider_dtypes() -> None:
    schema = Unischema.from_arrow_schema(
        storage_schema([UnischemaField("a", "uint8"), UnischemaField("b", str, (None,))])
    )
    assert schema.a == UnischemaField("a", "int16")
    assert schema.b == UnischemaField("b", str, (None,))
    assert np.can_cast(UnischemaField("a", "uint8").dtype, schema.a.dtype)
