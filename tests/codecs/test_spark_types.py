"""Tests of Spark's scalar types by name, without pyspark: names and Arrow types equal pyspark's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from petastore.codecs.scalar import arrow_type_of, max_length_of, simple_type_name
from petastore.errors import SchemaError


def test_spark_types_have_pysparks_names_and_arrow_types() -> None:
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_type

    made: list[Any] = [
        types.BooleanType(), types.ByteType(), types.ShortType(), types.IntegerType(), types.LongType(),
        types.FloatType(), types.DoubleType(), types.StringType(), types.BinaryType(), types.DateType(),
        types.TimestampNTZType(), types.DecimalType(), types.DecimalType(38, 18),
        types.VarcharType(5), types.CharType(5),
    ]  # fmt: skip
    for spark_type in made:
        assert simple_type_name(spark_type) == spark_type.simpleString()
    for spark_type in made[:-2]:
        assert arrow_type_of(simple_type_name(spark_type)) == to_arrow_type(spark_type)
    assert arrow_type_of(simple_type_name(types.TimestampType())) == to_arrow_type(
        types.TimestampType(), timezone="UTC"
    )


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("INTEGER", "int"),
        ("long", "bigint"),
        ("decimal", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        (" decimal( 38 , 18 )", "decimal(38,18)"),
        ("timestamp_ltz", "timestamp"),
        ("string collate UNICODE", "string"),
        (pa.large_string(), "string"),
        (pa.decimal128(5, 2), "decimal(5,2)"),
        (pa.timestamp("us", "Europe/Berlin"), "timestamp"),
        (pa.timestamp("us"), "timestamp_ntz"),
    ],
    ids=str,
)
def test_spark_type_names_are_canonical(spelled: Any, name: str) -> None:
    assert simple_type_name(spelled) == name
    assert simple_type_name(name) == name


@pytest.mark.parametrize(
    "bad",
    [
        "", "integer64", "array<int>", "decimal(39,0)", "decimal(0,0)", "decimal(5,6)", "decimal(5,-1)", "varchar",
        "varchar(0)", "varchar(010)", "map<int,int>", "void", "int; drop", None, 5, [], {}, object(), int, True,
        pa.uint8(), pa.float16(), pa.timestamp("ns"), pa.list_(pa.int32()), pa.decimal256(50, 2),
    ],
    ids=lambda bad: type(bad).__name__ if type(bad) is object else repr(bad),
)  # fmt: skip
def test_invalid_scalar_type_raises(bad: Any) -> None:
    with pytest.raises(SchemaError):
        simple_type_name(bad)


def test_only_char_and_varchar_have_a_length() -> None:
    assert (max_length_of("varchar(12)"), max_length_of("char(1)"), max_length_of("string")) == (12, 1, None)
    with pytest.raises(SchemaError):
        arrow_type_of("INT")
