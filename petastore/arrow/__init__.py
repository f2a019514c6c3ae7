"""Arrow arrays: zero-copy conversion to and from NumPy, concatenation, and casts.

No I/O. `pyarrow.Array.to_numpy` and `pyarrow.array` do the same, but import pandas, which delays the first batch of a
process by up to a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "NUMBER_DTYPES",
    "arrow_numbers",
    "concatenate",
    "conformed",
    "conformed_column",
    "flags_of",
    "has_nulls_inside",
    "large_type",
    "null_cells",
    "numbers_of",
    "only_chunk",
]


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
"""The NumPy dtype of each Arrow type of numbers or booleans.

It replaces `to_pandas_dtype`, which needs pandas in some releases.

Example:
    >>> NUMBER_DTYPES[pa.uint8()], NUMBER_DTYPES[pa.float16()]
    (dtype('uint8'), dtype('float16'))
"""


def arrow_numbers(numbers: NDArray[Any]) -> pa.Array:
    """Return a NumPy array of numbers as a zero-copy Arrow array.

    Args:
        numbers: Integers or floats, shape (n,).

    Example:
        >>> arrow_numbers(np.array([2, 0], np.int32)).to_pylist()
        [2, 0]
    """
    dtype = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(dtype, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def numbers_of(numbers: pa.Array) -> NDArray[Any]:
    """Return an Arrow array of integers or floats as a zero-copy NumPy array.

    The result must not be modified. Its values are arbitrary where the Arrow array has nulls.

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
    """Return an Arrow array of booleans as a new NumPy array.

    Arrow stores booleans as bits, so they are copied. Values are arbitrary where the Arrow array has nulls.

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


def has_nulls_inside(cells: pa.Array) -> bool:
    """Return whether lists of any layout and depth contain nulls.

    Null rows (outermost lists) do not count; null inner lists do.

    Example:
        >>> has_nulls_inside(pa.array([[1], None])), has_nulls_inside(pa.array([[[1], [None]]]))
        (False, True)
    """
    while True:
        if isinstance(cells, pa.ExtensionArray):
            cells = cells.storage
        elif isinstance(cells, pa.DictionaryArray):
            cells = cells.dictionary
        elif hasattr(cells.type, "value_type"):
            cells = cells.flatten()
            if cells.null_count:
                return True
        else:
            return False


def concatenate(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate several arrays of one column, such as of several row groups.

    Args:
        arrays: At least one. Types may differ in nullability and in the width of their offsets; the result has a type
            that holds all values.

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
    except (pa.ArrowInvalid, pa.ArrowCapacityError):  # 32-bit offsets can address at most 2 GiB
        large = large_type(arrays[0].type)
        if large == arrays[0].type:
            raise
        return pa.concat_arrays([conformed(array, large) for array in arrays])


def only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of a table as one array.

    Example:
        >>> only_chunk(pa.chunked_array([[1], [2]])).to_pylist()
        [1, 2]
    """
    return concatenate(column.chunks) if column.num_chunks else column.combine_chunks()


def null_cells(rows: int, stored: pa.DataType) -> pa.Array:
    """Return a column of nulls that Parquet can store.

    Required members of its structs have values, unlike those of `pyarrow.nulls`, which Parquet rejects.

    Example:
        >>> null_cells(2, pa.struct([pa.field("id", pa.int8(), nullable=False)])).field(0).null_count
        0
    """
    return pa.array([None], stored).take(arrow_numbers(np.zeros(rows, np.int64)))


def large_type(stored: pa.DataType) -> pa.DataType:
    """Return the type with 64-bit offsets for text, bytes and lists.

    Types inside lists and structs also get 64-bit offsets.

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


def conformed_column(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Cast a column to another type, and raise an error if a value would change.

    The cast is usually zero-copy if the types differ only in nullability.

    Raises:
        pa.ArrowInvalid: A value does not fit into the type exactly.
    """
    if column.type == wanted:
        return column
    return pa.chunked_array([conformed(chunk, wanted) for chunk in column.chunks], type=wanted)


_Cast = Callable[[pa.Array, pa.DataType], pa.Array]


def _arrow_cast(cells: pa.Array, wanted: pa.DataType) -> pa.Array:
    return cells.cast(wanted)


