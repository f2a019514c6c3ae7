"""Encode rows and DataFrames of raw values to stored cells in Spark's workers.

The functions work on classic and Connect sessions.

Use these functions if Spark itself writes the cells. `DatasetWriter.write_rows` also takes an RDD of dicts: it encodes
and writes the rows in the same task, and needs a third of the CPU time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from petastore.codecs.images.image import CompressedImageCodec
from petastore.codecs.registry import codec_of
from petastore.codecs.vector import VectorCodec
from petastore.errors import EncodeError, InvalidArgumentError, MissingExtraError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import field_from_arrow, storage_schema
from petastore.writers.encode import check_rows, encode_chunk, encode_chunks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "check_columns",
    "check_names",
    "dict_to_spark_row",
    "encode_batch",
    "encode_batches",
    "encode_dataframe",
    "encode_numbered",
    "inferred_schema",
    "insert_explicit_nulls",
    "numbered_columns",
    "rows_to_dataframe",
]


def dict_to_spark_row(unischema: Unischema, row_dict: Mapping[str, Any]) -> Any:
    """Encode one row of values as a Spark row of stored cells, in schema order.

    Use it as `rdd.map(lambda row: dict_to_spark_row(schema, row))`; petastore must be installed on Spark's workers.
    `row_dict` is not modified.

    Args:
        unischema: Schema of the row.
        row_dict: Dict from field name to value: a NumPy array or scalar, or the equivalent Python object. A nullable
            field may be missing or None.

    Returns:
        A `pyspark.sql.Row` for `spark.createDataFrame` with `unischema.as_spark_schema()`.

    Raises:
        EncodeError: A field is missing, unknown, or None without being nullable; or its value does not fit.
        MissingExtraError: pyspark is not installed.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("age", "int32", nullable=True)])
        >>> dict_to_spark_row(schema, {"id": 7})
        Row(id=7, age=None)
        >>> dict_to_spark_row(schema, {"id": 7, "name": "Ada"})
        Traceback (most recent call last):
        petastore.errors.EncodeError: column 'name': the row must have only fields of schema 'user' ('id', 'age'), got
            'name'
    """
    try:
        from pyspark.sql import Row
    except ImportError:
        raise MissingExtraError("dict_to_spark_row", package="pyspark", extra="spark") from None
    if not isinstance(row_dict, Mapping):
        raise EncodeError(f"a row must be a dict, got {type(row_dict).__name__}")
    complete = dict(row_dict)
    insert_explicit_nulls(unischema, complete)
    for name in complete:
        if name not in unischema:
            known = ", ".join(map(repr, unischema.fields))
            raise EncodeError(
                f"the row must have only fields of schema {unischema.name!r} ({known}), got {name!r}", column=str(name)
            )
    cells = []
    for field in unischema:
        value = complete[field.name]
        try:
            cells.append(None if value is None else codec_of(field).encode(field, value))
        except EncodeError as problem:
            raise problem.at(column=field.name) from problem.__cause__
    row = Row(*unischema.fields)(*cells)
    row.__fields__ = list(unischema.fields)
    return row


def insert_explicit_nulls(unischema: Unischema, row_dict: MutableMapping[str, Any]) -> None:
    """Set missing nullable fields of a row to None, in place.

    Args:
        unischema: Schema of the row.
        row_dict: Dict from field name to value.

    Raises:
        EncodeError: A field that is not nullable is missing or None.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> row = {}
        >>> insert_explicit_nulls(Unischema("user", [UnischemaField("age", "int32", nullable=True)]), row)
        >>> row
        {'age': None}
    """
    for field in unischema:
        if row_dict.get(field.name) is not None:
            continue
        if not field.nullable:
            found = "None" if field.name in row_dict else "a row without it"
            raise EncodeError(
                f"the field must have a value, because it is not nullable, got {found}. Add a value, or declare "
                "nullable=True",
                column=field.name,
            )
        row_dict[field.name] = None


_SLICE_BYTES = 16 * 1024 * 1024


def encode_batches(batches: Iterable[pa.RecordBatch], schema: Unischema) -> Iterator[pa.RecordBatch]:
    """Encode record batches of raw values, some megabytes at a time.

    Row numbers in error messages are counted over all batches.

    Raises:
        EncodeError: As `encode_batch`; by `next`.

    Example:
        >>> from petastore import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> [cells.num_rows for cells in encode_batches([pa.record_batch({"id": [1, 2]})] * 2, schema)]
        [2, 2]
    """
    done = 0
    for batch in batches:
        # Slices limit memory, because values and their cells, which may be larger, are in memory together.
        step = max(1, _SLICE_BYTES * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            yield encode_batch(batch.slice(start, step), schema, first_row=done + start)
        done += batch.num_rows


def encode_batch(batch: pa.RecordBatch, schema: Unischema, *, first_row: int = 0) -> pa.RecordBatch:
    """Encode the columns of a record batch of raw values.

    Args:
        batch: Raw values; a nullable field may have no column.
        schema: Schema of the rows.
        first_row: Number of the batch's first row, for messages.

    Returns:
        Stored cells, of `petastore.schema.arrow.storage_schema(schema)`.

    Raises:
        EncodeError: A value does not fit its field; the message names field and row.

    Example:
        >>> from petastore import UnischemaField
        >>> schema = Unischema("step", [UnischemaField("grid", "uint8", (2, 2), nullable=True)])
        >>> batch = pa.record_batch({"grid": [[1, 2, 3, 4], None]})
        >>> encode_batch(batch, schema).to_pydict()
        {'grid': [[[1, 2], [3, 4]], None]}
    """
    chunk = dict(zip(batch.schema.names, batch.columns, strict=True))
    return encode_chunk(chunk.get, schema, batch.num_rows, first_row)


# Spark types that can hold the values of each kind of NumPy dtype.
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
    """Encode a DataFrame of raw values as stored cells, for `df.write.parquet`.

    Spark's workers encode whole Arrow columns (`mapInArrow`), so petastore must be installed on them. A non-nullable
    field is REQUIRED in the file. Supported columns:

    * scalars of any Spark type, if each value fits the field exactly (but a double may be rounded to a float);
    * images as bytes of PNG or JPEG files, or as structs of `bytes` and `path`, as in Hugging Face datasets;
    * Spark ML vectors, if the field has `VectorCodec`;
    * tensors as nested arrays, as flat arrays in C order, or as little-endian bytes in C order. Flat and binary
      tensors may have at most one variable dimension.

    If rows are large, limit the batches that Spark passes to Python by `spark.sql.execution.arrow.maxRecordsPerBatch`
    (10,000 by default) and `spark.sql.execution.arrow.maxBytesPerBatch`. A `materialize_dataset` block sets
    `maxBytesPerBatch` to 4 MiB and `spark.sql.parquet.columnarReaderBatchSize` to 512 rows.

    Args:
        df: A DataFrame with one column per field, in any order, and no other columns; a nullable field may be missing.
        schema: Schema of the rows.

    Returns:
        A lazy DataFrame with the schema `schema.as_spark_schema()`. A value that does not fit fails the Spark job; the
        message contains an `EncodeError` with the field and the row in its partition.

    Raises:
        InvalidArgumentError: A column is missing or unknown, or has a type that does not fit its field.
        SchemaError: Spark cannot store the schema.
        MissingExtraError: pyspark is not installed.
    """
    spark_schema = schema.as_spark_schema()
    check_columns(df.schema, schema)
    encode = functools.partial(encode_numbered, schema=schema, names=tuple(df.columns))
    return numbered_columns(df).mapInArrow(encode, spark_schema)


def rows_to_dataframe(spark: SparkSession, schema: Unischema, rows: Iterable[Any]) -> DataFrame:
    """Encode rows of this process as a Spark DataFrame of stored cells.

    All rows are encoded in this process, column by column, and held in memory. For large data, create the rows in Spark
    and use `encode_dataframe`.

    Args:
        spark: A classic or Connect session.
        schema: Schema of the rows.
        rows: Dicts or named tuples. A nullable field may be missing or None.

    Returns:
        A DataFrame with the schema `schema.as_spark_schema()`.

    Raises:
        InvalidArgumentError: `rows` is not an iterable of rows.
        EncodeError: A row does not match the schema; the message names the field and row.
        SchemaError: Spark cannot store the schema.
        MissingExtraError: pyspark is not installed.
    """
    spark_schema = schema.as_spark_schema()
    check_rows(rows)
    table = pa.Table.from_batches(encode_chunks(rows, schema), storage_schema(schema))
    return spark.createDataFrame(table, spark_schema)


def numbered_columns(df: DataFrame) -> DataFrame:
    """Rename the columns of a DataFrame to `c0`, `c1`, …, for `mapInArrow`.

    In original names, `mapInArrow` would read a dot as access to a struct field.
    """
    return df.toDF(*(f"c{number}" for number in range(len(df.columns))))


def encode_numbered(
    batches: Iterable[pa.RecordBatch], schema: Unischema, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Encode batches of `numbered_columns` in a Spark task.

    Args:
        batches: Raw values.
        schema: Schema of the rows.
        names: Original name of each column: that of `c0`, of `c1`, …
    """
    return encode_batches((pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches), schema)


