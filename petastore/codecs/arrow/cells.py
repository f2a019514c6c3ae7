"""Stored cells of bytes: where each lies in Arrow's own buffer, so that no cell becomes a Python object.

Works on every layout in which bytes (and text) arrive: 32 and 64-bit offsets, fixed size, views, dictionaries.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from petastore.arrow_memory import numbers_of
from petastore.codecs.arrow.arrow_to_numpy import plain_layout, refuse_nulls
from petastore.errors import DecodeError, EncodeError
from petastore.schema.field import UnischemaField

__all__ = ["ByteCells", "byte_cells", "bytes_of_cell", "equal_cells_array"]

_NO_BYTES = np.empty(0, np.uint8)


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
        start = int(self.starts[row])
        return self.data[start : start + int(self.sizes[row])]

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
    if isinstance(cells, (pa.BinaryArray, pa.StringArray)):
        return _between_offsets(cells, np.dtype(np.int32))
    if isinstance(cells, (pa.LargeBinaryArray, pa.LargeStringArray)):
        return _between_offsets(cells, np.dtype(np.int64))
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


def _between_offsets(cells: pa.Array, offset_dtype: np.dtype[Any]) -> ByteCells:
    if len(cells) == 0:
        nothing = np.empty(0, np.int64)
        return ByteCells(_NO_BYTES, nothing, nothing)
    first = cells.offset * offset_dtype.itemsize
    offsets = np.frombuffer(cells.buffers()[1], offset_dtype, count=len(cells) + 1, offset=first).astype(np.int64)
    return ByteCells(_buffer(cells, 2), offsets[:-1], offsets[1:] - offsets[:-1])


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
