"""NumPy arrays over Arrow's memory, Arrow arrays over NumPy's, and Arrow arrays that are concatenated. Pure.

`pyarrow.Array.to_numpy` and `pyarrow.array` do the same, and import pandas to do it: up to a second of a process that
only wants its first batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["NUMBER_DTYPES", "arrow_numbers", "concatenate", "flags_of", "large_type", "numbers_of", "only_chunk"]

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
NUMBER_DTYPES: Mapping[pa.DataType, np.dtype[Any]] = {pa.from_numpy_dtype(name): np.dtype(name) for name in _NUMBERS}
"""The NumPy dtype of each Arrow type of numbers or booleans; `to_pandas_dtype` needs pandas in some releases.

Example:
    >>> NUMBER_DTYPES[pa.uint8()], NUMBER_DTYPES[pa.float16()]
    (dtype('uint8'), dtype('float16'))
"""


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
    dtype = NUMBER_DTYPES[numbers.type]
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


def concatenate(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return several arrays of one column, from several row groups or files, as one array.

    Args:
        arrays: At least one. Types may differ in nullability and in the width of their offsets.

    Example:
        >>> required = pa.list_(pa.field("element", pa.int64(), nullable=False))
        >>> concatenate([pa.array([[1]], required), pa.array([[2]], pa.list_(pa.int64()))]).to_pylist()
        [[1], [2]]
    """
    if len(arrays) == 1:
        return arrays[0]
    if any(array.type != arrays[0].type for array in arrays):
        tables = [pa.table({"": array}) for array in arrays]
        arrays = pa.concat_tables(tables, promote_options="permissive").column(0).chunks
    try:
        return pa.concat_arrays(arrays)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):  # 32-bit offsets hold 2 GiB
        large = large_type(arrays[0].type)
        if large == arrays[0].type:
            raise
        return pa.concat_arrays([array.cast(large) for array in arrays])


def only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of a table as one array.

    Example:
        >>> only_chunk(pa.chunked_array([[1], [2]])).to_pylist()
        [1, 2]
    """
    return concatenate(column.chunks) if column.num_chunks else column.combine_chunks()


def large_type(stored: pa.DataType) -> pa.DataType:
    """Return a type with 64-bit offsets.

    Example:
        >>> large_type(pa.list_(pa.binary())), large_type(pa.int64())
        (LargeListType(large_list<item: large_binary>), DataType(int64))
    """
    types: Any = pa.types
    if types.is_string(stored):
        return pa.large_string()
    if types.is_binary(stored):
        return pa.large_binary()
    if types.is_list(stored) or types.is_large_list(stored):
        return pa.large_list(_large_field(stored.value_field))
    if types.is_fixed_size_list(stored):
        return pa.list_(_large_field(stored.value_field), stored.list_size)
    return pa.struct(list(map(_large_field, stored))) if types.is_struct(stored) else stored


def _large_field(field: pa.Field) -> pa.Field:
    return field.with_type(large_type(field.type))
