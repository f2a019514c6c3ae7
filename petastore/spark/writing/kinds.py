"""Whether a DataFrame holds stored cells or raw columns, by its schema and by nothing else."""

from __future__ import annotations

from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema

__all__ = ["check_cells", "holds_cells"]

_SCALARS = frozenset(["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"])


def holds_cells(spark_schema: Any, schema: Unischema) -> bool:
    """Whether the columns are stored cells, or may be, rather than raw values.

    Bytes where cells are bytes may be either. They are cells, unless other columns can only be raw values.

    Args:
        spark_schema: The `StructType` of a DataFrame.
        schema: What its rows are to be.

    Raises:
        InvalidArgumentError: Some columns can only be raw values, and others could be either.
    """
    stored = {field.name: field.dataType.simpleString() for field in schema.as_spark_schema().fields}
    found = {field.name: field.dataType.simpleString() for field in spark_schema.fields}
    if found == stored:
        return True
    in_bytes = [name for name in found if stored.get(name) == "binary" and schema[name].shape]
    either = [name for name in in_bytes if found[name] == "binary"]
    raw = [name for name in in_bytes if found[name] != "binary"]
    if either and raw:
        raise InvalidArgumentError(
            f"the columns {', '.join(map(repr, raw))} can only be raw values, and {', '.join(map(repr, either))}, being"
            " bytes, could be cells as well; write_columns takes all of them for raw values"
        )
    return bool(either)


def check_cells(spark_schema: Any, schema: Unischema) -> None:
    """Reject stored cells whose files the commit would reject, before Spark writes them.

    Args:
        spark_schema: The `StructType` of a DataFrame of stored cells.
        schema: What its rows are to be.

    Raises:
        InvalidArgumentError: A column is missing, unknown, of another type, or nullable though its field is not.
    """
    stored = {field.name: field for field in schema.as_spark_schema().fields}
    found = {field.name: field for field in spark_schema.fields}
    missing, unknown = [name for name in stored if name not in found], [name for name in found if name not in stored]
    if missing or unknown:
        raise InvalidArgumentError(
            f"df must have the columns of schema {schema.name!r}, got {', '.join(map(repr, found))}: it lacks "
            f"{missing}, and the schema does not know {unknown}. Select exactly the fields of the schema"
        )
    for name, column in found.items():
        kinds = {column.dataType.simpleString(), stored[name].dataType.simpleString()}
        if len(kinds) > 1 and kinds <= _SCALARS:
            raise InvalidArgumentError(
                f"column {name!r} of df must be {stored[name].dataType.simpleString()}, in which {schema[name]!r} is "
                f"stored, got {column.dataType.simpleString()}. Cast the column, or encode values with encode_dataframe"
            )
    nullable = [name for name, column in found.items() if column.nullable and not stored[name].nullable]
    if nullable:
        raise InvalidArgumentError(
            f"df must have no nullable columns where schema {schema.name!r} says nullable=False, got "
            f"{', '.join(map(repr, nullable))}. Make the DataFrame with schema.as_spark_schema(), or declare "
            "nullable=True"
        )
