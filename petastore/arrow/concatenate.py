"""Concatenates Arrow arrays whose types differ in nullability, or whose bytes need 64-bit offsets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

__all__ = ["concatenate", "large_type", "only_chunk"]


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
