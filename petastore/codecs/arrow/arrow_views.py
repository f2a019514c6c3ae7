"""Arrow columns that are NumPy arrays already: their values looked at in Arrow's own buffers, without a copy.

Only what is stored just as it is declared is looked at; whatever needs a cast, a check or a refusal is left to
`petastore.codecs.arrow.arrow_to_numpy` and `petastore.codecs.arrow.arrow_lists`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow_memory import numbers_of
from petastore.codecs.arrow.arrow_to_numpy import plain_layout
from petastore.schema.arrow import axes_in_storage, tensor_shape
from petastore.schema.field import UnischemaField

__all__ = ["view_lists", "view_scalars"]


def view_scalars(cells: pa.Array, field: UnischemaField) -> NDArray[Any] | None:
    """The values of a column of numbers or times, shape (rows,); values under nulls are arbitrary.

    Example:
        >>> view_scalars(pa.array([1, None, 3]), UnischemaField("id", "int64"))[[0, 2]].tolist()
        [1, 3]
        >>> view_scalars(pa.array([1, 2]), UnischemaField("id", "int32")) is None
        True
    """
    if isinstance(cells, (pa.ExtensionArray, pa.RunEndEncodedArray)):
        cells = plain_layout(cells)
    dtype = field.dtype
    if _dtype_of(cells.type) != dtype:
        return None
    values: NDArray[Any] = numbers_of(cells.view(pa.int64()) if dtype.kind in "mM" else cells).view(dtype)
    return values


def view_lists(cells: pa.Array, field: UnischemaField) -> NDArray[Any] | None:
    """The values of a column of lists that all have the declared sizes and no nulls, shape (rows, *field.shape)."""
    if isinstance(cells, pa.ExtensionArray):
        return _view_tensors(cells, field)
    rows, leaves = len(cells), cells
    for size in field.shape:
        leaves = _items(leaves, size)
        if leaves is None:
            break
    if leaves is None or leaves.null_count:
        return None
    values = view_scalars(leaves, field)
    return None if values is None else values.reshape(rows, *field.shape)


def _view_tensors(cells: pa.ExtensionArray, field: UnischemaField) -> NDArray[Any] | None:
    """`view_lists` of a tensor column: its logical axes over the stored ones, so the view need not be contiguous."""
    if not isinstance(cells.type, pa.FixedShapeTensorType) or tensor_shape(cells.type) != field.shape:
        return None
    leaves = None if cells.null_count else cells.storage.flatten()
    values = None if leaves is None or leaves.null_count else view_scalars(leaves, field)
    if values is None:
        return None
    stored = values.reshape(len(cells), *cells.type.shape)
    return stored.transpose(0, *(axis + 1 for axis in axes_in_storage(cells.type)))


def _items(lists: pa.Array, size: int | None) -> pa.Array | None:
    """What lists of just this size hold, end to end; None for others."""
    if lists.null_count:
        return None
    if isinstance(lists, pa.FixedSizeListArray):
        return lists.flatten() if lists.type.list_size == size else None
    if not isinstance(lists, (pa.ListArray, pa.LargeListArray)) or len(lists) == 0:
        return None
    width = np.int32 if isinstance(lists, pa.ListArray) else np.int64
    first = lists.offset * np.dtype(width).itemsize
    offsets = np.frombuffer(lists.buffers()[1], width, len(lists) + 1, first)
    return lists.flatten() if bool((np.diff(offsets) == size).all()) else None


def _dtype_of(stored: pa.DataType) -> np.dtype[Any] | None:
    types = pa.types
    if types.is_integer(stored) or types.is_floating(stored):
        return np.dtype(stored.to_pandas_dtype())
    if types.is_timestamp(stored):
        return np.dtype(f"datetime64[{stored.unit}]")
    if types.is_duration(stored):
        return np.dtype(f"timedelta64[{stored.unit}]")
    return None
