"""Arrow columns looked at in Arrow's own buffers, without a copy: numbers and lists, and cells of bytes.

Numbers, times and lists of them are NumPy arrays already, where they are stored just as they are declared; whatever
needs a cast, a check or a refusal is left to `petastore.codecs.arrow.arrow_to_numpy` and
`petastore.codecs.arrow.arrow_lists`. Cells of bytes (and text) are ranges of one buffer, in every layout in which they
arrive: 32 and 64-bit offsets, fixed size, views, dictionaries. No cell becomes a Python object.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow.memory import NUMBER_DTYPES, numbers_of
from petastore.codecs.arrow.arrow_to_numpy import plain_layout, refuse_nulls
from petastore.errors import DecodeError, EncodeError
from petastore.schema.arrow import axes_in_storage, tensor_shape
from petastore.schema.codec import Viewer
from petastore.schema.field import UnischemaField

__all__ = [
    "ByteCells",
    "byte_cells",
    "bytes_of_cell",
    "equal_cells_array",
    "lengths_of",
    "lists_viewer",
    "offsets_of",
    "scalars_viewer",
]

_NO_BYTES = np.empty(0, np.uint8)
_LARGE = {pa.large_string().id, pa.large_binary().id, pa.large_list(pa.null()).id}
"""Types whose offsets have 64 bits."""


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
    """The cells of a column as ranges of one buffer, which this object does not copy.

    `cells[i]` is the bytes of cell i as a read-only array of uint8 that lives as long as the Arrow buffer does.
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
        start: int = self.starts.item(row)  # readers ask row by row, and this makes no NumPy scalars on the way
        return self.data[start : start + self.sizes.item(row)]

    @property
    def even_size(self) -> int | None:
        """Bytes of every cell, if all are of one size and lie side by side; else None."""
        if len(self) == 0:
            return None
        size = int(self.sizes[0])
        first = int(self.starts[0])
        if (self.sizes != size).any() or first + size * len(self) > len(self.data):
            return None
        return size if bool((self.starts[1:] - self.starts[:-1] == size).all()) else None


def byte_cells(cells: pa.Array, field: UnischemaField) -> ByteCells:
    """The byte ranges of a column.

    Raises:
        DecodeError: The column holds no bytes, or has a null.
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
    raise DecodeError(f"the column is stored as {stored}, but its codec reads bytes", column=field.name)


def _between_offsets(cells: pa.Array) -> ByteCells:
    if len(cells) == 0:
        nothing = np.empty(0, np.int64)
        return ByteCells(_NO_BYTES, nothing, nothing)
    offsets = offsets_of(cells).astype(np.int64)
    return ByteCells(_buffer(cells, 2), offsets[:-1], offsets[1:] - offsets[:-1])


def offsets_of(values: pa.Array) -> NDArray[Any]:
    """Where texts, bytes or lists begin in their buffer, and the last one ends, shape (n + 1,), not to be written to.

    Args:
        values: Of one of the types that lie between offsets: no view, and of no fixed size.

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


def lengths_of(values: pa.Array) -> NDArray[np.int64]:
    """Bytes of each value of text or bytes that lie between offsets, a new array of shape (n,); arbitrary under nulls.

    Example:
        >>> lengths_of(pa.array(["a", "", "äb"])), lengths_of(pa.array([b"abc"], pa.large_binary()))
        (array([1, 0, 3]), array([3]))
    """
    return np.diff(offsets_of(values)).astype(np.int64, copy=False)


def _buffer(cells: pa.Array, position: int) -> NDArray[np.uint8]:
    buffer = cells.buffers()[position]
    return _NO_BYTES if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)


def bytes_of_cell(cell: Any, field: UnischemaField) -> NDArray[np.uint8]:
    """One cell as an array of uint8 over its own memory.

    Raises:
        DecodeError: It is no bytes.
    """
    if not isinstance(cell, (bytes, bytearray, memoryview)):
        raise DecodeError(f"the cell is {type(cell).__name__}, but its codec reads bytes", column=field.name)
    return np.frombuffer(cell, np.uint8) if len(cell) else _NO_BYTES


def equal_cells_array(data: NDArray[np.uint8], field: UnischemaField) -> pa.Array:
    """A binary column whose cells are the rows of `data` (rows, size), over its memory.

    Raises:
        EncodeError: There are more than 2 GiB.
    """
    rows, size = data.shape
    if rows * size > np.iinfo(np.int32).max:
        raise EncodeError(
            f"{rows:,} cells of {size:,} bytes are more than the 2 GiB of one column; encode fewer rows at once",
            column=field.name,
        )
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
