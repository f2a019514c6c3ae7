"""PlainCodec, the default codec: values are stored as the matching Parquet type.

Spark has no unsigned integers and no float16, so these are stored as the next wider type (`petastore.schema.arrow`),
and checked when they are read. Columns of plain Parquet may be stored in any type that holds the declared values
exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow import flags_of, numbers_of
from petastore.codecs.arrow.arrow_lists import decode_lists, nothing_of
from petastore.codecs.arrow.arrow_objects import decode_objects
from petastore.codecs.arrow.arrow_to_numpy import decode_scalars, plain_layout
from petastore.codecs.arrow.arrow_views import lists_viewer, scalars_viewer
from petastore.codecs.arrow.numpy_to_arrow import encode_lists, encode_scalars
from petastore.codecs.arrow.scalars import InexactError, decode_scalar, describe, encode_scalar, nested_values
from petastore.codecs.declared import check_present, shape_below_empty
from petastore.errors import DecodeError, SchemaError
from petastore.schema.arrow import is_list, is_text, natural_storage_type
from petastore.schema.field import JsonValue, UnischemaField, Viewer
from petastore.schema.values import with_missing

__all__ = ["PlainCodec", "plain_sizes"]


_OBJECT_BYTES = 64
"""Bytes of a Python object without its content, including the reference to the object."""

_BYTES_OF_TEXT = 2
"""Usual maximum bytes of a Python string per byte of its UTF-8 text.

