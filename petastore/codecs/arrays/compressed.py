"""CompressedNdarrayCodec: an array as the bytes of `numpy.savez_compressed(arr=value)`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrays.ndarray import ArrayCodec, put_npy_cells
from petastore.codecs.arrays.npy import MAX_HEADER_BYTES
from petastore.codecs.arrays.npz import NpzError, archive_bytes, member_of, member_sizes
from petastore.codecs.arrow.arrow_views import byte_cells
from petastore.errors import DecodeError
from petastore.schema.field import UnischemaField

__all__ = ["CompressedNdarrayCodec"]


@dataclasses.dataclass(frozen=True, slots=True)
class CompressedNdarrayCodec(ArrayCodec):
    """A codec for arrays, stored as compressed `.npz` archives (one deflated member `arr.npy`); never uses pickle.

    Thread-safe; decompression releases the GIL. Use it for arrays that compress well: masks, sparse maps, small
    integers.

    Example:
        >>> import numpy as np
        >>> field = UnischemaField("mask", "bool", (64, 64), CompressedNdarrayCodec())
        >>> cell = field.codec.encode(field, np.zeros((64, 64), bool))
        >>> len(cell) < 64 * 64 // 10
        True
        >>> bool(field.codec.decode(field, cell).any())
        False
    """

    codec_id: ClassVar[str] = "compressed_ndarray"

    def _stored(self, array: NDArray[Any]) -> bytes:
        return archive_bytes(array)

    def _npy(self, cell: NDArray[np.uint8], field: UnischemaField) -> NDArray[np.uint8]:
        return _inflated_cell(cell, field)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode a column of `.npz` cells into `out`.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        found = byte_cells(cells, field)
        self.decode_bytes([found[row] for row in range(len(found))], field, out)

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode the bytes of archives into `out`, as `decode_column` does.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        put_npy_cells(lambda row: _inflated_cell(cells[row], field), field, out)

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """Return the decoded size that each archive declares; None if the field has a fixed shape."""
        return None if _most_bytes(field) is not None else member_sizes(byte_cells(cells, field))


def _inflated_cell(cell: NDArray[np.uint8], field: UnischemaField) -> NDArray[np.uint8]:
    """Decompress the `.npy` bytes in one cell."""
    try:
        return np.frombuffer(member_of(cell, _most_bytes(field)) or b"\0", np.uint8)
    except NpzError as problem:
        raise DecodeError(
            f"the cell is not a compressed array: {problem}. Write the cell again, or skip bad rows with "
            "on_error='skip'",
            column=field.name,
        ) from None


def _most_bytes(field: UnischemaField) -> int | None:
    """Return the maximum size of one value as `.npy`; None if the field's shape or text length is variable."""
    if None in field.shape or field.dtype == np.dtype(object):
        return None
    return MAX_HEADER_BYTES + 12 + math.prod(size or 0 for size in field.shape) * field.dtype.itemsize
