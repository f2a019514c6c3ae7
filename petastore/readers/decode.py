"""Decode: stored cells of one column to an array, with the missing ones set apart.

Codecs never see nulls. A decode error leaves here with the column and the position among the cells; the assembler,
which knows where each cell came from, adds file, row group and row.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import DecodeError
from petastore.schema.codec import Codec
from petastore.schema.field import UnischemaField

__all__ = ["Decoded", "decode_cells", "empty_column"]


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


def empty_column(field: UnischemaField, rows: int) -> NDArray[Any]:
    """An array for the values of some rows of a field, not filled yet."""
    if not field.is_fixed:
        return np.empty(rows, dtype=object)
    return np.empty((rows, *field.shape), dtype=field.dtype)  # type: ignore[arg-type]  # fixed: no None in it


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
    if cells.null_count == 0:
        _decode(cells, field, codec, out)
        return Decoded(out, None)
    missing = cells.is_null().to_numpy(zero_copy_only=False)
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
    out.fill(None if out.dtype == np.dtype(object) else np.zeros((), out.dtype)[()])
    out[present] = values
    return Decoded(out, None if out.dtype == np.dtype(object) else missing)


def _decode(cells: Any, field: UnischemaField, codec: Codec, out: NDArray[Any]) -> None:
    try:
        codec.decode_column(cells, field, out)
    except DecodeError as problem:
        raise problem.at(column=field.name) from problem.__cause__
