"""Is an array what its field declares? Checked before anything is written, and after anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import EncodeError, SchemaError
from petastore.schema.field import UnischemaField

__all__ = ["array_to_write", "check_array_field", "same_dtype", "shape_below_empty", "shape_fits", "shape_text"]


def shape_fits(shape: Sequence[int], declared: Sequence[int | None]) -> bool:
    """Whether a shape is what was declared: `None` is any size, and 0 is 0.

    Example:
        >>> shape_fits((4, 0), (None, 0)), shape_fits((4, 1), (None, 0)), shape_fits((4,), (None, 0))
        (True, False, False)
    """
    return len(shape) == len(declared) and all(
        wanted is None or size == wanted for size, wanted in zip(shape, declared, strict=True)
    )


def shape_below_empty(shape: tuple[int, ...], declared: tuple[int | None, ...]) -> tuple[int, ...]:
    """The shape with the declared sizes below an empty list, where nothing else says them."""
    if 0 not in shape:
        return shape
    end = shape.index(0) + 1
    return (*shape[:end], *(size or 0 for size in declared[end:]))


def shape_text(shape: Sequence[int | None]) -> str:
    """A shape for a message."""
    return "×".join("any" if size is None else str(size) for size in shape) or "scalar"


def same_dtype(dtype: np.dtype[Any], field: UnischemaField) -> bool:
    """Whether an array of `dtype` holds values of the field: byte order, text width and time unit do not matter."""
    declared = field.numpy_dtype
    if declared in (np.str_, np.bytes_) or field.dtype.kind in "mM":
        return dtype.kind == np.dtype(declared).kind
    return dtype.newbyteorder("=") == field.dtype


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
    declared = f"the field declares {field.dtype_name} of shape {field.shape}"
    if isinstance(value, np.generic) and field.is_scalar:
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise EncodeError(f"{declared}, but {type(value).__name__} came; give a numpy.ndarray", column=field.name)
    if not same_dtype(value.dtype, field):
        raise EncodeError(
            f"{declared}, but an array of {value.dtype} came; convert it with value.astype({field.dtype_name!r}) "
            "where that is what you mean",
            column=field.name,
        )
    if not shape_fits(value.shape, field.shape):
        raise EncodeError(f"{declared}, but an array of shape {value.shape} came", column=field.name)
    return value
