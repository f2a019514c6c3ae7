"""Zero-copy views of Arrow columns of numbers, lists and bytes as NumPy arrays.

Numbers, times and lists of them are viewed if they are stored exactly as declared. Columns that need a cast or a check
are decoded by `petastore.codecs.arrow.arrow_to_numpy` and `petastore.codecs.arrow.arrow_lists`.

Cells of bytes and text are returned as ranges of one buffer, without a Python object per cell, for every layout of
Arrow: 32- and 64-bit offsets, fixed size, views, dictionaries.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import NUMBER_DTYPES, numbers_of
from petastore.arrow import compute as pc
from petastore.codecs.arrow.arrow_to_numpy import plain_layout, refuse_nulls
from petastore.errors import DecodeError, EncodeError
from petastore.schema.arrow import axes_in_storage, tensor_shape
from petastore.schema.field import UnischemaField, Viewer

__all__ = [
    "ByteCells",
    "byte_cells",
    "bytes_of_cell",
    "equal_cells_array",
    "lists_viewer",
    "offsets_of",
    "scalars_viewer",
]

_NO_BYTES = np.empty(0, np.uint8)
_LARGE = {pa.large_string().id, pa.large_binary().id, pa.large_list(pa.null()).id}
"""Ids of the types whose offsets have 64 bits."""


def scalars_viewer(field: UnischemaField) -> Viewer:
    """Return a function that views a column of numbers or times as a NumPy array.

    The view is zero-copy. It has the shape (rows,), with arbitrary values where the column has nulls. The function
    returns None if the column is not stored exactly as the field declares.

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
        nonlocal right  # type of the last column; any thread may replace it
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
    """Return a function that views a column of lists as a NumPy array, zero-copy.

    The view has the shape (rows, *field.shape). The function returns None if a list has another size than declared, or
    if a list or an item is null.
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
    """View a column of Arrow's fixed-shape tensors as an array (rows, *shape), zero-copy.

    The axes are in logical order, so the view is not contiguous if they are stored in another order. Return None if the
    shape differs from the field's, or if a value is null or has another dtype.

    Args:
        cells: The column.
        field: Declared field.
        numbers: Function that views the flat numbers; see `scalars_viewer`.
    """
    if not isinstance(cells.type, pa.FixedShapeTensorType) or tensor_shape(cells.type) != field.shape:
        return None
    leaves = None if cells.null_count else cells.storage.flatten()
    values = None if leaves is None or leaves.null_count else numbers(leaves)
    if values is None:
        return None
    stored = values.reshape(len(cells), *cells.type.shape)
    return stored.transpose(0, *(axis + 1 for axis in axes_in_storage(cells.type)))


def _items(lists: pa.Array, size: int | None) -> pa.Array | None:
    """Return the concatenated items of all lists, if each list has `size` items.

    Return None if a list is null or has another size, or if the lists are list views. The result may also be None for a
    column without rows.
    """
    if lists.null_count:
        return None
    if isinstance(lists, pa.FixedSizeListArray):
        return lists.flatten() if lists.type.list_size == size else None
    if not isinstance(lists, (pa.ListArray, pa.LargeListArray)) or len(lists) == 0:
        return None
    offsets = offsets_of(lists)
    return lists.flatten() if bool((offsets[1:] - offsets[:-1] == size).all()) else None


def _dtype_of(stored: pa.DataType) -> np.dtype[Any] | None:
    types = pa.types
    if types.is_integer(stored) or types.is_floating(stored):
        return NUMBER_DTYPES[stored]
    if types.is_timestamp(stored):
        return np.dtype(f"datetime64[{stored.unit}]")
    if types.is_duration(stored):
        return np.dtype(f"timedelta64[{stored.unit}]")
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class ByteCells:
    """Cells of a column as zero-copy ranges of one buffer.

    `cells[i]` returns the bytes of cell i as a read-only array of uint8, which keeps the Arrow buffer alive.
    """

    data: NDArray[np.uint8]
    """The whole buffer."""

    starts: NDArray[np.int64]
    """First byte of each cell, (rows,)."""

    sizes: NDArray[np.int64]
    """Bytes of each cell, (rows,)."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        start: int = self.starts.item(row)  # called for every row; `item` is faster than creating a NumPy scalar
        return self.data[start : start + self.sizes.item(row)]

    @property
    def even_size(self) -> int | None:
        """Size of each cell, if all cells have the same size and are contiguous; else None."""
        if len(self) == 0:
            return None
        size = int(self.sizes[0])
        first = int(self.starts[0])
        if (self.sizes != size).any() or first + size * len(self) > len(self.data):
            return None
        return size if bool((self.starts[1:] - self.starts[:-1] == size).all()) else None


