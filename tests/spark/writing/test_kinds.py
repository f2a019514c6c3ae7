"""Types of columns tell cells from raw values, and nothing is guessed."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from petastore.codecs import NdarrayCodec
from petastore.errors import RequestError
from petastore.schema import Unischema, UnischemaField
from petastore.spark.writing.kinds import holds_cells

TYPES = {
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "binary": types.BinaryType(),
    "array<float>": types.ArrayType(types.FloatType()),
    "array<double>": types.ArrayType(types.DoubleType()),
    "array<smallint>": types.ArrayType(types.ShortType()),
    "array<array<float>>": types.ArrayType(types.ArrayType(types.FloatType())),
}


def spark_schema(columns: str) -> types.StructType:
    """Of `name type, …`."""
    named = [column.split(" ") for column in columns.split(", ")]
    return types.StructType([types.StructField(name, TYPES[kind]) for name, kind in named])


SCHEMA = Unischema(
    "frames",
    [
        UnischemaField("id", "int32"),
        UnischemaField("raw", bytes),
        UnischemaField("pose", "float32", (2, 2), NdarrayCodec(), nullable=True),
        UnischemaField("track", "uint8", (None,), NdarrayCodec(), nullable=True),
    ],
)


@pytest.mark.parametrize(
    ("columns", "cells"),
    [
        ("id int, raw binary, pose binary, track binary", True),
        ("track binary, pose binary, raw binary, id int", True),
        ("id bigint, raw binary, pose binary, track binary", True),  # the commit refuses these cells, as ever
        ("id bigint, raw binary, pose array<array<float>>, track array<smallint>", False),
        ("id int, raw binary, pose array<float>", False),  # a column that may be missing is
        ("id bigint, raw binary", False),
    ],
)
def test_columns_are_what_only_they_can_be(columns: str, cells: bool) -> None:
    assert holds_cells(spark_schema(columns), SCHEMA) is cells


def test_both_kinds_in_one_frame_are_refused() -> None:
    with pytest.raises(RequestError, match="'pose' can only be raw values, and 'track', being bytes, could be cells"):
        holds_cells(spark_schema("id int, raw binary, pose array<float>, track binary"), SCHEMA)


def test_where_cells_are_what_values_are_types_alone_do_not_matter() -> None:
    plain = Unischema("plain", [UnischemaField("id", "int32"), UnischemaField("track", "float32", (None,))])
    assert holds_cells(spark_schema("id int, track array<float>"), plain)
    assert not holds_cells(spark_schema("id bigint, track array<double>"), plain)
