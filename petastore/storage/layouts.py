"""Arrow layouts that rows can be picked from, and the numbers by which they are picked. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["arrow_numbers", "pickable"]


def arrow_numbers(numbers: NDArray[Any]) -> pa.Array:
    """Numbers of NumPy as an Arrow array over the same memory, to `take` rows by.

    `pyarrow.array` does the same and imports pandas to do it, which costs a fresh process up to a second.

    Args:
        numbers: Integers or floats, shape (n,), C-contiguous.

    Example:
        >>> arrow_numbers(np.array([2, 0], np.int32)).to_pylist()
        [2, 0]
    """
    dtype = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(dtype, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def pickable(table: pa.Table) -> pa.Table:
    """The table with its views of text and bytes laid out so that `take` has a kernel for them; others as they are.

    List views stay: picking from them works, and pyarrow 26 loses values when it casts those with nulls to lists.

    Example:
        >>> pickable(pa.table({"word": pa.array(["a"], pa.string_view()), "id": [1]})).schema.types
        [DataType(large_string), DataType(int64)]
    """
    wanted = [field.with_type(_pickable_type(field.type)) for field in table.schema]
    if all(field.type == old.type for field, old in zip(wanted, table.schema, strict=True)):
        return table
    return table.cast(pa.schema(wanted))


def _pickable_type(stored: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string_view(stored):
        return pa.large_string()
    if types.is_binary_view(stored):
        return pa.large_binary()
    if types.is_struct(stored):
        return pa.struct([field.with_type(_pickable_type(field.type)) for field in stored])
    if types.is_large_list(stored):
        return pa.large_list(_pickable_field(stored.value_field))
    if types.is_fixed_size_list(stored):
        return pa.list_(_pickable_field(stored.value_field), stored.list_size)
    if types.is_list(stored):
        return pa.list_(_pickable_field(stored.value_field))
    return stored


def _pickable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_pickable_type(field.type))
