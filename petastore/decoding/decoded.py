"""Decoded: the values of one column, with the missing ones set apart. It knows nothing of how they were stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.buffers import Buffers
from petastore.schema.field import UnischemaField

__all__ = ["Decoded", "empty_column"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Decoded:
    """The values of one column."""

    values: NDArray[Any]
    """Shape (rows, *shape) for fields of fixed shape, else (rows,) of dtype object."""

    missing: NDArray[np.bool_] | None
    """True where a value is missing, shape (rows,), or of windows (rows, length); None where none is, and always for
    object columns."""

    def rows(self, first: int, stop: int) -> NDArray[Any]:
        """The rows [first, stop), as a view; a masked array where some of them are missing."""
        values = self.values[first:stop]
        if self.missing is None or not self.missing[first:stop].any():
            return values
        missing = self.missing[first:stop]
        missing = missing.reshape(missing.shape + (1,) * (values.ndim - missing.ndim))
        return np.ma.MaskedArray(values, mask=np.broadcast_to(missing, values.shape))

    def each(self, first: int, stop: int) -> Sequence[Any] | NDArray[Any]:
        """Return the values of the rows [first, stop) one by one, None where one is missing."""
        values = self.values[first:stop]
        if self.missing is None:
            return values
        missing = self.missing[first:stop].tolist()
        return [None if is_missing else value for is_missing, value in zip(missing, values, strict=True)]

    def without_idle_mask(self) -> Decoded:
        """The same column; None says that no value is missing, where none is."""
        return self if self.missing is None or self.missing.any() else Decoded(self.values, None)


def empty_column(
    field: UnischemaField, rows: int, buffers: Buffers | None = None, *, most_rows: int = 0
) -> NDArray[Any]:
    """An array for the values of some rows of a field, not filled yet; memory of its own unless buffers are given.

    Theirs has room for `most_rows`.
    """
    if not field.is_fixed or field.dtype.hasobject:
        return np.empty(rows, dtype=object)
    shape: tuple[Any, ...] = (rows, *field.shape)
    if buffers is None:
        return np.empty(shape, field.dtype)
    return buffers.empty(shape, field.dtype, room=most_rows * math.prod(shape[1:]) * field.dtype.itemsize)
