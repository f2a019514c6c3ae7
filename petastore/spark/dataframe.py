"""DataFrames of raw values → DataFrames of stored cells, a column at a time, on classic and Connect sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from petastore.codecs.images.image import CompressedImageCodec
from petastore.codecs.vector import VectorCodec
from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import field_from_arrow, storage_schema
from petastore.spark.columns import encode_batches
from petastore.writers.encode import check_rows, encode_chunks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_columns", "encode_dataframe", "inferred_schema", "rows_to_dataframe"]

# Kinds of field dtype, to the Spark types that hold such values.
_WHOLE = ("tinyint", "smallint", "int", "bigint", "decimal", "boolean")
_NUMBER = (*_WHOLE, "float", "double")
_IMAGE_FILES = ("binary", "struct<bytes:binary,path:string>")
_SPARK_TYPES = {
    "b": ("boolean", *_WHOLE),
    "i": _NUMBER,
    "u": _NUMBER,
    "f": _NUMBER,
    "c": (),
    "M": ("date", "timestamp", "timestamp_ntz"),
    "m": ("bigint", "interval"),
    "str": ("string", "varchar", "char"),
    "bytes": ("binary",),
    "decimal": ("decimal", "tinyint", "smallint", "int", "bigint", "string"),
}


def encode_dataframe(df: DataFrame, schema: Unischema) -> DataFrame:
    """Encode a DataFrame of raw values: what comes back is what `df.write.parquet` stores.

    Spark's workers encode whole Arrow columns (`mapInArrow`), so petastore must be installed there. A field that is not
    nullable stays REQUIRED in the file. A column may hold:

    * a scalar, in any Spark type whose values the field holds exactly (a double may be rounded to a declared float);
    * an image as the bytes of its PNG or JPEG file, or as the struct of `bytes` and `path` that Hugging Face has;
    * a vector of Spark ML, where the field has `VectorCodec`;
    * a tensor as nested arrays, as one flat array in C order, or as bytes: its elements in C order, little-endian. Of a
      flat or binary tensor at most one dimension may be free.

    What Spark hands over at a time is bounded by `spark.sql.execution.arrow.maxRecordsPerBatch`, 10,000 rows unless it
    is set, and `maxBytesPerBatch`. A block of `materialize_dataset` sets the latter to 4 MiB, and lets Spark read 512
    rows of Parquet at a time (`spark.sql.parquet.columnarReaderBatchSize`); elsewhere set them yourself where rows are
    large.

    Args:
        df: Has a column for each field, in any order; one that is nullable may be left out. No further columns.
        schema: What the rows are.

    Returns:
        A DataFrame of `schema.as_spark_schema()`. It is computed when it is written; a value that does not fit then
        fails the job with an `EncodeError` in its message, which names the field and the row of its partition.

    Raises:
        InvalidArgumentError: A column is missing, unknown, or of a type that cannot be that field's.
        SchemaError: Spark cannot store the schema.
        MissingExtraError: pyspark is not installed.
    """
    spark_schema = schema.as_spark_schema()
    check_columns(df.schema, schema)
    # mapInArrow looks columns up by name and takes a dot in it for a struct's field; these names it understands.
    numbered = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    return numbered.mapInArrow(_Encoder(schema, tuple(df.columns)), spark_schema)


def rows_to_dataframe(spark: SparkSession, schema: Unischema, rows: Iterable[Any]) -> DataFrame:
    """A DataFrame of stored cells from rows in this process.

    The rows are encoded here, a column at a time, and held in memory; large data is better made by Spark itself and
    given to `encode_dataframe`.

    Args:
        spark: A classic or Connect session.
        schema: What the rows are.
        rows: Dicts or named tuples. A nullable field may be left out or None.

    Returns:
        A DataFrame of `schema.as_spark_schema()`.

    Raises:
        InvalidArgumentError: `rows` is no iterable of rows.
        EncodeError: A row does not fit the schema; field and row are named.
        SchemaError: Spark cannot store the schema.
        MissingExtraError: pyspark is not installed.
    """
    spark_schema = schema.as_spark_schema()
    check_rows(rows)
    table = pa.Table.from_batches(encode_chunks(rows, schema), storage_schema(schema))
    return spark.createDataFrame(table, spark_schema)


@dataclasses.dataclass(frozen=True)
class _Encoder:
    """The function that Spark's workers run over the batches of one partition."""

    schema: Unischema
    names: tuple[str, ...]
    """True names of the columns, by position."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (pa.RecordBatch.from_arrays(numbered.columns, self.names) for numbered in batches)
        yield from encode_batches(named, self.schema)


def inferred_schema(spark_schema: Any) -> Unischema:
    """The schema of a DataFrame's columns as they are.

    Args:
        spark_schema: Its `StructType`.

    Raises:
        SchemaError: A column is of a type that petastore does not store.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    return Unischema("inferred", [field_from_arrow(field) for field in to_arrow_schema(spark_schema)])