def byte_cells(cells: pa.Array, field: UnischemaField) -> ByteCells:
    """Return the byte ranges of a column.

    Raises:
        DecodeError: The column does not contain bytes, or has a null.
    """
    if cells.null_count:
        refuse_nulls(cells, field)
    if isinstance(cells, (pa.BinaryArray, pa.StringArray, pa.LargeBinaryArray, pa.LargeStringArray)):
        return _between_offsets(cells)
    if isinstance(cells, (pa.ExtensionArray, pa.RunEndEncodedArray)):
        return byte_cells(plain_layout(cells), field)
    if isinstance(cells, pa.DictionaryArray) and cells.dictionary.null_count == 0:
        distinct = byte_cells(cells.dictionary, field)
        chosen = numbers_of(cells.indices)
        return ByteCells(distinct.data, distinct.starts[chosen], distinct.sizes[chosen])
    if isinstance(cells, pa.DictionaryArray):
        return byte_cells(cells.dictionary_decode(), field)
    stored = cells.type
    if pa.types.is_binary_view(stored) or pa.types.is_string_view(stored):
        return byte_cells(pc.cast(cells, pa.large_binary()), field)
    if pa.types.is_fixed_size_binary(stored):
        starts = (np.arange(len(cells), dtype=np.int64) + cells.offset) * stored.byte_width
        return ByteCells(_buffer(cells, 1), starts, np.full(len(cells), stored.byte_width, np.int64))
    raise DecodeError(
        f"the column must be stored as bytes for its codec, got {stored}. Correct the schema", column=field.name
    )


def _between_offsets(cells: pa.Array) -> ByteCells:
    if len(cells) == 0:
        nothing = np.empty(0, np.int64)
        return ByteCells(_NO_BYTES, nothing, nothing)
    offsets = offsets_of(cells).astype(np.int64)
    return ByteCells(_buffer(cells, 2), offsets[:-1], offsets[1:] - offsets[:-1])


def offsets_of(values: pa.Array) -> NDArray[Any]:
    """Return the offsets of texts, bytes or lists in their buffer, shape (n + 1,).

    The array is read-only.

    Args:
        values: Array of a type with offsets (text, bytes or list), not of a view or fixed-size type.

    Example:
        >>> offsets_of(pa.array(["a", "", "äb"]).slice(1)), offsets_of(pa.array([], pa.large_binary()))
        (array([1, 1, 4], dtype=int32), array([0]))
        >>> offsets_of(pa.array([[7], [], [8, 9]]))
        array([0, 1, 1, 3], dtype=int32)
    """
    width, data = np.dtype(np.int64 if values.type.id in _LARGE else np.int32), values.buffers()[1]
    if len(values) == 0 or data is None:
        return np.zeros(len(values) + 1, width)
    offsets: NDArray[Any] = np.frombuffer(data, width, len(values) + 1, values.offset * width.itemsize)
    return offsets


def _buffer(cells: pa.Array, position: int) -> NDArray[np.uint8]:
    buffer = cells.buffers()[position]
    return _NO_BYTES if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)


def bytes_of_cell(cell: Any, field: UnischemaField) -> NDArray[np.uint8]:
    """Return one cell as a zero-copy array of uint8.

    Raises:
        DecodeError: The cell is not bytes.
    """
    if not isinstance(cell, (bytes, bytearray, memoryview)):
        raise DecodeError(f"the cell must be bytes for the field's codec, got {type(cell).__name__}", column=field.name)
    return np.frombuffer(cell, np.uint8) if len(cell) else _NO_BYTES


def equal_cells_array(data: NDArray[np.uint8], field: UnischemaField) -> pa.Array:
    """Return the rows of `data`, shape (rows, size), as the cells of a binary column.

    The column is zero-copy.

    Raises:
        EncodeError: The cells exceed 2 GiB.
    """
    rows, size = data.shape
    if rows * size > np.iinfo(np.int32).max:
        raise EncodeError(
            f"an encoded column must have at most 2 GiB, got {rows:,} cells of {size:,} bytes. Encode fewer rows at "
            "once",
            column=field.name,
        )
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
