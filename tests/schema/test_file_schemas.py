"""Schemas of files that differ unify, or one error counts the files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from petastore import Unischema, UnischemaField
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.schema.file_schemas import FileSchemas


def of(*schemas: dict[str, pa.DataType]) -> FileSchemas:
    return FileSchemas.of((f"{number}.parquet", pa.schema(schema)) for number, schema in enumerate(schemas))


def test_file_schemas_are_equal_in_another_column_order() -> None:
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
def test_schema_option_selects_the_unified_columns(option: str, expected: dict[str, pa.DataType]) -> None:
    schemas = of({"x": pa.int8(), "y": pa.string()}, {"z": pa.bool_(), "x": pa.int16()})
    assert schemas.unified(option).arrow == pa.schema(expected)  # type: ignore[arg-type]


def test_column_that_a_file_lacks_is_nullable() -> None:
    field = pa.field("x", pa.int8(), nullable=False)
    schemas = FileSchemas.of([("a", pa.schema([field, field.with_name("y")])), ("b", pa.schema([field]))])
    assert [each.nullable for each in schemas.unified().arrow] == [False, True]


def test_conflict_counts_every_file_and_names_examples() -> None:
    schemas = of({"x": pa.int64()}, {"x": pa.string()}, {"x": pa.int64()}, {})
    (reason,) = schemas.unified().conflicts.values()
    assert reason.startswith(
        "column 'x' must have types that unify exactly, got int64 in 2 files such as 0.parquet, string in 1 file such "
        "as 1.parquet and missing in 1 file such as 3.parquet. Leave it out"
    )
    assert schemas.unified().arrow.names == []


def test_declared_field_gives_a_type_where_files_do_not_unify() -> None:
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
def test_declared_field_that_files_cannot_give_is_rejected(field: UnischemaField, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        of({"x": pa.int8(), "y": pa.int8()}, {"x": pa.int8()}).unified(Unischema("s", [field]))


def test_unknown_word_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match=r"schema must be 'union', 'common', 'first' or a Unischema, got 'a"):
        of({"x": pa.int8()}).unified("all")  # type: ignore[arg-type]


def test_no_files_have_no_schema() -> None:
    with pytest.raises(SchemaError, match="must have at least one file"):
        FileSchemas.of([])
