"""Properties of encoded cells in memory: their bytes, decoded sizes and common shape.

Columns such as text, bytes and JPEG images stay in Arrow's memory as stored, until a batch needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_views import ByteCells, byte_cells
from petastore.codecs.registry import BoundCodec
from petastore.decoding.decode import decoded_sizes
from petastore.errors import DecodeError

__all__ = ["cell_sizes", "cells_in_place", "cells_of_one_shape"]


def cells_in_place(columns: Mapping[str, BoundCodec], cells: Mapping[str, pa.Array]) -> dict[str, ByteCells]:
    """Return the bytes of each cell, for columns without nulls whose codec decodes directly into an output array."""
    return {
        name: byte_cells(chunk, columns[name].field)
        for name, chunk in cells.items()
        if columns[name].takes_bytes
        and not chunk.null_count
        and (pa.types.is_binary(chunk.type) or pa.types.is_large_binary(chunk.type))
    }


def cell_sizes(columns: Mapping[str, BoundCodec], cells: Mapping[str, pa.Array]) -> dict[str, NDArray[np.int64]]:
    """For each variable-size column, return the decoded bytes of each value, shape (rows,)."""
    measured = {name: _sizes(columns[name], chunk) for name, chunk in cells.items()}
    return {name: sizes for name, sizes in measured.items() if sizes is not None}


def cells_of_one_shape(columns: Mapping[str, BoundCodec], cells: Mapping[str, pa.Array]) -> dict[str, NDArray[Any]]:
    """Return each variable-shape column whose values all have the same shape as one zero-copy array."""
    views = {name: (columns[name].view_alike, chunk) for name, chunk in cells.items()}
    viewed = {name: view(chunk) for name, (view, chunk) in views.items() if view is not None}
    return {name: values for name, values in viewed.items() if values is not None}


def _sizes(bound: BoundCodec, chunk: pa.Array) -> NDArray[np.int64] | None:
    try:
        return decoded_sizes(chunk, bound.field, bound.codec)
    except DecodeError:
        return None  # the column does not have its declared type; the error is raised when a row is decoded
