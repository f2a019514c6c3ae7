"""Tests of encoding batches of raw Spark columns by the schema; invalid values raise with their row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from petastore.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastore.errors import EncodeError
from petastore.schema import Unischema, UnischemaField
from petastore.spark.dataframe import encode_batch


@pytest.mark.parametrize(
    ("field", "column", "row", "part"),
    [
        (UnischemaField("x", "uint8"), pa.array([1, 2, 256]), 2, "256"),
        (UnischemaField("x", "uint8", nullable=True), pa.array([None, 2, -1]), 2, "-1"),
        (UnischemaField("x", "int32"), pa.array([1.0, 1.5]), 1, "1.5"),
        (UnischemaField("x", "int32"), pa.array([1, None]), 1, "not nullable"),
        (UnischemaField("x", Decimal, (), ScalarCodec("decimal(5,2)")), pa.array([Decimal("1.125")]), 0, "1.125"),
        (UnischemaField("x", "uint8", (2,)), pa.array([[1, 2], [1, 2, 3]]), 1, "(3,)"),
        (UnischemaField("x", "uint8", (2,)), pa.array([[1, 2], [1, None]]), 1, "null"),
        (UnischemaField("x", "uint8", (2,)), pa.array([[1, 2], [1, 300]]), 1, "300"),
        (UnischemaField("x", "uint8", (2, None)), pa.array([[[1], [2]], [[1], [2, 3]]]), 1, "different lengths"),
        (UnischemaField("x", "uint8", (2, 2)), pa.array([[1, 2, 3, 4], [1, 2]]), 1, "(2,)"),
        (UnischemaField("x", "int16", (2, 2)), pa.array([b"12345678", b"1234567"]), 1, "7 bytes"),
        (UnischemaField("x", "int16", (2, 2)), pa.array([b"12345678", b"123456"]), 1, "3 elements"),
        (UnischemaField("x", "int16", (2, None)), pa.array([b"12345678", b"123456"]), 1, "3 elements"),
        (
            UnischemaField("x", "bool", (2,), NdarrayCodec()),
            pa.array([b"12"]),
            None,
            "values must be nested arrays for dtype bool",
        ),
        (UnischemaField("x", "int16", (2, 2, 2)), pa.array([[[1, 2]]]), None, "arrays nested 3 levels deep"),
    ],
)
def test_invalid_spark_value_raises_with_its_row(field: UnischemaField, column: Any, row: Any, part: str) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    with pytest.raises(EncodeError) as caught:
        encode_batch(batch, Unischema("one", [field]), first_row=100)
    assert caught.value.column == "x"
    assert caught.value.row == (None if row is None else row + 100)
    assert part in str(caught.value)


@pytest.mark.parametrize("stored", [pa.binary(), pa.large_binary()])
def test_image_files_are_stored_unchanged(stored: pa.DataType) -> None:
    field = UnischemaField("image", np.uint8, (None, None, 3), CompressedImageCodec("png"), nullable=True)
    schema = Unischema("photos", [field])
    assert field.codec is not None
    file = field.codec.encode(field, np.zeros((4, 5, 3), np.uint8))
    assert encode_batch(pa.record_batch({"image": pa.array([file, None], stored)}), schema)["image"].to_pylist() == [
        file, None,
    ]  # fmt: skip
    structs = pa.array([{"bytes": file, "path": None}], pa.struct({"bytes": stored, "path": pa.string()}))
    assert encode_batch(pa.record_batch({"image": structs}), schema)["image"].to_pylist() == [file]
    with pytest.raises(
        EncodeError, match=r"values must be nested arrays for shape .*For images, the bytes of a file are also"
    ):
        encode_batch(pa.record_batch({"image": pa.array([b"abc"], stored)}), schema)


def test_spark_columns_may_have_any_order() -> None:
    schema = Unischema(
        "s", [UnischemaField("a", "int8"), UnischemaField("b", "int8", nullable=True), UnischemaField("c", "int8")]
    )
    batch = pa.record_batch({"c": [3], "a": [1]})
    assert encode_batch(batch, schema).to_pylist() == [{"a": 1, "b": None, "c": 3}]
