"""ScalarCodec: scalars, stored as a given Spark type such as `decimal(10,4)`.

Types have the simple names of Spark SQL; pyspark is not needed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.codecs.arrow.arrow_to_numpy import decode_scalars
from petastore.codecs.arrow.arrow_views import scalars_viewer
from petastore.codecs.arrow.numpy_to_arrow import encode_scalars
from petastore.codecs.arrow.scalars import decode_scalar, encode_scalar
from petastore.codecs.plain import plain_sizes
from petastore.errors import EncodeError, SchemaError
from petastore.schema.arrow import natural_storage_type
from petastore.schema.field import JsonValue, UnischemaField, Viewer

__all__ = ["ScalarCodec", "arrow_type_of", "max_length_of", "simple_type_name"]


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
    """Return the canonical simple name of a Spark scalar type.

    Args:
        spark_type: A pyspark `DataType` or its class, an Arrow `DataType`, or the name of a type in Spark SQL.

    Raises:
        SchemaError: The argument is not a Spark type, or Parquet cannot store it as a scalar.

    Example:
        >>> import pyarrow as pa
        >>> simple_type_name("Integer"), simple_type_name("decimal(10, 4)"), simple_type_name(pa.int64())
        ('int', 'decimal(10,4)', 'bigint')
    """
    if isinstance(spark_type, pa.DataType):
        return _name_of_arrow_type(spark_type)
    name = _spelled(spark_type).strip().lower()
    # A collation defines only the order of texts; the stored bytes are the same, so it is ignored.
    name = "string" if name.startswith("string collate ") else "".join(name.split())
    name = _OTHER_NAMES.get(name, name)
    if name in _ARROW_TYPES or _valid_bounded_text(name):
        return name
    matched = _DECIMAL.fullmatch(name)
    if matched is None:
        raise SchemaError(
            f"spark_type must be a scalar pyspark type such as IntegerType(), or one of {', '.join(_ARROW_TYPES)}, "
            f"decimal(precision,scale), varchar(length), char(length), got {spark_type!r}"
        )
    precision, scale = int(matched[1]), int(matched[2] or 0)
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise SchemaError(
            f"spark_type must be a decimal of 1 to 38 digits, with at most as many after the point, got {spark_type!r}"
        )
    return f"decimal({precision},{scale})"


def arrow_type_of(name: str) -> pa.DataType:
    """Return the Arrow type that Spark stores for the type with this canonical name."""
    if name in _ARROW_TYPES:
        return _ARROW_TYPES[name]
    if _BOUNDED_TEXT.fullmatch(name):
        return pa.string()
    matched = _DECIMAL.fullmatch(name)
    if matched is None:
        raise SchemaError(f"spark_type must be a Spark type name such as 'int' or 'decimal(10,2)', got {name!r}")
    return pa.decimal128(int(matched[1]), int(matched[2]))


def max_length_of(name: str) -> int | None:
    """Return the maximum length of `varchar(n)` or `char(n)`; None for other types."""
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
            "spark_type must be a pyspark type such as IntegerType(), its name such as 'int', or an Arrow type, got "
            f"{spark_type!r}"
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
        f"spark_type must be a type that Spark can store, got Arrow's {arrow_type}. Leave the codec out to store "
        "values in their natural type"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarCodec:
    """A codec for scalars, stored as a given Spark type.

    Values that do not fit raise an error. Thread-safe. The stored value must equal the original: an `int` accepts 3.0
    and rejects 3.7, 2**31 and `"3"`. A float may be rounded to the nearest `float`; a decimal must keep all its digits.

    Args:
        spark_type: A pyspark `DataType` (or its class), its name (`"int"`, `"decimal(10,4)"`, `"varchar(10)"`), or the
            equivalent Arrow type. Stored under its canonical name, so that equal types make equal codecs.

    Raises:
        SchemaError: `spark_type` is not a scalar Spark type.

    Example:
        >>> import pyarrow as pa
        >>> ScalarCodec("integer") == ScalarCodec(pa.int32())
        True
        >>> field = UnischemaField("age", "uint8", (), ScalarCodec("smallint"))
        >>> field.codec.encode(field, 7.0)
        7
        >>> field.codec.encode(field, 300)
        Traceback (most recent call last):
            ...
        petastore.errors.EncodeError: column 'age': int 300 cannot be written as uint8 stored as int16: the
        value must be from 0 to 255, the range of uint8
    """

    spark_type: str
    """Canonical simple name of the Spark type, such as `"int"`."""

    codec_id: ClassVar[str] = "scalar"

    def __post_init__(self) -> None:
        object.__setattr__(self, "spark_type", simple_type_name(self.spark_type))

    def config(self) -> Mapping[str, JsonValue]:
        """Return the name of the Spark type, such as `{"spark_type": "int"}`."""
        return {"spark_type": self.spark_type}

    def check_field(self, field: UnischemaField) -> None:
        """Check that the field is a scalar whose dtype the Spark type can hold.

        Raises:
            SchemaError: The field is an array, or its dtype does not fit the Spark type (such as text in an `int`).
        """
        if not field.is_scalar:
            raise SchemaError(
                f"field {field.name!r}: ScalarCodec needs shape (), got {field.shape}. Use NdarrayCodec()"
            )
        if not _can_hold(arrow_type_of(self.spark_type), field):
            raise SchemaError(
                f"field {field.name!r}: {field.dtype_name} cannot be stored as {self.spark_type!r}. Choose a Spark "
                "type of the same kind"
            )

    def is_implied(self, field: UnischemaField) -> bool:
        """Return whether the field would be stored as the same type without a codec.

        Example:
            >>> ScalarCodec("int").is_implied(UnischemaField("n", "int32"))
            True
        """
        is_bounded = max_length_of(self.spark_type) is not None
        return not is_bounded and arrow_type_of(self.spark_type) == natural_storage_type(field)

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - the codec defines the type
        """Return the Arrow type that Spark writes for the Spark type."""
        return arrow_type_of(self.spark_type)

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """Encode one scalar as the Python object of its cell.

        Raises:
            EncodeError: The value has the wrong type, is out of range, or would lose precision.
        """
        cell = encode_scalar(field, value, arrow_type_of(self.spark_type))
        longest = max_length_of(self.spark_type)
        if longest is not None and len(cell) > longest:
            raise EncodeError(
                f"the text must have at most {longest} characters for {self.spark_type}, got {len(cell)}",
                column=field.name,
            )
        return cell

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """Decode one cell to a NumPy scalar, `str`, `bytes` or `Decimal`.

        A NumPy scalar has the field's dtype.

        Raises:
            DecodeError: The cell does not fit the field's dtype.
        """
        return decode_scalar(field, cell)

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Encode many scalars as a column of the Spark type.

        Args:
            values: An array `(rows,)`, or a list; None and masked values become null.
            field: The field of the column.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        column = encode_scalars(values, field, arrow_type_of(self.spark_type))
        longest = max_length_of(self.spark_type)
        if longest is not None:
            row = pc.index(pc.greater(pc.utf8_length(column), longest), True).as_py()
            if row >= 0:
                raise EncodeError(
                    f"the text must have at most {longest} characters for {self.spark_type}, got "
                    f"{len(column[row].as_py())}",
                    column=field.name,
                    row=row,
                )
        return column

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode a column into `out` of shape `(rows,)`.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        decode_scalars(cells, field, out)

    def viewer(self, field: UnischemaField) -> Viewer:
        """Return a function that views a column as a NumPy array, zero-copy.

        The function returns None if the column must be converted.
        """
        return scalars_viewer(field)

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """Return the decoded bytes of text, bytes or decimals, shape (rows,).

        Return None for numbers and times, because all values of the field have the same size.
        """
        return plain_sizes(cells, field)


def _can_hold(stored: pa.DataType, field: UnischemaField) -> bool:
    types, kind = pa.types, field.dtype.kind
    number = types.is_boolean(stored) or types.is_integer(stored) or types.is_floating(stored)
    if field.numpy_dtype is Decimal:
        return bool(types.is_decimal(stored) or types.is_string(stored))
    if field.numpy_dtype in (np.str_, np.bytes_):
        return bool(types.is_string(stored) or types.is_binary(stored))
    if kind == "M":
        return bool(types.is_date(stored) or types.is_timestamp(stored))
    if kind == "m":
        return stored == pa.int64()
    return bool(kind in "biuf" and field.dtype.itemsize <= 8 and (number or types.is_decimal(stored)))