def conformed(cells: pa.Array, wanted: pa.DataType, cast: _Cast = _arrow_cast) -> pa.Array:
    """Cast an array to another type, and raise an error if a value would change.

    Structs may have other members than `wanted`: missing members become null, and members that `wanted` does not have
    are dropped.

    Args:
        cells: The array.
        wanted: Type of the result.
        cast: Function that casts arrays inside lists, maps and structs; the default is Arrow's cast.

    Raises:
        pa.ArrowInvalid: A value does not fit into the type exactly.

    Example:
        >>> cells = pa.array([{"a": 1}, None], pa.struct({"a": pa.int32()}))
        >>> conformed(cells, pa.struct({"a": pa.int64(), "b": pa.string()})).to_pylist()
        [{'a': 1, 'b': None}, None]
    """
    types, stored = pa.types, cells.type
    if stored == wanted:
        return cells
    if types.is_null(stored):
        return pa.nulls(len(cells), wanted)
    plain = _plain(cells, wanted)
    if plain is not cells:
        return conformed(plain, wanted, cast)
    is_list = hasattr(wanted, "value_field")
    if any(test(stored) != test(wanted) for test in (types.is_struct, types.is_map)) or (
        is_list and not hasattr(stored, "value_field")
    ):
        raise pa.ArrowNotImplementedError(f"{stored} cannot become {wanted}")
    if types.is_struct(wanted):
        return _struct(cells, wanted, cast)
    if types.is_map(wanted):
        cells = _from_the_start(cells)
        keys, items = conformed(cells.keys, wanted.key_type, cast), conformed(cells.items, wanted.item_type, cast)
        entries = pa.StructArray.from_arrays([keys, items], fields=[wanted.key_field, wanted.item_field])
        return _with_buffers(cells, wanted, entries)
    return _list(cells, wanted, cast) if is_list else cast(cells, wanted)


def _list(cells: pa.Array, wanted: pa.DataType, cast: _Cast) -> pa.Array:
    """Cast lists: first their items, then their layout, because pyarrow casts some nested items incorrectly."""
    types, stored = pa.types, cells.type
    if types.is_fixed_size_list(stored) and getattr(wanted, "list_size", stored.list_size) != stored.list_size:
        raise pa.ArrowInvalid(f"each list must have {wanted.list_size:,} items, got {stored.list_size:,}")
    cells = _from_the_start(cells)
    values = conformed(cells.values, wanted.value_type, cast)
    if types.is_fixed_size_list(stored):
        same_layout = pa.list_(wanted.value_field, stored.list_size)
        lists = pa.Array.from_buffers(same_layout, len(cells), cells.buffers()[:1], cells.null_count, children=[values])
    else:
        layout = pa.large_list if types.is_large_list(stored) else pa.list_
        lists = _with_buffers(cells, layout(wanted.value_field), values)
    return lists if lists.type == wanted else lists.cast(wanted)


def _plain(cells: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Unwrap extension types and dictionaries, unless `wanted` also has them.

    List views become large lists. Other arrays are returned unchanged.
    """
    types, stored = pa.types, cells.type
    if isinstance(cells, pa.ExtensionArray) and not isinstance(wanted, pa.BaseExtensionType):
        return cells.storage
    if types.is_dictionary(stored) and not types.is_dictionary(wanted):
        return cells.dictionary_decode()
    return _lists_of_views(cells) if types.is_list_view(stored) or types.is_large_list_view(stored) else cells


def _lists_of_views(cells: pa.Array) -> pa.Array:
    """Return list views as large lists.

    The cast of pyarrow 26 is not used, because it loses values of list views with nulls.
    """
    is_null = flags_of(cells.is_null())
    starts = numbers_of(cells.offsets).astype(np.int64)
    sizes = np.where(is_null, 0, numbers_of(cells.sizes)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    values, wanted = cells.values, pa.large_list(cells.type.value_field)
    # Lists from Parquet usually follow each other without gaps; then a slice of the values is enough.
    first = int(starts[np.argmax(sizes > 0)]) if len(values) and sizes.any() else 0
    if np.array_equal(starts[sizes > 0] - first, offsets[:-1][sizes > 0]):
        values = values.slice(first, int(offsets[-1]))
    else:
        values = values.take(arrow_numbers(np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])))
    mask = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    return pa.Array.from_buffers(
        wanted, len(cells), [mask, pa.py_buffer(offsets)], int(is_null.sum()), children=[values]
    )


def _struct(cells: pa.StructArray, wanted: pa.StructType, cast: _Cast) -> pa.StructArray:
    cells = _from_the_start(cells)
    place_of = {field.name: number for number, field in enumerate(cells.type)}
    members = [
        conformed(cells.field(place_of[field.name]), field.type, cast)
        if field.name in place_of
        else pa.nulls(len(cells), field.type)
        for field in wanted
    ]
    return pa.Array.from_buffers(wanted, len(cells), cells.buffers()[:1], cells.null_count, children=members)


def _with_buffers(cells: pa.Array, wanted: pa.DataType, values: pa.Array) -> pa.Array:
    """Return lists with the nulls and offsets of `cells`, and with `values` as items."""
    return pa.Array.from_buffers(wanted, len(cells), cells.buffers()[:2], cells.null_count, children=[values])


def _from_the_start(cells: pa.Array) -> pa.Array:
    """Return the array with offset 0, and without items outside its lists; copied if it is a slice.

    Its buffers and its children then start at the same row. Items of other rows must not be cast, as they may not fit.
    """
    return pa.concat_arrays([cells]) if cells.offset or _has_other_items(cells) else cells


def _has_other_items(cells: pa.Array) -> bool:
    types, stored = pa.types, cells.type
    if types.is_struct(stored):
        return False
    items = len(cells.keys if types.is_map(stored) else cells.values)
    if types.is_fixed_size_list(stored) or len(cells) == 0:
        return items != len(cells) * getattr(stored, "list_size", 0)
    return bool(cells.offsets[0].as_py() != 0 or cells.offsets[-1].as_py() != items)
