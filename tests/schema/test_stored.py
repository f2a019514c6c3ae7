"""Tests of comparing a file's columns with a schema: incompatible files raise before their data is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from petastore.codecs import NdarrayCodec
from petastore.errors import SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.file_schemas import check_stored_schema, is_stored_as

SCHEMA = Unischema("s", [UnischemaField("id", "int64"), UnischemaField("x", "float32", (3,), NdarrayCodec())])


@pytest.mark.parametrize(
    ("declared", "found", "fits"),
    [
        (pa.int64(), pa.int8(), True),
        (pa.int64(), pa.float64(), True),
        (pa.int64(), pa.string(), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.dictionary(pa.int32(), pa.string_view()), True),
        (pa.binary(), pa.binary(4), True),
        (pa.binary(), pa.string(), False),
        (pa.timestamp("us"), pa.timestamp("ns", "UTC"), True),
        (pa.timestamp("us"), pa.date32(), False),
        (pa.decimal128(38, 18), pa.decimal128(20, 18), True),
        (pa.decimal128(38, 18), pa.decimal128(38, 2), False),
        (pa.list_(pa.float32()), pa.large_list(pa.float64()), True),
        (pa.list_(pa.float32()), pa.list_(pa.float32(), 3), True),
        (pa.list_(pa.float32()), pa.list_(pa.list_(pa.float32())), False),
        (pa.list_(pa.float32()), pa.map_(pa.string(), pa.float32()), False),
        (pa.list_(pa.uint8()), pa.fixed_shape_tensor(pa.uint8(), [2]), True),
    ],
)
def test_stored_type_may_differ_in_width_but_not_in_kind(declared: pa.DataType, found: pa.DataType, fits: bool) -> None:
    assert is_stored_as(declared, found) == fits


def test_stored_schema_accepts_additional_columns() -> None:
    stored = pa.schema({"x": pa.large_binary(), "id": pa.int32(), "more": pa.string()})
    check_stored_schema(SCHEMA, stored, source="part-0")
    check_stored_schema(SCHEMA, stored.remove(1), source="part-0", partition_names=["id"])


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (pa.schema({"id": pa.int64()}), "no such column"),
        (pa.schema([("id", pa.int64()), ("x", pa.binary()), ("x", pa.binary())]), "2 columns of that name"),
        (
            pa.schema({"id": pa.int64(), "x": pa.list_(pa.float32())}),
            r"part-0: column 'x' must be binary, as UnischemaField\('x', float32, \(3,\), NdarrayCodec\(\)\) is",
        ),
    ],
)
def test_wrong_or_missing_stored_field_raises_with_file_and_field(stored: pa.Schema, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as refused:
        check_stored_schema(SCHEMA, stored, source="part-0")
    assert str(refused.value).startswith("part-0: ")
