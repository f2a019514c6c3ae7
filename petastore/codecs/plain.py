"""PlainCodec: values stored as the Parquet type of the same meaning; what a field without a codec has.

Spark has no unsigned integers and no halves, so these lie in the next wider type (`petastore.schema.arrow`), and are
checked on the way back. Columns of plain Parquet may be stored in any type that holds the declared values exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_lists import decode_lists
from petastore.codecs.arrow.arrow_objects import decode_objects
from petastore.codecs.arrow.arrow_to_numpy import decode_scalars
from petastore.codecs.arrow.arrow_views import lists_viewer, scalars_viewer
from petastore.codecs.arrow.lists_to_arrow import encode_lists
from petastore.codecs.arrow.numpy_to_arrow import encode_scalars
from petastore.codecs.arrow.scalars import InexactError, decode_scalar, describe, encode_scalar, nested_values
from petastore.codecs.declared import shape_below_empty
from petastore.codecs.plain_sizes import plain_sizes
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.arrow import natural_storage_type
from petastore.schema.codec import JsonValue, Viewer
from petastore.schema.field import UnischemaField

__all__ = ["PlainCodec"]


@dataclasses.dataclass(frozen=True, slots=True)
class PlainCodec:
    """How a field without a codec is stored; never named in a schema document.

    Thread-safe. Numbers, booleans and times cross without a Python object a row.

    Example:
        >>> import numpy as np, pyarrow as pa
        >>> codec, field = PlainCodec(), UnischemaField("age", "uint8")
        >>> cells = codec.encode_column([7, 200], field)
        >>> cells.type
        DataType(int16)
        >>> out = np.empty(2, "uint8")
        >>> codec.decode_column(cells, field, out)
        >>> out
        array([  7, 200], dtype=uint8)
    """

    codec_id: ClassVar[str] = "plain"

    def config(self) -> Mapping[str, JsonValue]:
        """Nothing to configure."""
        return {}

    def check_field(self, field: UnischemaField) -> None:
        """A plain field says so by having no codec.

        Raises:
            SchemaError: Always.
        """
        raise SchemaError(f"field {field.name!r}: leave the codec out (None) to store values as they are")

    def storage_type(self, field: UnischemaField) -> pa.DataType:
        """The natural Arrow type of the field.

        Raises:
            SchemaError: There is none; the field needs a codec.
        """
        return natural_storage_type(field)

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """One value to one cell; with dimensions, to lists inside lists.

        Raises:
            EncodeError: Wrong dtype, shape or range.
        """
        stored = natural_storage_type(field)
        if field.is_scalar:
            return encode_scalar(field, value, stored)
        (cell,) = encode_lists([_refuse_none(value, field)], field, stored).to_pylist()
        return cell

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """One cell to a NumPy scalar or array, or to `str`, `bytes`, `Decimal` or a Python object.

        Raises:
            DecodeError: The cell is not what the field declares.
        """
        if field.is_scalar:
            return decode_scalar(field, cell)
        try:
            leaves, shape = nested_values(cell, len(field.shape))
        except InexactError as problem:
            raise DecodeError(f"the cell {describe(cell)} cannot be read: {problem}", column=field.name) from None
        shape = shape_below_empty(shape, field.shape)
        if not field.fits(shape):
            raise DecodeError(f"the cell has shape {shape}, but {field.shape} is declared", column=field.name)
        value: NDArray[Any] = np.empty(len(leaves), field.dtype)
        for position, leaf in enumerate(leaves):
            value[position] = decode_scalar(field, leaf)
        return value.reshape(shape)

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Many values to a column of the natural type.

        Args:
            values: An array `(rows, *shape)` of the declared dtype, or a list of values; None becomes null.
            field: What was declared.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        stored = natural_storage_type(field)
        if field.is_scalar:
            return encode_scalars(values, field, stored)
        return encode_lists(values, field, stored)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """A column of any type that holds the declared values into `out`.

        Values with free dimensions are parts of one array, which lives as long as any of them.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        if field.numpy_dtype is np.object_:
            decode_objects(cells, field, out)
        elif field.is_scalar:
            decode_scalars(cells, field, out)
        else:
            decode_lists(cells, field, out)

    def viewer(self, field: UnischemaField) -> Viewer:
        """Numbers, times and lists of them that are stored just as they are declared; None for all other columns."""
        return scalars_viewer(field) if field.is_scalar else lists_viewer(field)

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """What text, bytes and lists take by their lengths; None for numbers and times."""
        return plain_sizes(cells, field)


def _refuse_none(value: Any, field: UnischemaField) -> Any:
    if value is None:
        raise EncodeError("None was given to encode; a null is written by leaving the cell out", column=field.name)
    return value
