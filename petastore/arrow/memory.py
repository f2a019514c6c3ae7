"""NumPy arrays over Arrow's memory, and Arrow arrays over NumPy's. Pure.

`pyarrow.Array.to_numpy` and `pyarrow.array` do the same, and import pandas to do it: up to a second of a process that
only wants its first batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["arrow_numbers", "flags_of", "number_dtype", "numbers_of"]

_NUMBERS = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
    "bool",
)
_DTYPES = {pa.from_numpy_dtype(name): np.dtype(name) for name in _NUMBERS}


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


def number_dtype(arrow_type: pa.DataType) -> np.dtype[Any]:
    """Return the NumPy dtype of an Arrow type of numbers or booleans; `to_pandas_dtype` needs pandas in some releases.

    Raises:
        KeyError: The values of the type are not numbers.

    Example:
        >>> number_dtype(pa.uint8()), number_dtype(pa.float16())
        (dtype('uint8'), dtype('float16'))
    """
    return _DTYPES[arrow_type]


def numbers_of(numbers: pa.Array) -> NDArray[Any]:
    """Integers or floats of Arrow as a NumPy array over the same memory, not to be written to.

    Values under nulls are arbitrary.

    Example:
        >>> numbers_of(pa.array([5, 7, 9], pa.int16()).slice(1))
        array([7, 9], dtype=int16)
    """
    dtype = number_dtype(numbers.type)
    data = numbers.buffers()[1]
    if len(numbers) == 0 or data is None:
        return np.empty(0, dtype)
    values: NDArray[Any] = np.frombuffer(data, dtype, len(numbers), numbers.offset * dtype.itemsize)
    return values


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
