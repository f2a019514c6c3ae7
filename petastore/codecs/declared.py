"""Check that an array has the dtype and shape that its field declares.

Arrays are checked before they are written, and after they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import EncodeError, SchemaError
from petastore.schema.field import UnischemaField

__all__ = [
    "array_to_write",
    "arrays_alike",
    "check_array_field",
    "check_present",
    "same_dtype",
    "shape_below_empty",
]


def shape_below_empty(shape: tuple[int, ...], declared: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the shape of nested lists, with declared sizes below an empty list.

    The sizes of dimensions inside an empty list are unknown, so the sizes that the field declares are used.
    """
    if 0 not in shape:
        return shape
    end = shape.index(0) + 1
    return (*shape[:end], *(size or 0 for size in declared[end:]))


def same_dtype(dtype: np.dtype[Any], field: UnischemaField) -> bool:
    """Return whether an array of `dtype` can hold the values of a field.

    Byte order, text width and time unit may differ.
    """
    declared = field.dtype
    if declared == dtype:
        return declared.kind != "O"
    if declared.kind in "OmM":
        return dtype.kind == np.dtype(field.numpy_dtype).kind != "O"
    return dtype.newbyteorder("=") == declared


def check_array_field(field: UnischemaField, codec: str) -> None:
    """Raise an error for dtypes that array codecs do not support.

    Raises:
        SchemaError: The dtype is `Decimal` or `object`.
    """
    if field.numpy_dtype is Decimal or field.numpy_dtype is np.object_:
        raise SchemaError(
            f"field {field.name!r}: {codec} needs numbers, booleans, times, text or bytes, got {field.dtype_name}. "
            "Use ScalarCodec('decimal(38,18)') for one Decimal per row"
        )


def check_present(value: Any, field: UnischemaField) -> None:
    """Raise an error for a missing value.

    Raises:
        EncodeError: The value is None.
    """
    if value is None:
        raise EncodeError(
            "the value must not be None, because a codec encodes only values that exist. For a missing value, store a "
            "null without calling encode",
            column=field.name,
        )


def array_to_write(field: UnischemaField, value: Any) -> NDArray[Any]:
    """Check that a value is an array that fits the field; return the array to write.

    A NumPy scalar becomes an array of shape ().

    Raises:
        EncodeError: The value is None, is not an array, or has another dtype or shape.
    """
    check_present(value, field)
    if isinstance(value, np.generic) and field.is_scalar:
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        found = type(value).__name__
    elif not same_dtype(value.dtype, field):
        found = f"dtype {value.dtype}. If a conversion is intended, write value.astype({field.dtype_name!r})"
    elif not field.fits(value.shape):
        found = f"shape {value.shape}"
    else:
        return value
    raise EncodeError(
        f"the value must be a numpy.ndarray of {field.dtype_name} and shape {field.shape}, as the field declares, got "
        f"{found}",
        column=field.name,
    )


def arrays_alike(values: Sequence[Any] | NDArray[Any]) -> bool:
    """Return whether all values are C-contiguous arrays of one dtype and shape."""
    first = values[0] if len(values) else None
    if type(first) is not np.ndarray:
        return False
    dtype, shape = first.dtype, first.shape
    return all(
        type(value) is np.ndarray and value.shape == shape and value.dtype == dtype and value.flags.c_contiguous
        for value in values
    )