def inferred_schema(spark_schema: Any) -> Unischema:
    """Infer a schema from the columns of a DataFrame.

    Args:
        spark_schema: `StructType` of the DataFrame.

    Raises:
        SchemaError: A column has a type that petastore cannot store.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    return Unischema("inferred", [field_from_arrow(field) for field in to_arrow_schema(spark_schema)])


def check_names(
    columns: Sequence[str],
    schema: Unischema,
    *,
    of: str = "df",
    needs_nullable: bool = False,
    advice: str = "Select the fields of the schema",
) -> None:
    """Raise an error if the names of columns do not match a schema.

    Args:
        columns: Names of the columns.
        schema: Schema of the rows.
        of: Name of the data, for the message.
        needs_nullable: Whether the columns of nullable fields are required, too.
        advice: Last sentence of the message.

    Raises:
        InvalidArgumentError: A column is missing or unknown.
    """
    missing = [field.name for field in schema if field.name not in columns and (needs_nullable or not field.nullable)]
    unknown = [name for name in columns if name not in schema]
    if missing or unknown:
        raise InvalidArgumentError(
            f"{of} must have exactly the fields of schema {schema.name!r}, got {', '.join(map(repr, columns))}: "
            f"{missing} missing, {unknown} unknown. {advice}"
        )


def check_columns(spark_schema: Any, schema: Unischema) -> None:
    """Raise an error if the types of raw columns do not match a schema.

    Args:
        spark_schema: The `StructType` of a DataFrame.
        schema: Schema of the rows.

    Raises:
        InvalidArgumentError: A column is missing or unknown, or its type does not fit the field.
    """
    check_names(spark_schema.names, schema)
    for field in schema:
        if field.name in spark_schema.names:
            _check_type(spark_schema[field.name].dataType, field)


def _check_type(spark_type: Any, field: UnischemaField) -> None:
    """Raise an error if the type of a column cannot hold values of the field."""
    if isinstance(field.codec, VectorCodec) and type(spark_type).__name__ == "VectorUDT":
        return
    if type(field.codec) is CompressedImageCodec and spark_type.simpleString() in _IMAGE_FILES:
        return
    depth, leaf = 0, spark_type
    while hasattr(leaf, "elementType"):
        depth, leaf = depth + 1, leaf.elementType
    name = leaf.simpleString().partition("(")[0].partition(" ")[0]
    numeric = field.dtype.kind in "biufcmM"
    if field.shape and depth == 0 and name == "binary" and numeric and field.dtype.kind != "b":
        _check_free(field, "bytes do")
    elif depth == 1 and len(field.shape) > 1:
        _check_free(field, "a flat array does")
    elif depth != len(field.shape):
        shapes = f"nested arrays of {len(field.shape)} levels, one flat array or binary" if field.shape else "a scalar"
        raise _refused(spark_type, field, f"Give {shapes}")
    elif name not in _SPARK_TYPES.get(field.dtype.kind if numeric else field.dtype_name, (name,)):
        raise _refused(spark_type, field, "Cast the column, or declare another dtype")


def _check_free(field: UnischemaField, what: str) -> None:
    if field.shape.count(None) > 1:
        raise InvalidArgumentError(
            f"column {field.name!r} must have nested arrays, because {what} not determine a shape {field.shape} with "
            "more than one variable dimension. Give nested arrays"
        )


def _refused(spark_type: Any, field: UnischemaField, advice: str) -> InvalidArgumentError:
    vectors = (
        " (VectorCodec stores it, and pyspark.ml.functions.vector_to_array makes an array of it)"
        if "vector" in repr(spark_type).lower()
        else ""
    )
    return InvalidArgumentError(
        f"column {field.name!r} must have a Spark type that fits {field!r}, got {spark_type.simpleString()}{vectors}. "
        f"{advice}"
    )
