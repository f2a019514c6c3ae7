"""Decoded columns, as readers give them, as Arrow columns of the same values: numbers keep their dtype."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.lists_to_arrow import encode_lists
from petastore.errors import SchemaError
from petastore.schema.arrow import storage_type
from petastore.schema.field import UnischemaField

__all__ = ["decoded_to_arrow"]


def decoded_to_arrow(values: NDArray[Any], field: UnischemaField) -> pa.Array:
    """One Arrow array of the values of a column; arrays become nested lists.

    Args:
        values: `(rows, *shape)`, masked where values are missing, or `(rows,)` of objects with None.
        field: What they are.

    Raises:
        SchemaError: Arrow has no type for them.

    Example:
        >>> pose = UnischemaField("pose", "uint8", (2,), nullable=True)
        >>> decoded_to_arrow(np.ma.MaskedArray(np.array([[1, 2], [0, 0]], "uint8"), [[0, 0], [1, 1]]), pose).to_pylist()
        [[1, 2], None]
    """
    if field.shape:
        stored = _leaf(field)
        for _ in field.shape:
            stored = pa.list_(pa.field("element", stored, nullable=False))
        return encode_lists(_with_none(values), dataclasses.replace(field, codec=None), stored)
    if field.numpy_dtype is np.object_:
        cells = field.codec.encode_column(values, field) if field.codec is not None else pa.array(values.tolist())
        return cells.view(getattr(field.codec, "arrow_type", cells.type))
    if field.dtype.hasobject:
        return pa.array(values.tolist(), _leaf(field))
    mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    return pa.array(np.ma.getdata(values), _leaf(field), mask=mask)


def _leaf(field: UnischemaField) -> pa.DataType:
    scalar = dataclasses.replace(field, shape=(), codec=None)
    if field.numpy_dtype is Decimal and not field.shape:
        return storage_type(field)
    if field.dtype.hasobject:
        return storage_type(scalar)
    try:
        return pa.from_numpy_dtype(field.dtype)
    except pa.ArrowException:
        raise SchemaError(
            f"field {field.name!r}: Arrow has no type for {field.dtype_name}; leave the column out"
        ) from None


def _with_none(values: NDArray[Any]) -> Any:
    """Arrays with None for what is missing."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    mask = np.ma.getmaskarray(values).reshape(len(values), -1)
    gone = np.logical_or.reduce(mask, axis=1).tolist()
    return [None if is_missing else value for is_missing, value in zip(gone, np.ma.getdata(values), strict=True)]
