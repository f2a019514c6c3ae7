"""Cells of text and bytes in memory of the reader's own, however they came out of a file.

Arrow's allocator keeps twice what row groups that come and go take, and asks the system for it page by page. So cells
are read a few megabytes at a time, and moved: what Arrow needs is little, and used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import concatenate, flags_of, large_type

__all__ = ["are_movable", "moved_cells"]

Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]


def moved_cells(pieces: Iterable[pa.Array], rows: int, empty: Empty) -> pa.Array:
    """A column of text or bytes that comes in pieces, whole and in memory of the caller's; other cells as they are.

    Each piece is let go of before the next one is asked for, so that what it lies in is used again.

    Args:
        pieces: Arrow arrays, at least one. Those of another type than the first are cast, as rows that follow in
            another file may be.
        rows: How many cells they have together.
        empty: Gives arrays of a shape and dtype, C-contiguous; they live as long as what is returned.

    Example:
        >>> pieces = [pa.array(["ab", None, "c"]), pa.array(["def"])]
        >>> moved_cells(iter(pieces), 4, np.empty).to_pylist()
        ['ab', None, 'c', 'def']
    """
    left = iter(pieces)
    first = next(left)
    dtype = _border_dtype(first.type)
    if dtype is None or rows == 0:
        return concatenate([first, *left])
    moved = _MovedCells(first.type, dtype, rows, empty)
    moved.add(first)
    del first
    for piece in left:
        moved.add(piece)
        del piece
    return moved.cells()


def are_movable(cells: pa.Array) -> bool:
    """Whether `moved_cells` moves such cells.

    Example:
        >>> are_movable(pa.array(["a"])), are_movable(pa.array([1]))
        (True, False)
    """
    return _border_dtype(cells.type) is not None


class _MovedCells:
    """Cells of text or bytes, side by side in memory of somebody's, as they are added to it."""

    def __init__(self, stored: pa.DataType, border_dtype: np.dtype[Any], rows: int, empty: Empty) -> None:
        self._stored, self._rows, self._empty = stored, rows, empty
        self._borders = empty((rows + 1,), border_dtype)
        self._borders[0] = 0
        self._data = np.empty(0, np.uint8)
        self._missing: NDArray[np.bool_] | None = None
        self._cells = self._bytes = 0

    def add(self, piece: pa.Array) -> None:
        """Copies cells, which come after those that are there; with 64-bit offsets from 2 GiB on."""
        if len(piece) == 0:
            return
        if piece.type != self._stored:
            piece = piece.cast(self._stored)
        _, offsets, data = piece.buffers()
        borders = np.frombuffer(offsets, self._borders.dtype, piece.offset + len(piece) + 1)[piece.offset :]
        first, stop = int(borders[0]), int(borders[-1])
        filled = self._bytes + stop - first
        if filled > np.iinfo(self._borders.dtype).max:
            self._widen()
        where = slice(self._cells, self._cells + len(piece))
        if filled > len(self._data):
            self._enlarge(filled, filled * self._rows // where.stop)
        if stop > first:
            self._data[self._bytes : filled] = np.frombuffer(data, np.uint8, stop)[first:]
        out = self._borders[where.start + 1 : where.stop + 1]
        np.add(borders[1:], self._bytes - first, out=out, dtype=out.dtype)
        if piece.null_count:
            if self._missing is None:
                self._missing = np.zeros(self._rows, np.bool_)
            self._missing[where] = flags_of(piece.is_null())
        self._cells, self._bytes = where.stop, filled

    def _widen(self) -> None:
        """Has 64-bit offsets from now on."""
        self._stored = large_type(self._stored)
        narrow, self._borders = self._borders, self._empty((self._rows + 1,), np.dtype(np.int64))
        self._borders[: self._cells + 1] = narrow[: self._cells + 1]

    def _enlarge(self, least: int, expected: int) -> None:
        """Room for so many bytes, and a little more than all cells will take if they are like those before."""
        larger = self._empty((max(least, expected + expected // 16),), np.dtype(np.uint8))
        larger[: self._bytes] = self._data[: self._bytes]
        self._data = larger

    def cells(self) -> pa.Array:
        """All that was added."""
        valid, nulls = None, 0
        if self._missing is not None:
            valid, nulls = pa.py_buffer(np.packbits(~self._missing, bitorder="little")), int(self._missing.sum())
        buffers = [valid, pa.py_buffer(self._borders), pa.py_buffer(self._data[: self._bytes])]
        return pa.Array.from_buffers(self._stored, self._cells, buffers, null_count=nulls)


def _border_dtype(stored: pa.DataType) -> np.dtype[Any] | None:
    """Of the borders between cells that lie side by side; None where they lie otherwise."""
    if pa.types.is_binary(stored) or pa.types.is_string(stored):
        return np.dtype(np.int32)
    if pa.types.is_large_binary(stored) or pa.types.is_large_string(stored):
        return np.dtype(np.int64)
    return None
