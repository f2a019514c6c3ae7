"""ScalarCodec: one value as one cell of a chosen Spark type."""

from __future__ import annotations

import dataclasses
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
from petastore.codecs.plain_sizes import plain_sizes
from petastore.codecs.spark_types import arrow_type_of, max_length_of, simple_type_name
from petastore.errors import EncodeError, SchemaError
from petastore.schema.arrow import natural_storage_type
from petastore.schema.codec import JsonValue, Viewer
from petastore.schema.field import UnischemaField

__all__ = ["ScalarCodec"]


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarCodec:
    """A scalar, stored as a Spark type; nothing is ever cut off to make it fit.

    Thread-safe. The value must equal what is stored: 3.0 goes into an `int`, and 3.7, 2**31 and `"3"` are refused. A
    float may be rounded to the nearest `float`, and a decimal is refused unless all its digits are kept.

    Args:
        spark_type: A pyspark `DataType` (or its class), its name (`"int"`, `"decimal(10,4)"`, `"varchar(10)"`), or the
            Arrow type of the same meaning. Kept as the canonical name, so that equal types make equal codecs.

    Raises:
        SchemaError: There is no such scalar type.

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
        petastore.errors.EncodeError: column 'age': int 300 cannot be written as uint8 stored as int16: uint8 holds
        0 to 255
    """

    spark_type: str
    """Canonical simple name of the Spark type, such as `"int"`."""

    codec_id: ClassVar[str] = "scalar"

    def __post_init__(self) -> None:
        object.__setattr__(self, "spark_type", simple_type_name(self.spark_type))

    def config(self) -> Mapping[str, JsonValue]:
        """`{"spark_type": "int"}`."""
        return {"spark_type": self.spark_type}

    def check_field(self, field: UnischemaField) -> None:
        """The field is a scalar whose dtype the Spark type can hold.

        Raises:
            SchemaError: It has dimensions, or is of another kind (text in an `int`).
        """
        if not field.is_scalar:
            raise SchemaError(
                f"field {field.name!r}: ScalarCodec stores scalars, but the field declares shape {field.shape}; use "
                "NdarrayCodec()"
            )
        if not _can_hold(arrow_type_of(self.spark_type), field):
            raise SchemaError(
                f"field {field.name!r}: a {field.dtype_name} cannot be stored as {self.spark_type!r}; choose a Spark "
                "type of the same kind"
            )

    def is_implied(self, field: UnischemaField) -> bool:
        """Whether the field would be stored just so without a codec.

        Example:
            >>> ScalarCodec("int").is_implied(UnischemaField("n", "int32"))
            True
        """
        is_bounded = max_length_of(self.spark_type) is not None
        return not is_bounded and arrow_type_of(self.spark_type) == natural_storage_type(field)

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - the type is the codec's
        """The Arrow type that Spark writes for the type."""
        return arrow_type_of(self.spark_type)

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """One scalar to the Python object of its cell.

        Raises:
            EncodeError: The value is of another kind, out of range, or would lose something.
        """
        cell = encode_scalar(field, value, arrow_type_of(self.spark_type))
        longest = max_length_of(self.spark_type)
        if longest is not None and len(cell) > longest:
            raise EncodeError(
                f"a text of {len(cell)} characters came, but {self.spark_type} holds {longest}", column=field.name
            )
        return cell

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """One cell to a NumPy scalar of the declared dtype, or to `str`, `bytes`, `Decimal`.

        Raises:
            DecodeError: The cell is no value of the declared dtype.
        """
        return decode_scalar(field, cell)

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Many scalars to a column of the Spark type.

        Args:
            values: An array `(rows,)`, or a list; None, and masked, become null.
            field: What was declared.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        column = encode_scalars(values, field, arrow_type_of(self.spark_type))
        longest = max_length_of(self.spark_type)
        if longest is not None:
            row = pc.index(pc.greater(pc.utf8_length(column), longest), True).as_py()
            if row >= 0:
                raise EncodeError(
                    f"a text of {len(column[row].as_py())} characters came, but {self.spark_type} holds {longest}",
                    column=field.name,
                    row=row,
                )
        return column

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """A column into `out` of shape `(rows,)`.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        decode_scalars(cells, field, out)

    def viewer(self, field: UnischemaField) -> Viewer:
        """Numbers and times that are stored just as they are declared; None for all other columns."""
        return scalars_viewer(field)

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """What text, bytes take by their lengths; None for numbers and times."""
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
