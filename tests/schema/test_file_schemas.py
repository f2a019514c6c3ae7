"""Tests of unifying the schemas of several files; conflicts raise one error that counts the files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from petastore import Unischema, UnischemaField
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.schema.file_schemas import FileSchemas


def of(*schemas: dict[str, pa.DataType]) -> FileSchemas:
    return FileSchemas.of((f"{number}.parquet", pa.schema(schema)) for number, schema in enumerate(schemas))


def test_file_schemas_with_the_same_columns_in_another_order_are_equal() -> None:
    schemas = of({"x": pa.int8(), "y": pa.string()}, {"y": pa.string(), "x": pa.int8()})
    assert schemas.are_equal
    assert schemas.differences() == ()
    assert schemas.unified().arrow == schemas.schemas[0]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("union", {"x": pa.int16(), "y": pa.string(), "z": pa.bool_()}),
        ("common", {"x": pa.int16()}),
        ("first", {"x": pa.int8(), "y": pa.string()}),
    ],
)
def test_schema_option_union_common_or_first_selects_the_unified_columns(
    option: str, expected: dict[str, pa.DataType]
) -> None:
    schemas = of({"x": pa.int8(), "y": pa.string()}, {"z": pa.bool_(), "x": pa.int16()})
    assert schemas.unified(option).arrow == pa.schema(expected)  # type: ignore[arg-type]


def test_column_missing_in_one_file_becomes_nullable() -> None:
    field = pa.field("x", pa.int8(), nullable=False)
    schemas = FileSchemas.of([("a", pa.schema([field, field.with_name("y")])), ("b", pa.schema([field]))])
    assert [each.nullable for each in schemas.unified().arrow] == [False, True]


def test_type_conflict_message_counts_files_per_type_and_names_examples() -> None:
    schemas = of({"x": pa.int64()}, {"x": pa.string()}, {"x": pa.int64()}, {})
    (reason,) = schemas.unified().conflicts.values()
    assert reason.startswith(
        "column 'x' must have types that unify exactly, got int64 in 2 files such as 0.parquet, string in 1 file such "
        "as 1.parquet and missing in 1 file such as 3.parquet. Leave it out"
    )
    assert schemas.unified().arrow.names == []


def test_declared_field_sets_type_of_a_column_whose_file_types_conflict() -> None:
    schemas = of({"x": pa.int64()}, {"x": pa.float64()})
    declared = Unischema("s", [UnischemaField("x", "float64"), UnischemaField("new", "int8", nullable=True)])
    assert schemas.unified(declared).arrow.types == [pa.float64(), pa.int8()]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (UnischemaField("y", "int8"), r"field 'y' must be nullable or stored in every file, got int8 in 1 file"),
        (UnischemaField("z", "int8"), r"field 'z' must be nullable or stored in the files, got columns 'x', 'y'"),
        (UnischemaField("x", "str"), r"field 'x' must be stored as string, like .*, got int8 in 2 files"),
    ],
)
def test_declared_field_with_incompatible_or_missing_file_columns_raises(field: UnischemaField, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        of({"x": pa.int8(), "y": pa.int8()}, {"x": pa.int8()}).unified(Unischema("s", [field]))


def test_unknown_schema_option_raises_and_lists_the_options() -> None:
    with pytest.raises(InvalidArgumentError, match=r"schema must be 'union', 'common', 'first' or a Unischema, got 'a"):
        of({"x": pa.int8()}).unified("all")  # type: ignore[arg-type]


def test_file_schemas_without_files_raise() -> None:
    with pytest.raises(SchemaError, match="must have at least one file"):
        FileSchemas.of([])
