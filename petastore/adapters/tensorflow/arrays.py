"""Arrays as TensorFlow takes them: of its dtypes, in its byte order, and in memory that it can share."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from petastore.adapters.columns import nanoseconds
from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["aligned", "plain", "sizes_of", "tf_dtype"]

_ALIGNMENT = 64
"""Bytes; an array that begins elsewhere is copied by TensorFlow."""


def tf_dtype(field: UnischemaField) -> Any:
    """The dtype of a field's tensors.

    Raises:
        InvalidArgumentError: There is none.
    """
    if field.numpy_dtype in (np.str_, np.bytes_, Decimal):
        return tf.string
    if field.dtype.kind in "mM":
        return tf.int64
    try:
        if field.dtype != np.dtype(object):
            return tf.as_dtype(field.dtype)
    except TypeError:
        pass
    raise InvalidArgumentError(
        f"column {field.name!r} is {field.dtype_name}, and TensorFlow has no such type; leave it out with "
        "schema_fields, or convert it in a transform_spec"
    )


def plain(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Values in a dtype and byte order that TensorFlow takes."""
    if values.dtype.kind in "mM":
        return nanoseconds(name, values)
    if values.dtype.kind in "OSU":
        return _texts(values)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    texts = values.astype(object, copy=False)
    first = next(iter(texts.flat), None)
    if not isinstance(first, Decimal):
        return texts
    return np.array([str(value.normalize()) for value in texts.flat], dtype=object).reshape(texts.shape)


def aligned(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A new array of so many arbitrary values, which TensorFlow need not copy.

    Example:
        >>> aligned(3, np.dtype("int16")).__array_interface__["data"][0] % 64
        0
    """
    memory = np.empty(size * dtype.itemsize + _ALIGNMENT, np.uint8)
    first = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return memory[first : first + size * dtype.itemsize].view(dtype)


def sizes_of(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The sizes that are known."""
    return tuple(size for size in shape if size is not None)
