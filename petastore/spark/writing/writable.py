"""Can Spark write a schema? Asked before it does any work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from petastore.errors import InvalidArgumentError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_type
from petastore.spark.settings import TIMESTAMP_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_writable"]


def check_writable(spark: SparkSession, schema: Unischema, *, session_settings: bool) -> None:
    """Refuse a schema that Spark cannot write, or would change in writing.

    Args:
        spark: The session that is going to write.
        schema: What the rows are.
        session_settings: Whether the session's configuration is going to be set for the write.

    Raises:
        SchemaError: No field at all, a field that Spark has no type for, nanoseconds, or two names that Spark does not
            tell apart.
        InvalidArgumentError: A time stamp with a zone needs a setting of the session.
        MissingExtraError: pyspark is not installed.
    """
    schema.as_spark_schema()
    if not len(schema):
        raise SchemaError(f"schema {schema.name!r} has no fields, and Parquet files need at least one column")
    _refuse_equal_names(spark, schema)
    leaves = {field: _leaf(storage_type(field)) for field in schema}
    for field, stored in leaves.items():
        if pa.types.is_timestamp(stored) and stored.unit == "ns":
            raise SchemaError(
                f"field {field.name!r} is stored in nanoseconds, and Spark's time stamps are microseconds; declare it "
                "as datetime64[us], or write it with petastore.write_dataset"
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
                f"Spark does not tell the fields {other!r} and {name!r} apart; rename one, or set "
                "spark.sql.caseSensitive to true"
            )


def _refuse_int96(spark: SparkSession, field: UnischemaField) -> None:
    if spark.conf.get(TIMESTAMP_TYPE, "INT96") == "INT96":
        raise InvalidArgumentError(
            f"field {field.name!r} is a time stamp with a zone, which Spark writes as INT96 unless {TIMESTAMP_TYPE} of "
            "the session says otherwise; leave session_settings on, or set that to TIMESTAMP_MICROS yourself"
        )


def _leaf(stored: pa.DataType) -> pa.DataType:
    return _leaf(stored.value_type) if pa.types.is_list(stored) else stored
