"""Arrow layouts that rows can be picked from. Pure."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["is_pickable", "pickable"]


def pickable(table: pa.Table) -> pa.Table:
    """The table with its views of text and bytes laid out so that `take` has a kernel for them; others as they are.

    Dictionaries get 32-bit indices: each row group has its own categories, and all together may be too many for 8 bits.
    List views stay: picking from them works, and pyarrow 26 loses values when it casts those with nulls to lists.

    Example:
        >>> pickable(pa.table({"word": pa.array(["a"], pa.string_view()), "id": [1]})).schema.types
        [DataType(large_string), DataType(int64)]
    """
    wanted = [field.with_type(_pickable_type(field.type)) for field in table.schema]
    if all(field.type == old.type for field, old in zip(wanted, table.schema, strict=True)):
        return table
    return table.cast(pa.schema(wanted))


def is_pickable(stored: pa.DataType) -> bool:
    """Whether columns of a type are left as they are.

    Example:
        >>> is_pickable(pa.int64()), is_pickable(pa.list_(pa.string_view()))
        (True, False)
    """
    return bool(_pickable_type(stored) == stored)


def _pickable_type(stored: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(stored):
        return pa.dictionary(pa.int32(), _pickable_type(stored.value_type))
    if types.is_string_view(stored):
        return pa.large_string()
    if types.is_binary_view(stored):
        return pa.large_binary()
    if types.is_struct(stored):
        return pa.struct([field.with_type(_pickable_type(field.type)) for field in stored])
    if types.is_map(stored):
        pickable_map: pa.DataType = pa.map_(
            _pickable_field(stored.key_field), _pickable_field(stored.item_field), stored.keys_sorted
        )
        return pickable_map
    if types.is_large_list(stored):
        return pa.large_list(_pickable_field(stored.value_field))
    if types.is_fixed_size_list(stored):
        return pa.list_(_pickable_field(stored.value_field), stored.list_size)
    if types.is_list(stored):
        return pa.list_(_pickable_field(stored.value_field))
    return stored


def _pickable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_pickable_type(field.type))
