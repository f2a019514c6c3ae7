"""How much memory text, bytes and lists take once they are Python objects and arrays, worked out on whole columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow.memory import flags_of, numbers_of
from petastore.codecs.arrow.arrow_to_numpy import plain_layout
from petastore.codecs.arrow.arrow_views import lengths_of
from petastore.schema.arrow import is_list, is_text
from petastore.schema.field import UnischemaField

__all__ = ["plain_sizes"]

_OBJECT_BYTES = 64
"""What a Python object takes besides its content, and the reference to it."""

_BYTES_OF_TEXT = 2
"""Bytes of memory for a byte of UTF-8 at most, unless one character of many is a rare one: then Python takes four."""


def plain_sizes(cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
    """Bytes of each value once decoded, shape (rows,); None where all values of the field take as much.

    Args:
        cells: A column without nulls.
        field: What was declared.

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
    """Sizes of cells whose numbers become items of so many bytes; None makes Python objects of them."""
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
        return _or_0(lengths_of(cells), cells) * each + _OBJECT_BYTES
    if pa.types.is_nested(stored):
        # Structs and maps become dicts and lists of all that is in them, which nobody counts one by one.
        return np.full(len(cells), _OBJECT_BYTES + _OBJECT_BYTES * cells.nbytes // max(len(cells), 1), np.int64)
    return np.full(len(cells), _OBJECT_BYTES if itemsize is None else itemsize, np.int64)


def _has_lengths(stored: pa.DataType) -> bool:
    """Whether it is text or bytes between offsets."""
    types = pa.types
    is_string = types.is_string(stored) or types.is_large_string(stored)
    return bool(is_string or types.is_binary(stored) or types.is_large_binary(stored))


def _of_missing(distinct: NDArray[np.int64], indices: Any) -> NDArray[np.int64]:
    """The sizes of values that are named by their places; those without a place have none."""
    if len(distinct) == 0:
        return np.zeros(len(indices), np.int64)
    return distinct[_numbers_or_0(indices)]


def _numbers_or_0(numbers: Any) -> NDArray[np.int64]:
    """The numbers of a column, and 0 where none is; Arrow would load pandas to be told of the 0."""
    return _or_0(numbers_of(numbers).astype(np.int64), numbers)


def _or_0(found: NDArray[np.int64], cells: Any) -> NDArray[np.int64]:
    """Numbers of cells, and 0 where a cell is missing; they are changed where they lie."""
    if cells.null_count:
        found[flags_of(cells.is_null())] = 0
    return found