def check_columns(spark_schema: Any, schema: Unischema) -> None:
    """Refuses columns of raw values that can never be rows of a schema.

    Args:
        spark_schema: The `StructType` of a DataFrame.
        schema: What its rows are to be.

    Raises:
        InvalidArgumentError: A column is missing, unknown, or of a type that cannot be that field's.
    """
    columns = spark_schema.names
    missing = [field.name for field in schema if field.name not in columns and not field.nullable]
    unknown = [name for name in columns if name not in schema]
    if missing or unknown:
        raise InvalidArgumentError(
            f"the DataFrame has the columns {', '.join(map(repr, columns))}; of schema {schema.name!r} it lacks "
            f"{missing}, and the schema does not know {unknown}. Select exactly the fields of the schema"
        )
    for field in schema:
        if field.name in columns:
            _check_type(spark_schema[field.name].dataType, field)


def _check_type(spark_type: Any, field: UnischemaField) -> None:
    """Refuse a column that can never hold values of the field."""
    if isinstance(field.codec, VectorCodec) and type(spark_type).__name__ == "VectorUDT":
        return
    if isinstance(field.codec, CompressedImageCodec) and spark_type.simpleString() in _IMAGE_FILES:
        return
    depth, leaf = 0, spark_type
    while hasattr(leaf, "elementType"):
        depth, leaf = depth + 1, leaf.elementType
    name = leaf.simpleString().partition("(")[0].partition(" ")[0]
    numeric = field.dtype.kind in "biufcmM"
    if field.shape and depth == 0 and name == "binary" and numeric and field.dtype.kind != "b":
        _check_free(field, "bytes say")
    elif depth == 1 and len(field.shape) > 1:
        _check_free(field, "a flat array says")
    elif depth != len(field.shape):
        shapes = f"nested arrays of {len(field.shape)} levels, one flat array or binary" if field.shape else "a scalar"
        raise _refused(spark_type, field, f"give {shapes}")
    elif name not in _SPARK_TYPES.get(field.dtype.kind if numeric else field.dtype_name, (name,)):
        raise _refused(spark_type, field, "cast the column, or declare another dtype")


def _check_free(field: UnischemaField, what: str) -> None:
    if field.shape.count(None) > 1:
        raise InvalidArgumentError(
            f"column {field.name!r}: {what} nothing of its shape, and {field.shape} has more than one free dimension; "
            "give nested arrays"
        )


def _refused(spark_type: Any, field: UnischemaField, advice: str) -> InvalidArgumentError:
    vectors = (
        " (VectorCodec stores it, and pyspark.ml.functions.vector_to_array makes an array of it)"
        if "vector" in repr(spark_type).lower()
        else ""
    )
    return InvalidArgumentError(
        f"column {field.name!r} is {spark_type.simpleString()}{vectors}, but {field!r} is declared; {advice}"
    )
