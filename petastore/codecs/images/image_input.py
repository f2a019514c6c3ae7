"""Image files accepted by writers: bytes, dicts with bytes or a path, and Arrow columns of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.codecs.arrow.arrow_views import byte_cells
from petastore.codecs.images.image_header import ImageError, checked_header, is_image_file
from petastore.errors import EncodeError
from petastore.schema.arrow import is_bytes
from petastore.schema.field import UnischemaField

__all__ = ["check_file", "image_cells", "image_file", "is_image_struct"]


def image_file(value: Any, field: UnischemaField) -> bytes | None:
    """Return the bytes of an image file; None for arrays and other values.

    Args:
        value: Bytes, or a dict with `bytes`, or with the `path` of a local file.
        field: Declared field, for messages.

    Raises:
        EncodeError: A dict has neither bytes nor the path of a file that can be read.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, Mapping):
        return None
    found, path = value.get("bytes"), value.get("path")
    if found is not None:
        return bytes(found)
    try:
        return Path(path or "").read_bytes()
    except OSError as problem:
        raise EncodeError(
            f"an image given as a dict must have bytes, or the path of a local file, got {path!r} ({problem})",
            column=field.name,
        ) from None


def check_file(file: NDArray[np.uint8], field: UnischemaField) -> None:
    """Raise an error if the header of a file shows that the file does not fit the field.

    Raises:
        EncodeError: The file is not PNG or JPEG, or not of the declared dtype and shape.
    """
    try:
        checked_header(file, field)
    except ImageError as problem:
        raise EncodeError(f"the file cannot be stored as an image: {problem}", column=field.name) from None


def is_image_struct(stored: pa.DataType) -> bool:
    """Return whether a type is Hugging Face's image type: a struct of bytes and path."""
    return bool(
        pa.types.is_struct(stored)
        and {member.name for member in stored} == {"bytes", "path"}
        and is_bytes(stored.field("bytes").type)
    )


def image_cells(values: pa.Array, field: UnischemaField) -> pa.Array | None:
    """Return the image files in an Arrow column as stored cells; None if the column has pixels.

    Args:
        values: Bytes, or structs of `bytes` and `path`, without nulls.
        field: Declared field.

    Raises:
        EncodeError: A file cannot be stored in the field; `row` is set.
    """
    if is_image_struct(values.type):
        files = pc.struct_field(values, "bytes").cast(pa.binary())
        if files.null_count:
            files = pa.array([image_file(value.as_py(), field) for value in values], pa.binary())
    elif is_bytes(values.type):
        files = values.cast(pa.binary())
        cells = byte_cells(files, field)
        pixels = field.decoded_bytes
        if (pixels is not None and (cells.sizes == pixels).all()) or not any(
            is_image_file(cells[row]) for row in range(len(cells))
        ):
            return None
    else:
        return None
    cells = byte_cells(files, field)
    for row in range(len(cells)):
        try:
            check_file(cells[row], field)
        except EncodeError as problem:
            raise problem.at(row=row) from None
    return files
