"""Tests of telling encoded cells from raw values by the types of Spark columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql import types

from petastore.codecs import NdarrayCodec
from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema, UnischemaField
from petastore.spark.writing.dataset_writer import BlockJob, DatasetWriter
from petastore.spark.writing.writable import check_cells, holds_cells
from petastore.writers.parquet import FileLayout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAYOUT = FileLayout.of(rows_per_row_group=1, row_group_size_mb=None, rows_per_file=None)

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
    """Return a Spark schema, given as `name type, …`."""
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
        ("id bigint, raw binary, pose binary, track binary", True),  # the writer rejects this
        ("id bigint, raw binary, pose array<array<float>>, track array<smallint>", False),
        ("id int, raw binary, pose array<float>", False),  # without an optional column
        ("id bigint, raw binary", False),
    ],
)
def test_encoded_and_raw_columns_are_recognized_by_their_spark_types(columns: str, cells: bool) -> None:
    assert holds_cells(spark_schema(columns), SCHEMA) is cells


CELLS = [types.StructField(name, kind, nullable) for name, kind, nullable in (
    ("id", types.IntegerType(), False), ("raw", types.BinaryType(), False),
    ("pose", types.BinaryType(), True), ("track", types.BinaryType(), True),
)]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (CELLS[1:], r"df must have exactly the fields of schema 'frames', got .*: \['id'\] missing"),
        (
            [*CELLS, types.StructField("more", types.LongType())],
            r"df must have exactly the fields of schema 'frames', got .*\['more'\] unknown",
        ),
        (
            [types.StructField("id", types.LongType(), False), *CELLS[1:]],
            "column 'id' of df must be int, .* got bigint",
        ),
        ([types.StructField("id", types.IntegerType(), True), *CELLS[1:]], "no nullable columns .* got 'id'"),
    ],
)
def test_writer_rejects_columns_of_wrong_types_before_spark_writes(columns: list[types.StructField], said: str) -> None:
    check_cells(types.StructType(CELLS[::-1]), SCHEMA)
    job = BlockJob("memory://never", SCHEMA, LAYOUT, "auto", "a test")
    writer = DatasetWriter(cast("SparkSession", None), "memory://never", {}, job)
    df = SimpleNamespace(schema=types.StructType(columns))  # it has no `write`: nothing is written
    with pytest.raises(InvalidArgumentError, match=said):
        writer.write(cast("DataFrame", df))


def test_encoded_and_raw_columns_in_one_dataframe_raise() -> None:
    with pytest.raises(
        InvalidArgumentError, match="got 'pose', which are raw, and 'track', which are bytes and could be both"
    ):
        holds_cells(spark_schema("id int, raw binary, pose array<float>, track binary"), SCHEMA)


def test_columns_without_codecs_count_as_encoded_if_their_types_match() -> None:
    plain = Unischema("plain", [UnischemaField("id", "int32"), UnischemaField("track", "float32", (None,))])
    assert holds_cells(spark_schema("id int, track array<float>"), plain)
    assert not holds_cells(spark_schema("id bigint, track array<double>"), plain)
