"""CompressedNdarrayCodec: an array as the bytes that `numpy.savez_compressed(arr=value)` writes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrays.ndarray import Blocks, array_of_unit, decode_alike, decode_npy, put_npy_cells
from petastore.codecs.arrays.npy import MAX_HEADER_BYTES
from petastore.codecs.arrays.npz import NpzError, archive_bytes, member_of, member_sizes
from petastore.codecs.arrays.npz_many import inflated_together
from petastore.codecs.arrow.arrow_views import ByteCells, byte_cells, bytes_of_cell
from petastore.codecs.arrow.numpy_to_arrow import encode_each
from petastore.codecs.declared import array_to_write, check_array_field
from petastore.errors import DecodeError
from petastore.schema.codec import JsonValue
from petastore.schema.field import UnischemaField

__all__ = ["CompressedNdarrayCodec"]


@dataclasses.dataclass(frozen=True, slots=True)
class CompressedNdarrayCodec:
    """An array as a zip archive with one deflated member `arr.npy`; nothing is ever pickled.

    Thread-safe; inflating lets go of the GIL. Choose it for arrays that shrink: masks, sparse maps, small integers.

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

    def config(self) -> Mapping[str, JsonValue]:
        """Nothing to configure."""
        return {}

    def check_field(self, field: UnischemaField) -> None:
        """Any dtype of NumPy's own, of any shape.

        Raises:
            SchemaError: The dtype is `Decimal` or `object`.
        """
        check_array_field(field, "CompressedNdarrayCodec")

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - always bytes
        """Binary."""
        return pa.binary()

    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """One array to `.npz` bytes.

        Raises:
            EncodeError: Another dtype or shape than declared.
        """
        return archive_bytes(array_of_unit(field, array_to_write(field, value)))

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """`.npz` bytes to an array that owns its memory; to a scalar for shape `()`.

        Raises:
            DecodeError: The bytes are damaged, inflate to more than they declare or the field needs, or hold another
                dtype or shape than declared.
        """
        value = decode_npy(_inflated(bytes_of_cell(cell, field), field), field)
        return value[()] if field.is_scalar else value

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Many arrays to a binary column.

        Args:
            values: An array `(rows, *shape)`, or a sequence of arrays; None becomes null.
            field: What was declared.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        return encode_each(values, self.encode, pa.binary(), field)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """A column of `.npz` cells into `out`; each is inflated once and copied to its place.

        Where the shape is free and cells are alike, some of the values are parts of one array.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        found = byte_cells(cells, field)
        self.decode_bytes([found[row] for row in range(len(found))], field, out)

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """The bytes of archives into `out`, as `decode_column`.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        blocks = Blocks(field)
        for rows, inflated in inflated_together(cells, _most_bytes(field)):
            try:
                _put(cells[rows], inflated, blocks, out[rows])
            except DecodeError as problem:
                problem.row = rows.start + (problem.row or 0)
                raise

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """What each archive says that it holds; None where the field declares it."""
        return None if _most_bytes(field) is not None else member_sizes(byte_cells(cells, field))


def _put(cells: Sequence[NDArray[np.uint8]], inflated: ByteCells | None, blocks: Blocks, out: NDArray[Any]) -> None:
    """The arrays of some cells, each into its place in `out`; `inflated` is their content if that is known."""
    field = blocks.field
    if inflated is None:
        put_npy_cells(lambda row: _inflated(cells[row], field), field, out)
    elif not decode_alike(inflated, blocks, out):
        put_npy_cells(inflated.__getitem__, field, out)


def _inflated(cell: NDArray[np.uint8], field: UnischemaField) -> NDArray[np.uint8]:
    """The `.npy` bytes in one cell."""
    try:
        return np.frombuffer(member_of(cell, _most_bytes(field)) or b"\0", np.uint8)
    except NpzError as problem:
        raise DecodeError(f"the cell is no compressed array: {problem}", column=field.name) from None


def _most_bytes(field: UnischemaField) -> int | None:
    """The most that one value of the field can have as `.npy`; None where its shape or its texts are free."""
    if None in field.shape or field.dtype == np.dtype(object):
        return None
    return MAX_HEADER_BYTES + 12 + math.prod(size or 0 for size in field.shape) * field.dtype.itemsize