A rare character outside the Unicode BMP makes Python store each character of the string in four bytes.
"""


def plain_sizes(cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
    """Return the decoded bytes of each value, shape (rows,).

    Return None if all values of the field have the same size.

    Args:
        cells: A column without nulls.
        field: Declared field.

    Example:
        >>> plain_sizes(pa.array([[1, 2], [], [3]]), UnischemaField("x", "int64", (None,)))
        array([16,  0,  8])
        >>> plain_sizes(pa.array(["a", "abc"]), UnischemaField("x", str))
        array([66, 70])
    """
    if field.decoded_bytes is not None:
        return None
    itemsize = None if field.dtype.hasobject else field.dtype.itemsize
    return _sizes(plain_layout(cells), itemsize)


def _sizes(cells: pa.Array, itemsize: int | None) -> NDArray[np.int64]:
    """Return the decoded bytes of each cell, shape (rows,).

    Args:
        cells: The column.
        itemsize: Bytes of one number or time; None if values become Python objects.
    """
    stored = cells.type
    if isinstance(cells, pa.DictionaryArray):
        return _of_missing(_sizes(plain_layout(cells.dictionary), itemsize), cells.indices)
    if is_list(stored):
        borders = np.zeros(len(cells) + 1, np.int64)
        np.cumsum(_numbers_or_0(pc.list_value_length(cells)), out=borders[1:])
        inner = plain_layout(cells.flatten())
        if itemsize is not None and not pa.types.is_nested(inner.type):
            return np.diff(borders) * itemsize
        ends = np.zeros(len(inner) + 1, np.int64)
        np.cumsum(_sizes(inner, itemsize), out=ends[1:])
        return np.diff(ends[borders])
    if _has_lengths(stored):
        each = _BYTES_OF_TEXT if is_text(stored) else 1
        return _numbers_or_0(pc.binary_length(cells)) * each + _OBJECT_BYTES
    if pa.types.is_nested(stored):
        # The size of structs and maps is only estimated, because they become dicts and lists of Python objects.
        return np.full(len(cells), _OBJECT_BYTES + _OBJECT_BYTES * cells.nbytes // max(len(cells), 1), np.int64)
    return np.full(len(cells), _OBJECT_BYTES if itemsize is None else itemsize, np.int64)


def _has_lengths(stored: pa.DataType) -> bool:
    """Return whether a type is text or bytes whose lengths can be computed from offsets."""
    types = pa.types
    is_string = types.is_string(stored) or types.is_large_string(stored)
    return bool(is_string or types.is_binary(stored) or types.is_large_binary(stored))


def _of_missing(distinct: NDArray[np.int64], indices: Any) -> NDArray[np.int64]:
    """Return the size of each value of a dictionary-encoded column, shape (rows,).

    A missing value counts as the first distinct value.

    Args:
        distinct: Sizes of the distinct values; if it is empty, all sizes are 0.
        indices: Index of each value among the distinct values, as an Arrow array.
    """
    if len(distinct) == 0:
        return np.zeros(len(indices), np.int64)
    return distinct[_numbers_or_0(indices)]


def _numbers_or_0(numbers: Any) -> NDArray[np.int64]:
    """Return the numbers of a column as int64, with 0 for missing values."""
    found = numbers_of(numbers).astype(np.int64)
    if numbers.null_count:
        found[flags_of(numbers.is_null())] = 0
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class PlainCodec:
    """The codec of fields that declare no codec.

    Values are stored as the matching Parquet type. Thread-safe. Numbers, booleans and times are converted without a
    Python object per row. Schema documents do not contain this codec.

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
        """Return an empty dict, because the codec has no parameters."""
        return {}

    def check_field(self, field: UnischemaField) -> None:
        """Raise an error for every field: declare `codec=None` instead of `PlainCodec`.

        Raises:
            SchemaError: Always.
        """
        raise SchemaError(
            f"field {field.name!r}: codec must be None to store values in their natural type, got PlainCodec"
        )

    def storage_type(self, field: UnischemaField) -> pa.DataType:
        """Return the Arrow type that matches the field's dtype and shape.

        Raises:
            SchemaError: No Arrow type matches the field, so it needs a codec.
        """
        return natural_storage_type(field)

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """Encode one value as one cell; arrays become nested lists.

        Raises:
            EncodeError: The value has another dtype or shape, or is out of range.
        """
        stored = natural_storage_type(field)
        if field.is_scalar:
            return encode_scalar(field, value, stored)
        check_present(value, field)
        (cell,) = encode_lists([value], field, stored).to_pylist()
        return cell

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """Decode one cell to a NumPy scalar or array, or to a Python object.

        Python objects are `str`, `bytes`, `Decimal`, and values of structs and maps.

        Raises:
            DecodeError: The cell does not match the field.
        """
        if field.is_scalar:
            return decode_scalar(field, cell)
        try:
            leaves, shape = nested_values(cell, len(field.shape))
        except InexactError as problem:
            if not field.is_fixed and len(field.shape) > 1 and isinstance(cell, list):
                return self._inner_lists(field, cell)
            raise DecodeError(f"the cell {describe(cell)} cannot be read: {problem}", column=field.name) from None
        shape = shape_below_empty(shape, field.shape)
        if not field.fits(shape):
            raise DecodeError(
                f"the cell must have shape {field.shape}, as the field declares, got {shape}", column=field.name
            )
        value: NDArray[Any] = np.empty(len(leaves), field.dtype)
        is_null = np.array([leaf is None for leaf in leaves], np.bool_)
        if field.is_fixed and is_null.any():
            raise DecodeError(
                "the cell must not contain null values, because an array of a fixed shape cannot store them. Leave the "
                "column out with schema_fields",
                column=field.name,
            )
        value[is_null] = nothing_of(field.dtype)
        for position in np.flatnonzero(~is_null).tolist():
            value[position] = decode_scalar(field, leaves[position])
        return with_missing(value.reshape(shape), None if value.dtype.hasobject else is_null.reshape(shape))

    def _inner_lists(self, field: UnischemaField, cell: list[Any]) -> NDArray[Any]:
        """Decode nested lists of different lengths to an object array of the inner lists.

        Null inner lists become None.
        """
        if field.shape[0] not in (None, len(cell)):
            raise DecodeError(
                f"the cell must have {field.shape[0]:,} lists for shape {field.shape}, which the field declares, got "
                f"{len(cell):,}",
                column=field.name,
            )
        inner = dataclasses.replace(field, shape=field.shape[1:])
        lists = np.empty(len(cell), object)
        for place, value in enumerate(cell):
            if value is not None and len(inner.shape) > 1:
                lists[place] = self._inner_lists(inner, value)
            elif value is not None:
                lists[place] = self.decode(inner, value)
        return lists

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Encode many values as a column of `storage_type(field)`.

        Args:
            values: An array `(rows, *shape)` of the field's dtype, or a list of values; None becomes null.
            field: The field of the column.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        stored = natural_storage_type(field)
        if field.is_scalar:
            return encode_scalars(values, field, stored)
        return encode_lists(values, field, stored)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode a column of any compatible type into `out`.

        Values of a field with variable dimensions are views of one array. Lists with nulls become masked arrays. Lists
        of unequal lengths, and lists with null inner lists, become object arrays of the inner lists.

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
        """Return a function that views a column as a NumPy array, zero-copy.

        The function returns None if the column must be converted.
        """
        return scalars_viewer(field) if field.is_scalar else lists_viewer(field)

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """Return the decoded bytes of each value, shape (rows,); see `plain_sizes`.

        Return None if all values of the field have the same size.
        """
        return plain_sizes(cells, field)
