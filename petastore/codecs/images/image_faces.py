"""The faces that all codecs of image files have: columns of files, written cell by cell and read as wanted."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_views import byte_cells, bytes_of_cell
from petastore.codecs.arrow.numpy_to_arrow import encode_each
from petastore.codecs.images.image_files import ImageError, decoded_sizes
from petastore.codecs.images.image_hint import ImageDecode
from petastore.codecs.images.image_parts import part_bytes, read_part, read_parts_into
from petastore.errors import DecodeError
from petastore.schema.field import UnischemaField

__all__ = ["ImageFaces"]


class ImageFaces(abc.ABC):
    """What a codec of image files does with cells and columns, once it says how one image is written.

    Thread-safe; encoding and decoding let go of the GIL.
    """

    __slots__ = ()

    @abc.abstractmethod
    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """One image to the bytes of a file.

        Raises:
            EncodeError: Another dtype or shape than declared.
            MissingExtraError: No image library is installed.
        """

    @abc.abstractmethod
    def _reading(self, field: UnischemaField) -> tuple[UnischemaField, ImageDecode]:
        """What is declared of the files of a field, and what is wanted of them."""

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - always bytes
        """Binary."""
        return pa.binary()

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Many images to a binary column.

        Args:
            values: An array `(rows, height, width[, 3])`, or a sequence of images or image files; None becomes null.
            field: What was declared.

        Raises:
            EncodeError: As `encode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        return encode_each(values, self.encode, pa.binary(), field)

    def encode_arrow(self, values: pa.Array, field: UnischemaField) -> pa.Array | None:
        """The image files in a column of bytes, or of structs of `bytes` and `path`; None where it holds pixels.

        Raises:
            EncodeError: A file is not PNG or JPEG, or not of the declared dtype and shape; `row` is set.
        """
        from petastore.codecs.images.image_given import image_cells  # with what only writers need

        return image_cells(values, field)

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """The bytes of a file to an image that owns its memory, whatever format of those that can be read it is.

        Raises:
            DecodeError: The bytes are damaged, hold another dtype or shape than was declared of what is stored, or an
                image that does not reach as far as the region that is wanted of it.
            MissingExtraError: No image library is installed.
        """
        try:
            return read_part(bytes_of_cell(cell, field), *self._reading(field))
        except ImageError as problem:
            raise DecodeError(f"the cell is no image as declared: {problem}", column=field.name) from None

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """A column of images into `out`; pixels of a fixed shape are decoded straight into their place.

        Raises:
            DecodeError: As `decode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        found = byte_cells(cells, field)
        self.decode_bytes([found[row] for row in range(len(found))], field, out)

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """The bytes of files into `out`, as `decode_column`.

        Raises:
            DecodeError: As `decode`, with `row` set.
            MissingExtraError: No image library is installed.
        """
        read_parts_into(cells, *self._reading(field), out)

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """What is decoded of the files to make what is wanted of them; what is wanted, where that is more.

        At least the frequencies of a JPEG of several scans. None where the field declares it.
        """
        stored, wanted = self._reading(field)
        whole, part = stored.decoded_bytes, field.decoded_bytes
        if whole is not None and part is not None:
            return None if whole <= part else np.full(len(cells), whole, np.int64)
        return decoded_sizes(byte_cells(cells, field), lambda header: part_bytes(header, stored, wanted))
