"""Checks before a Spark write: schema, DataFrame columns, and the workers' Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from petastore.errors import InvalidArgumentError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_type
from petastore.spark.dataframe import check_names
from petastore.spark.settings import TIMESTAMP_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_cells", "check_writable", "holds_cells", "warn_of_another_python"]


def check_writable(spark: SparkSession, schema: Unischema, *, session_settings: bool) -> None:
    """Raise an error for a schema that Spark cannot write unchanged.

    Args:
        spark: Session that will write.
        schema: Schema of the rows.
        session_settings: Whether the session's configuration will be set for the write.

    Raises:
        SchemaError: The schema is empty, has a type that Spark does not have (such as nanoseconds), or has two names
            that are equal for Spark.
        InvalidArgumentError: A timestamp with a time zone needs a session setting, but `session_settings` is False, and
            the session does not have it.
        MissingExtraError: pyspark is not installed.
    """
    schema.as_spark_schema()
    if not len(schema):
        raise SchemaError(f"schema must have at least one field, got {schema.name!r} without fields")
    _refuse_equal_names(spark, schema)
    leaves = {field: _leaf(storage_type(field)) for field in schema}
    for field, stored in leaves.items():
        if pa.types.is_timestamp(stored) and stored.unit == "ns":
            raise SchemaError(
                f"field {field.name!r} must be stored in microseconds for Spark, got nanoseconds. Declare it as "
                "datetime64[us], or write it with petastore.write_dataset"
            )
    zoned = [field for field, stored in leaves.items() if pa.types.is_timestamp(stored) and stored.tz is not None]
    if zoned and not session_settings:
        _refuse_int96(spark, zoned[0])


def _refuse_equal_names(spark: SparkSession, schema: Unischema) -> None:
    if spark.conf.get("spark.sql.caseSensitive", "false") == "true":
        return
    names: dict[str, str] = {}
    for name in schema.fields:
        other = names.setdefault(name.lower(), name)
        if other != name:
            raise SchemaError(
                f"field names must differ in more than upper and lower case for Spark, got {other!r} and {name!r}. "
                "Rename one, or set spark.sql.caseSensitive to true"
            )


def _refuse_int96(spark: SparkSession, field: UnischemaField) -> None:
    if spark.conf.get(TIMESTAMP_TYPE, "INT96") == "INT96":
        raise InvalidArgumentError(
            f"{TIMESTAMP_TYPE} must be TIMESTAMP_MICROS for field {field.name!r}, a timestamp with a time zone, got "
            "another value. Set it in the session, or leave session_settings=True"
        )


def _leaf(stored: pa.DataType) -> pa.DataType:
    return _leaf(stored.value_type) if pa.types.is_list(stored) else stored


_SCALARS = frozenset(["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"])


def holds_cells(spark_schema: Any, schema: Unischema) -> bool:
    """Return whether columns are, or may be, stored cells rather than raw values.

    A column of bytes may be cells or raw values. It is treated as cells, unless other columns can only be raw values.

    Args:
        spark_schema: The `StructType` of a DataFrame.
        schema: Schema of the rows to write.

    Raises:
        InvalidArgumentError: Some columns can only be raw values, and others may be cells.
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
            f"df must have either raw values or stored cells, got {', '.join(map(repr, raw))}, which are raw, and "
            f"{', '.join(map(repr, either))}, which are bytes and could be both. write_columns treats all of them as "
            "raw values"
        )
    return bool(either)


def check_cells(spark_schema: Any, schema: Unischema) -> None:
    """Raise an error for stored cells that the commit would reject after the write.

    Args:
        spark_schema: The `StructType` of a DataFrame of stored cells.
        schema: Schema of the rows to write.

    Raises:
        InvalidArgumentError: A column is missing or unknown, has another type, or is nullable although its field is
            not.
    """
    stored = {field.name: field for field in schema.as_spark_schema().fields}
    found = {field.name: field for field in spark_schema.fields}
    check_names(list(found), schema, needs_nullable=True)
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


_ENOUGH_S = 30.0
"""Maximum seconds to wait for a Python process that looks for petastore."""

_MISSING = 7
"""Exit code that means that petastore is missing: not 0, and not one of Python's own."""


def warn_of_another_python(spark: Any) -> None:
    """Warn before the job starts if the Python of local workers lacks petastore.

    Remote workers and Spark Connect sessions are not checked.

    Args:
        spark: Spark session.

    Warns:
        UserWarning: The Python of local workers does not have petastore.
    """
    context = getattr(spark, "_sc", None)  # the public attribute raises on Connect
    if context is None or not str(context.master).startswith("local"):
        return
    python = shutil.which(context.pythonExec)
    if python in (None, sys.executable) or _has_petastore(python):
        return
    warnings.warn(
        f"Spark's workers run {python}, in which petastore is not installed, and this process runs {sys.executable}. "
        "Tasks will fail with No module named 'petastore'. Set PYSPARK_PYTHON before the session begins: "
        'os.environ["PYSPARK_PYTHON"] = sys.executable',
        UserWarning,
        stacklevel=3,
    )


def _has_petastore(python: str) -> bool:
    """Return whether a Python interpreter finds petastore; True if unknown."""
    looks = f"import importlib.util, sys; sys.exit({_MISSING} * (importlib.util.find_spec('petastore') is None))"
    try:
        # Path of the Python interpreter that Spark's workers use.
        ended = subprocess.run([python, "-c", looks], check=False, capture_output=True, timeout=_ENOUGH_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return True
    return ended.returncode != _MISSING
