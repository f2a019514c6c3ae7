"""Files of one dataset agree on a schema, or both that do not are named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from petastore.errors import SchemaError
from petastore.storage.footers.agreed_schema import agreed_arrow_schema
from petastore.storage.footers.footers import Footer, read_footer
from tests.storage.footers.counted_files import counted, parquet_bytes


def footer_with(path: str, schema: pa.Schema) -> Footer:
    location, _ = counted({path: parquet_bytes(schema.empty_table())})
    return read_footer(location, path)


def test_files_agree_whatever_the_order_of_columns() -> None:
    one = footer_with("a.parquet", pa.schema({"x": pa.int8(), "y": pa.string()}))
    two = footer_with("b.parquet", pa.schema({"y": pa.string(), "x": pa.int8()}))
    assert agreed_arrow_schema([one, two]) == one.arrow_schema


def test_a_column_is_nullable_where_one_file_says_so() -> None:
    def schema(nullable: bool) -> pa.Schema:
        item = pa.field("element", pa.int8(), nullable=nullable)
        struct = pa.struct([pa.field("a", pa.int8(), nullable=nullable)])
        return pa.schema(
            [
                pa.field("x", pa.int8(), nullable=nullable),
                pa.field("v", pa.list_(item), nullable=False),
                pa.field("s", struct, nullable=False),
                pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=nullable)), nullable=False),
            ]
        )

    agreed = agreed_arrow_schema([footer_with("a.parquet", schema(False)), footer_with("b.parquet", schema(True))])
    assert agreed == schema(True)


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        ({"x": pa.int8()}, r"a\.parquet has a column 'y', but b\.parquet lacks it"),
        ({"x": pa.int8(), "y": pa.string(), "z": pa.int8()}, r"b\.parquet has a column 'z', but a\.parquet lacks it"),
        ({"x": pa.int16(), "y": pa.string()}, r"column 'x' is int8 in a\.parquet, but int16 in b\.parquet"),
        ({"x": pa.list_(pa.int8()), "y": pa.string()}, r"column 'x' is int8 in a\.parquet, but list"),
    ],
)
def test_files_that_disagree_are_both_named(theirs: dict[str, pa.DataType], why: str) -> None:
    ours = footer_with("a.parquet", pa.schema({"x": pa.int8(), "y": pa.string()}))
    with pytest.raises(SchemaError, match=why):
        agreed_arrow_schema([ours, footer_with("b.parquet", pa.schema(theirs))])


def test_nested_types_that_disagree_are_refused() -> None:
    one = footer_with("a.parquet", pa.schema({"s": pa.struct({"x": pa.int8()})}))
    two = footer_with("b.parquet", pa.schema({"s": pa.struct({"y": pa.int8()})}))
    with pytest.raises(SchemaError, match="column 's' is"):
        agreed_arrow_schema([one, two])


def test_no_files_have_no_schema() -> None:
    with pytest.raises(SchemaError, match="there are no files"):
        agreed_arrow_schema([])
