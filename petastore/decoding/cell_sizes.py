"""How large values are going to be, asked of their cells before any memory is taken; what is too large is refused.

A codec that knows tells (`petastore.schema.codec.MeasuringCodec`), and takes no more than it told. Of any other one the
values are looked at when they are there: that is late for the first of them, and in time for the next.
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from petastore.arrow.memory import flags_of
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.schema.codec import Codec, MeasuringCodec
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema

__all__ = [
    "DEFAULT_MAX_CELL_BYTES",
    "decoded_sizes",
    "measuring_face",
    "refuse_large_cells",
    "refuse_large_fields",
    "refuse_large_values",
]

DEFAULT_MAX_CELL_BYTES = 256 * 1024 * 1024
"""Bytes that one cell may take once decoded, unless asked otherwise: a volume of 512 × 512 × 512 numbers of 16 bits, or
a photograph of 89 megapixels. Larger cells are rare where batches are trained on, and each worker may hold one."""


def measuring_face(codec: Codec) -> MeasuringCodec | None:
    """The codec, if it has the face."""
    return cast("MeasuringCodec", codec) if _has_the_face(type(codec)) else None


@functools.cache
def _has_the_face(codec_class: type) -> bool:
    return hasattr(codec_class, "decoded_sizes")


def decoded_sizes(cells: Any, field: UnischemaField, codec: Codec) -> NDArray[np.int64] | None:
    """Bytes of each value once decoded, shape (rows,), 0 where it is missing; no memory was taken for any.

    None where all are as large as the field declares, or the codec cannot tell.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: What was declared.
        codec: The field's codec.

    Example:
        >>> import pyarrow as pa
        >>> from petastore.codecs import VectorCodec
        >>> field = UnischemaField("v", "float32", (None,), VectorCodec(), nullable=True)
        >>> cells = field.codec.encode_column([np.zeros(2, "f4"), None, np.zeros(5, "f4")], field)
        >>> decoded_sizes(cells, field, field.codec)
        array([ 8,  0, 20])
    """
    measuring = measuring_face(codec)
    if measuring is None:
        return None
    if cells.null_count == 0:
        return measuring.decoded_sizes(cells, field)
    of_present = measuring.decoded_sizes(cells.drop_null(), field)
    if of_present is None:
        return None
    sizes = np.zeros(len(cells), np.int64)
    sizes[flags_of(cells.is_valid())] = of_present
    return sizes


def refuse_large_cells(sizes: NDArray[np.int64] | None, field: UnischemaField, most: int | None) -> None:
    """Refuse cells that are known to become larger than they may.

    Args:
        sizes: Bytes of each once decoded, shape (rows,); None is not known.
        field: What was declared.
        most: `max_cell_bytes`; None is no limit.

    Raises:
        DecodeError: Names the first one; `row` is its position.
    """
    if sizes is None or most is None or int(sizes.max(initial=0)) <= most:
        return
    row = int(np.argmax(sizes > most))
    raise DecodeError(
        f"the cell takes {int(sizes[row]):,} bytes of memory once it is decoded, and max_cell_bytes={most:,}; if the "
        "data is to be trusted, give the reader a larger max_cell_bytes=, or None for no limit",
        column=field.name,
        row=row,
    )


def refuse_large_values(values: NDArray[Any], field: UnischemaField, most: int | None) -> None:
    """Refuse values that are there and larger than they may be, of a codec that could not tell.

    Args:
        values: What was decoded, shape (rows,), of dtype object.
        field: What was declared.
        most: `max_cell_bytes`; None is no limit.

    Raises:
        DecodeError: Names the first one; `row` is its position.
    """
    if most is not None:
        sizes = (getattr(value, "nbytes", 0) for value in values)
        refuse_large_cells(np.fromiter(sizes, np.int64, count=len(values)), field, most)


def refuse_large_fields(view: Unischema, most: int | None) -> None:
    """Refuse fields that declare larger values than there may be.

    Raises:
        InvalidArgumentError: Names the first one.
    """
    for field in view:
        if most is None or field.decoded_bytes is None:
            continue
        # NumPy reckons with dimensions of 0 as if they were 1.
        size = math.prod(max(length or 0, 1) for length in field.shape) * field.dtype.itemsize
        if size > most:
            raise InvalidArgumentError(
                f"each value of the field {field.name!r}, {field.dtype_name} of shape {field.shape}, takes {size:,} "
                f"bytes of memory, and max_cell_bytes={most:,}; leave the field out by schema_fields, or, if the data "
                "is to be trusted, give a larger max_cell_bytes=, or None for no limit"
            )
