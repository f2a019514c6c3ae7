"""Arrow columns that are NumPy arrays already: their values looked at in Arrow's own buffers, without a copy.

Only what is stored just as it is declared is looked at; whatever needs a cast, a check or a refusal is left to
`petastore.codecs.arrow.arrow_to_numpy` and `petastore.codecs.arrow.arrow_lists`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_to_numpy import plain_layout
from petastore.schema.arrow import axes_in_storage, tensor_shape
from petastore.schema.codec import Viewer
from petastore.schema.field import UnischemaField

__all__ = ["lists_viewer", "scalars_viewer"]


def scalars_viewer(field: UnischemaField) -> Viewer:
    """What gives the values of columns of numbers or times, shape (rows,); values under nulls are arbitrary.

    Example:
        >>> view = scalars_viewer(UnischemaField("id", "int64"))
        >>> view(pa.array([1, None, 3]))[[0, 2]].tolist()
        [1, 3]
        >>> view(pa.array([1, 2], pa.int32())) is None
        True
    """
    dtype = field.dtype
    right: pa.DataType | None = None

    def view(cells: pa.Array) -> NDArray[Any] | None:
        nonlocal right  # any thread may put another one there
        if isinstance(cells, (pa.ExtensionArray, pa.RunEndEncodedArray)):
            cells = plain_layout(cells)
        stored = cells.type
        if stored != right:
            if _dtype_of(stored) != dtype:
                return None
            right = stored
        data = cells.buffers()[1]
        if len(cells) == 0 or data is None:
            return np.empty(0, dtype)
        return np.frombuffer(data, dtype, len(cells), cells.offset * dtype.itemsize)

    return view


def lists_viewer(field: UnischemaField) -> Viewer:
    """What gives the values of columns of lists that all have the declared sizes and no nulls.

    Their shape is (rows, *field.shape).
    """
    numbers = scalars_viewer(field)

    def view(cells: pa.Array) -> NDArray[Any] | None:
        if isinstance(cells, pa.ExtensionArray):
            return _view_tensors(cells, field, numbers)
        rows, leaves = len(cells), cells
        for size in field.shape:
            leaves = _items(leaves, size)
            if leaves is None:
                return None
        values = None if leaves.null_count else numbers(leaves)
        return None if values is None else values.reshape(rows, *field.shape)

    return view


def _view_tensors(cells: pa.ExtensionArray, field: UnischemaField, numbers: Viewer) -> NDArray[Any] | None:
    """The tensors of a column: its logical axes over the stored ones, so the view need not be contiguous."""
    if not isinstance(cells.type, pa.FixedShapeTensorType) or tensor_shape(cells.type) != field.shape:
        return None
    leaves = None if cells.null_count else cells.storage.flatten()
    values = None if leaves is None or leaves.null_count else numbers(leaves)
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
    offsets: NDArray[Any] = np.frombuffer(lists.buffers()[1], width, len(lists) + 1, first)
    return lists.flatten() if bool((offsets[1:] - offsets[:-1] == size).all()) else None


def _dtype_of(stored: pa.DataType) -> np.dtype[Any] | None:
    types = pa.types
    if types.is_integer(stored) or types.is_floating(stored):
        return np.dtype(stored.to_pandas_dtype())
    if types.is_timestamp(stored):
        return np.dtype(f"datetime64[{stored.unit}]")
    if types.is_duration(stored):
        return np.dtype(f"timedelta64[{stored.unit}]")
    return None
