"""Spark's scalar types by their simple names (`int`, `decimal(10,4)`, …), as Arrow types; without pyspark."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from petastore.errors import SchemaError

__all__ = ["arrow_type_of", "max_length_of", "simple_type_name"]

_ARROW_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_OTHER_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal(10,0)",
    "decimal": "decimal(10,0)",
    "numeric": "decimal(10,0)",
    "timestamp_ltz": "timestamp",
}
_NAMES_OF_ARROW_TYPES = {arrow: name for name, arrow in _ARROW_TYPES.items()} | {
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\(([0-9]{1,2})(?:,(-?[0-9]{1,2}))?\)")
_BOUNDED_TEXT = re.compile(r"(varchar|char)\(([0-9]{1,9})\)")


def simple_type_name(spark_type: Any) -> str:
    """The canonical simple name of a Spark scalar type.

    Args:
        spark_type: A pyspark `DataType` or its class, an Arrow `DataType`, or a name as Spark spells it in SQL.

    Raises:
        SchemaError: It is none of these, or no scalar type that Parquet can hold.

    Example:
        >>> import pyarrow as pa
        >>> simple_type_name("Integer"), simple_type_name("decimal(10, 4)"), simple_type_name(pa.int64())
        ('int', 'decimal(10,4)', 'bigint')
    """
    if isinstance(spark_type, pa.DataType):
        return _name_of_arrow_type(spark_type)
    name = _spelled(spark_type).strip().lower()
    # Collations order text and change no byte of it.
    name = "string" if name.startswith("string collate ") else "".join(name.split())
    name = _OTHER_NAMES.get(name, name)
    if name in _ARROW_TYPES or _valid_bounded_text(name):
        return name
    matched = _DECIMAL.fullmatch(name)
    if matched is None:
        raise SchemaError(
            f"{spark_type!r} is no Spark scalar type; ScalarCodec takes a pyspark type such as IntegerType(), or one "
            f"of {', '.join(_ARROW_TYPES)}, decimal(precision,scale), varchar(length), char(length)"
        )
    precision, scale = int(matched[1]), int(matched[2] or 0)
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise SchemaError(f"{spark_type!r}: a decimal has 1 to 38 digits, and at most as many after the point")
    return f"decimal({precision},{scale})"


def arrow_type_of(name: str) -> pa.DataType:
    """The Arrow type in which Spark stores the type of this canonical name."""
    if name in _ARROW_TYPES:
        return _ARROW_TYPES[name]
    if _BOUNDED_TEXT.fullmatch(name):
        return pa.string()
    matched = _DECIMAL.fullmatch(name)
    if matched is None:
        raise SchemaError(f"{name!r} is no canonical name of a Spark type")
    return pa.decimal128(int(matched[1]), int(matched[2]))


def max_length_of(name: str) -> int | None:
    """How many characters a `varchar(n)` or `char(n)` holds; None for other types."""
    matched = _BOUNDED_TEXT.fullmatch(name)
    return None if matched is None else int(matched[2])


def _valid_bounded_text(name: str) -> bool:
    matched = _BOUNDED_TEXT.fullmatch(name)
    return matched is not None and matched[2] == str(int(matched[2])) and int(matched[2]) > 0


def _spelled(spark_type: Any) -> str:
    if isinstance(spark_type, str):
        return spark_type
    try:
        made = spark_type() if isinstance(spark_type, type) else spark_type
        name = made.simpleString()
    except (TypeError, AttributeError):
        name = None
    if not isinstance(name, str):
        raise SchemaError(
            f"{spark_type!r} is no Spark type; ScalarCodec takes a pyspark type such as IntegerType(), its name such "
            "as 'int', or an Arrow type"
        )
    return name


def _name_of_arrow_type(arrow_type: pa.DataType) -> str:
    if arrow_type in _NAMES_OF_ARROW_TYPES:
        return _NAMES_OF_ARROW_TYPES[arrow_type]
    if pa.types.is_decimal(arrow_type) and arrow_type.precision <= 38 and 0 <= arrow_type.scale <= arrow_type.precision:
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us":
        return "timestamp"
    raise SchemaError(
        f"Spark has no type that stores Arrow's {arrow_type}; leave the codec out to store the field's values in their "
        "natural type"
    )
