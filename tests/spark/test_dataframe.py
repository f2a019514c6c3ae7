"""What a DataFrame's columns can never be is refused by their types; what Spark does with it is in `frames.py`."""

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
def test_columns_that_can_be_rows_of_the_schema_pass(columns: dict[str, Any]) -> None:
    check_columns(struct_of(**columns), SCHEMA)


def test_image_files_pass_where_images_are_declared() -> None:
    schema = Unischema("photos", [UnischemaField("image", np.uint8, (None, None, 3), CompressedImageCodec("jpeg"))])
    files = types.StructType().add("bytes", types.BinaryType()).add("path", types.StringType())
    check_columns(struct_of(image=types.BinaryType()), schema)
    check_columns(struct_of(image=files), schema)
    with pytest.raises(InvalidArgumentError, match="column 'image' is string"):
        check_columns(struct_of(image=types.StringType()), schema)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"word": types.StringType()}, r"it lacks \['id'\]"),
        ({"id": INT, "more": INT}, r"the schema does not know \['more'\]. Select exactly the fields"),
        ({"id": types.StringType()}, "column 'id' is string, but .* cast the column"),
        ({"id": FLOATS}, r"column 'id' is array<float>, .* give a scalar"),
        ({"id": INT, "pose": types.FloatType()}, "give nested arrays of 2 levels, one flat array or binary"),
        ({"id": INT, "pose": types.ArrayType(types.ArrayType(types.StringType()))}, "cast the column"),
        ({"id": INT, "wild": FLOATS}, "a flat array says nothing of its shape.*more than one free dimension"),
        ({"id": INT, "wild": types.BinaryType()}, "bytes say nothing of its shape"),
    ],
    ids=str,
)
def test_columns_that_never_can_are_refused_with_what_to_do(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        check_columns(struct_of(**columns), SCHEMA)


def test_a_schema_is_inferred_of_columns_as_they_are() -> None:
    found = inferred_schema(struct_of(id=INT, word=types.StringType(), pose=FLOATS))
    assert {field.name: (field.dtype_name, field.shape) for field in found} == {
        "id": ("int32", ()),
        "word": ("str", ()),
        "pose": ("float32", (None,)),
    }
    assert all(field.nullable for field in found)
