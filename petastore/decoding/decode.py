"""Decode: stored cells of one column to an array, with the missing ones set apart.

Codecs never see nulls. A decode error leaves here with the column and the position among the cells; the assembler,
which knows where each cell came from, adds file, row group and row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.arrow.memory import flags_of
from petastore.decoding.cell_sizes import decoded_sizes, measuring_face, refuse_large_cells, refuse_large_values
from petastore.decoding.decoded import Decoded, empty_column
from petastore.errors import DecodeError
from petastore.schema.codec import Codec
from petastore.schema.field import UnischemaField

__all__ = ["Decoded", "decode_cells", "decode_into", "empty_column"]


def decode_cells(cells: Any, field: UnischemaField, codec: Codec, *, max_cell_bytes: int | None) -> Decoded:
    """The values of stored cells.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: What was declared.
        codec: The field's codec.
        max_cell_bytes: Bytes that a cell may take once it is decoded; None is no limit.

    Raises:
        DecodeError: A cell is not what the field declares, or too large; `row` is its position in `cells`.
    """
    refuse_large_cells(None if max_cell_bytes is None else decoded_sizes(cells, field, codec), field, max_cell_bytes)
    out = empty_column(field, len(cells))
    missing = np.zeros(len(cells), np.bool_) if cells.null_count and out.dtype != np.dtype(object) else None
    decode_into(cells, field, codec, Decoded(out, missing), max_cell_bytes=max_cell_bytes)
    return Decoded(out, missing)


def decode_into(cells: Any, field: UnischemaField, codec: Codec, out: Decoded, *, max_cell_bytes: int | None) -> None:
    """The values of stored cells, of which the size is known to be fine, into arrays that are there.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: What was declared.
        codec: The field's codec.
        max_cell_bytes: Bytes that a value may have whose codec could not tell its size before; None is no limit.
        out: Is written: `values`, and True in `missing` where a value is; what is missing is zero, or None in object
            columns, which need no `missing`.

    Raises:
        DecodeError: A cell is not what the field declares; `row` is its position in `cells`.
    """
    if cells.null_count == 0:
        _decode(cells, field, codec, out.values, max_cell_bytes)
        return
    missing = flags_of(cells.is_null())
    present = np.flatnonzero(~missing)
    if not field.nullable:
        row = int(np.flatnonzero(missing)[0])
        raise DecodeError(
            "the value is missing, but the schema says nullable=False; declare the field nullable=True",
            column=field.name,
            row=row,
        )
    values = empty_column(field, len(present))
    try:
        _decode(cells.drop_null(), field, codec, values, max_cell_bytes)
    except DecodeError as problem:
        problem.row = None if problem.row is None else int(present[problem.row])
        raise
    is_object = out.values.dtype == np.dtype(object)
    out.values.fill(None if is_object else np.zeros((), out.values.dtype)[()])
    out.values[present] = values
    if out.missing is not None:
        out.missing[:] = missing


def _decode(cells: Any, field: UnischemaField, codec: Codec, out: NDArray[Any], max_cell_bytes: int | None) -> None:
    try:
        codec.decode_column(cells, field, out)
        if out.dtype.hasobject and measuring_face(codec) is None:
            refuse_large_values(out, field, max_cell_bytes)
    except DecodeError as problem:
        raise problem.at(column=field.name) from problem.__cause__
