"""Rows as Petastorm's users write them: one dict to one `pyspark.sql.Row` of stored cells.

For programs that let Spark write the cells. `DatasetWriter.write_rows` takes an RDD of the dicts, encodes and writes
them where they are, and needs a third of the processor time.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from petastore.codecs.registry import codec_of
from petastore.errors import EncodeError, MissingExtraError
from petastore.schema import Unischema

__all__ = ["dict_to_spark_row", "insert_explicit_nulls"]


def dict_to_spark_row(unischema: Unischema, row_dict: Mapping[str, Any]) -> Any:
    """One row of values to one Spark row of stored cells, in the order of the schema.

    Goes to Spark's workers by reference, as in `rdd.map(lambda row: dict_to_spark_row(schema, row))`, so petastore must
    be installed there. The row given is not changed.

    Args:
        unischema: What the row is.
        row_dict: Field name to value: a NumPy array or scalar, or the Python object of the same meaning. A nullable
            field may be left out or None.

    Returns:
        A `pyspark.sql.Row`, to be given to `spark.createDataFrame` with `unischema.as_spark_schema()`.

    Raises:
        EncodeError: A field is missing, unknown or None without being nullable, or its value does not fit.
        MissingExtraError: pyspark is not installed.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("age", "int32", nullable=True)])
        >>> dict_to_spark_row(schema, {"id": 7})
        Row(id=7, age=None)
        >>> dict_to_spark_row(schema, {"id": 7, "name": "Ada"})
        Traceback (most recent call last):
        petastore.errors.EncodeError: column 'name': schema 'user' has no such field; it has 'id', 'age'
    """
    try:
        from pyspark.sql import Row
    except ImportError:
        raise MissingExtraError("dict_to_spark_row", package="pyspark", extra="spark") from None
    if not isinstance(row_dict, Mapping):
        raise EncodeError(f"a row is a dict, but a {type(row_dict).__name__} was given")
    complete = dict(row_dict)
    insert_explicit_nulls(unischema, complete)
    for name in complete:
        if name not in unischema:
            known = ", ".join(map(repr, unischema.fields))
            raise EncodeError(f"schema {unischema.name!r} has no such field; it has {known}", column=str(name))
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
    """Put None for each nullable field that a row leaves out; changes the row in place.

    Args:
        unischema: What the row is.
        row_dict: Field name to value.

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
            found = (
                "the value is None, but the field" if field.name in row_dict else "the row has no value for it, and it"
            )
            raise EncodeError(f"{found} is not nullable", column=field.name)
        row_dict[field.name] = None
