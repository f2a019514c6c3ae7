"""Is an array what its field declares? Checked before anything is written, and after anything is read."""

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
    "same_dtype",
    "shape_below_empty",
]


def shape_below_empty(shape: tuple[int, ...], declared: tuple[int | None, ...]) -> tuple[int, ...]:
    """The shape with the declared sizes below an empty list, where nothing else says them."""
    if 0 not in shape:
        return shape
    end = shape.index(0) + 1
    return (*shape[:end], *(size or 0 for size in declared[end:]))


def same_dtype(dtype: np.dtype[Any], field: UnischemaField) -> bool:
    """Whether an array of `dtype` holds values of the field: byte order, text width and time unit do not matter."""
    declared = field.dtype
    if declared == dtype:
        return declared.kind != "O"
    if declared.kind in "OmM":
        return dtype.kind == np.dtype(field.numpy_dtype).kind != "O"
    return dtype.newbyteorder("=") == declared


def check_array_field(field: UnischemaField, codec: str) -> None:
    """Refuse the dtypes that arrays of bytes cannot have.

    Raises:
        SchemaError: `Decimal` or `object`.
    """
    if field.numpy_dtype is Decimal or field.numpy_dtype is np.object_:
        raise SchemaError(
            f"field {field.name!r}: {codec} stores arrays of numbers, booleans, times, text and bytes, but the field "
            f"declares {field.dtype_name}; use ScalarCodec('decimal(38,18)') for one Decimal a row"
        )


def array_to_write(field: UnischemaField, value: Any) -> NDArray[Any]:
    """The array that is to be written, once it is what the field declares.

    Raises:
        EncodeError: It is None, no array, or of another dtype or shape.
    """
    if value is None:
        raise EncodeError("None was given to encode; a null is written by leaving the cell out", column=field.name)
    if isinstance(value, np.generic) and field.is_scalar:
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        problem = f"{type(value).__name__} came; give a numpy.ndarray"
    elif not same_dtype(value.dtype, field):
        problem = f"an array of {value.dtype} came; convert it with value.astype({field.dtype_name!r}) if you mean that"
    elif not field.fits(value.shape):
        problem = f"an array of shape {value.shape} came"
    else:
        return value
    raise EncodeError(f"the field declares {field.dtype_name} of shape {field.shape}, but {problem}", column=field.name)


def arrays_alike(values: Sequence[Any] | NDArray[Any]) -> bool:
    """Whether all values are C-contiguous arrays of one dtype and shape: what holds for one then holds for all."""
    first = values[0] if len(values) else None
    if type(first) is not np.ndarray:
        return False
    dtype, shape = first.dtype, first.shape
    return all(
        type(value) is np.ndarray and value.shape == shape and value.dtype == dtype and value.flags.c_contiguous
        for value in values
    )
