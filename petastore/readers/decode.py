"""Decode: stored cells of one column to an array, with the missing ones set apart.

Codecs never see nulls. A decode error leaves here with the column and the position among the cells; the assembler,
which knows where each cell came from, adds file, row group and row.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.arrow_memory import flags_of
from petastore.errors import DecodeError
from petastore.readers.buffers import Buffers
from petastore.schema.codec import Codec
from petastore.schema.field import UnischemaField

__all__ = ["Decoded", "decode_cells", "decode_into", "empty_column"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Decoded:
    """The values of one column."""

    values: NDArray[Any]
    """Shape (rows, *shape) for fields of fixed shape, else (rows,) of dtype object."""

    missing: NDArray[np.bool_] | None
    """True where a value is missing, shape (rows,); None where none is, and always for object columns."""

    def rows(self, first: int, stop: int) -> NDArray[Any]:
        """The rows [first, stop), as a view; a masked array where some of them are missing."""
        values = self.values[first:stop]
        if self.missing is None or not self.missing[first:stop].any():
            return values
        missing = self.missing[first:stop].reshape((-1,) + (1,) * (values.ndim - 1))
        return np.ma.MaskedArray(values, mask=np.broadcast_to(missing, values.shape))


def empty_column(field: UnischemaField, rows: int, buffers: Buffers | None = None) -> NDArray[Any]:
    """An array for the values of some rows of a field, not filled yet; memory of its own unless buffers are given."""
    if not field.is_fixed or field.dtype.hasobject:
        return np.empty(rows, dtype=object)
    shape: tuple[Any, ...] = (rows, *field.shape)
    return np.empty(shape, field.dtype) if buffers is None else buffers.empty(shape, field.dtype)


def decode_cells(cells: Any, field: UnischemaField, codec: Codec) -> Decoded:
    """The values of stored cells.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: What was declared.
        codec: The field's codec.

    Raises:
        DecodeError: A cell is not what the field declares; `row` is its position in `cells`.
    """
    out = empty_column(field, len(cells))
    missing = np.zeros(len(cells), np.bool_) if cells.null_count and out.dtype != np.dtype(object) else None
    decode_into(cells, field, codec, Decoded(out, missing))
    return Decoded(out, missing)


def decode_into(cells: Any, field: UnischemaField, codec: Codec, out: Decoded) -> None:
    """The values of stored cells, into arrays that are there.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: What was declared.
        codec: The field's codec.
        out: Is written: `values`, and True in `missing` where a value is; what is missing is zero, or None in object
            columns, which need no `missing`.

    Raises:
        DecodeError: A cell is not what the field declares; `row` is its position in `cells`.
    """
    if cells.null_count == 0:
        _decode(cells, field, codec, out.values)
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
        _decode(cells.drop_null(), field, codec, values)
    except DecodeError as problem:
        problem.row = None if problem.row is None else int(present[problem.row])
        raise
    is_object = out.values.dtype == np.dtype(object)
    out.values.fill(None if is_object else np.zeros((), out.values.dtype)[()])
    out.values[present] = values
    if out.missing is not None:
        out.missing[:] = missing


def _decode(cells: Any, field: UnischemaField, codec: Codec, out: NDArray[Any]) -> None:
    try:
        codec.decode_column(cells, field, out)
    except DecodeError as problem:
        raise problem.at(column=field.name) from problem.__cause__
