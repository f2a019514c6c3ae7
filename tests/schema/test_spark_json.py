"""Tests of naming stored types in Spark's JSON format."""

from __future__ import annotations

import pyarrow as pa
import pytest

from petastore.errors import SchemaError
from petastore.schema.spark_json import spark_schema_json


def test_spark_json_types_equal_pysparks() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    schema = pa.schema(
        [
            pa.field("bool", pa.bool_(), False), pa.field("byte", pa.int8(), False), pa.field("short", pa.int16()),
            pa.field("int", pa.int32()), pa.field("long", pa.int64()), pa.field("float", pa.float32()),
            pa.field("double", pa.float64()), pa.field("text", pa.string()), pa.field("bytes", pa.binary()),
            pa.field("date", pa.date32()), pa.field("decimal", pa.decimal128(20, 0)),
            pa.field("instant", pa.timestamp("us", "UTC")), pa.field("local", pa.timestamp("us")),
            pa.field("vector", pa.struct([pa.field("type", pa.int8(), False), pa.field("size", pa.int32())])),
            pa.field("list", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int16(), False)), True))),
            pa.field("map", pa.map_(pa.string(), pa.struct([pa.field("x", pa.int64())]))),
        ]
    )  # fmt: skip
    ours = StructType.fromJson(spark_schema_json(schema))
    assert ours == from_arrow_schema(schema, prefer_timestamp_ntz=True)


@pytest.mark.parametrize(
    "stored", [pa.uint8(), pa.float16(), pa.map_(pa.string(), pa.uint8()), pa.time64("us")], ids=str
)
def test_unsupported_spark_type_raises_with_its_name(stored: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"'x' must have a type that Spark can store"):
        spark_schema_json(pa.schema({"x": stored}))
