"""Tests of DataFrame column types: unsupported columns raise; `frames.py` tests the rest with Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import types

from petastore.codecs import CompressedImageCodec, NdarrayCodec, VectorCodec
from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema, UnischemaField
from petastore.spark.dataframe import check_columns, inferred_schema

FLOATS, INT = types.ArrayType(types.FloatType()), types.IntegerType()
SCHEMA = Unischema(
    "frames",
    [
        UnischemaField("id", np.int32),
        UnischemaField("word", np.str_, nullable=True),
        UnischemaField("pose", np.float32, (2, None), NdarrayCodec(), nullable=True),
        UnischemaField("wild", np.float32, (None, None), NdarrayCodec(), nullable=True),
        UnischemaField("vector", np.float64, (3,), VectorCodec(), nullable=True),
    ],
)


def struct_of(**columns: Any) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "columns",
    [
        {"id": INT},
        {"word": types.StringType(), "id": INT},
        {"id": INT, "pose": types.ArrayType(FLOATS)},
        {"id": INT, "pose": FLOATS},
        {"id": INT, "pose": types.BinaryType()},
        {"id": INT, "wild": types.ArrayType(FLOATS)},
        {"id": INT, "vector": types.ArrayType(types.DoubleType())},
    ],
    ids=str,
)
def test_encode_dataframe_accepts_matching_columns(columns: dict[str, Any]) -> None:
    check_columns(struct_of(**columns), SCHEMA)


def test_encode_dataframe_accepts_image_files() -> None:
    schema = Unischema("photos", [UnischemaField("image", np.uint8, (None, None, 3), CompressedImageCodec("jpeg"))])
    files = types.StructType().add("bytes", types.BinaryType()).add("path", types.StringType())
    check_columns(struct_of(image=types.BinaryType()), schema)
    check_columns(struct_of(image=files), schema)
    with pytest.raises(InvalidArgumentError, match=r"column 'image' must have a Spark type that fits .*, got string"):
        check_columns(struct_of(image=types.StringType()), schema)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"word": types.StringType()}, r"\['id'\] missing"),
        ({"id": INT, "more": INT}, r"\['more'\] unknown\. Select the fields"),
        ({"id": types.StringType()}, "column 'id' must have a Spark type that fits .*, got string. Cast the column"),
        ({"id": FLOATS}, r"column 'id' must have a Spark type that fits .*, got array<float>\. Give a scalar"),
        ({"id": INT, "pose": types.FloatType()}, "Give nested arrays of 2 levels, one flat array or binary"),
        ({"id": INT, "pose": types.ArrayType(types.ArrayType(types.StringType()))}, "Cast the column"),
        (
            {"id": INT, "wild": FLOATS},
            "a flat array does not determine a shape .* with more than one variable dimension",
        ),
        ({"id": INT, "wild": types.BinaryType()}, "bytes do not determine a shape"),
    ],
    ids=str,
)
def test_encode_dataframe_raises_for_unsupported_columns(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        check_columns(struct_of(**columns), SCHEMA)


def test_spark_schema_inference_keeps_column_types() -> None:
    found = inferred_schema(struct_of(id=INT, word=types.StringType(), pose=FLOATS))
    assert {field.name: (field.dtype_name, field.shape) for field in found} == {
        "id": ("int32", ()),
        "word": ("str", ()),
        "pose": ("float32", (None,)),
    }
    assert all(field.nullable for field in found)
