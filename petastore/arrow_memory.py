"""NumPy arrays over Arrow's memory, and Arrow arrays over NumPy's. Pure.

`pyarrow.Array.to_numpy` and `pyarrow.array` do the same, and import pandas to do it: up to a second of a process that
only wants its first batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["arrow_numbers", "flags_of", "moved_cells", "numbers_of"]


def arrow_numbers(numbers: NDArray[Any]) -> pa.Array:
    """Numbers of NumPy as an Arrow array over the same memory.

    Args:
        numbers: Integers or floats, shape (n,).

    Example:
        >>> arrow_numbers(np.array([2, 0], np.int32)).to_pylist()
        [2, 0]
    """
    dtype = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(dtype, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def numbers_of(numbers: pa.Array) -> NDArray[Any]:
    """Integers or floats of Arrow as a NumPy array over the same memory, not to be written to.

    Values under nulls are arbitrary.

    Example:
        >>> numbers_of(pa.array([5, 7, 9], pa.int16()).slice(1))
        array([7, 9], dtype=int16)
    """
    dtype = np.dtype(numbers.type.to_pandas_dtype())
    data = numbers.buffers()[1]
    if len(numbers) == 0 or data is None:
        return np.empty(0, dtype)
    values: NDArray[Any] = np.frombuffer(data, dtype, len(numbers), numbers.offset * dtype.itemsize)
    return values


def moved_cells(cells: pa.Array, empty: Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]) -> pa.Array:
    """Text or bytes in memory of the caller's; other cells, and a slice of cells, as they are.

    Args:
        cells: Any Arrow array.
        empty: Gives arrays of a shape and dtype, C-contiguous; they live as long as what is returned.

    Example:
        >>> moved_cells(pa.array(["ab", None, "c"]), np.empty).to_pylist()
        ['ab', None, 'c']
    """
    dtype = _border_dtype(cells.type)
    if dtype is None or cells.offset or len(cells) == 0:
        return cells
    valid, offsets, data = cells.buffers()
    borders = np.frombuffer(offsets, dtype, len(cells) + 1)
    size = int(borders[-1])
    if size == 0:
        return cells
    own_borders, own_data = empty(borders.shape, dtype), empty((size,), np.dtype(np.uint8))
    np.copyto(own_borders, borders)
    np.copyto(own_data, np.frombuffer(data, np.uint8, size))
    buffers = [valid, pa.py_buffer(own_borders), pa.py_buffer(own_data)]
    return pa.Array.from_buffers(cells.type, len(cells), buffers, null_count=cells.null_count)


def _border_dtype(stored: pa.DataType) -> np.dtype[Any] | None:
    """Of the borders between cells that lie side by side; None where they lie otherwise."""
    if pa.types.is_binary(stored) or pa.types.is_string(stored):
        return np.dtype(np.int32)
    if pa.types.is_large_binary(stored) or pa.types.is_large_string(stored):
        return np.dtype(np.int64)
    return None


def flags_of(flags: pa.Array) -> NDArray[np.bool_]:
    """Booleans of Arrow, which are bits there, as a new NumPy array; values under nulls are arbitrary.

    Example:
        >>> flags_of(pa.array([True, False, True]).slice(1)), flags_of(pa.array([1, None]).is_null())
        (array([False,  True]), array([False,  True]))
    """
    return _bits(flags.buffers()[1], flags.offset, len(flags))


def _bits(data: pa.Buffer | None, offset: int, count: int) -> NDArray[np.bool_]:
    if count == 0 or data is None:
        return np.zeros(count, np.bool_)
    whole = np.frombuffer(data, np.uint8, -(-(offset % 8 + count) // 8), offset // 8)
    return np.unpackbits(whole, bitorder="little")[offset % 8 : offset % 8 + count].view(np.bool_)
