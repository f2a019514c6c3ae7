"""Stacking: what files hold of the columns of a stack, copied into one array, in read order.

Columns are seen as one array where they are numbers, and else each by its codec. One of whose cells some have to be
refused is not stacked: only the rows that somebody asks for may fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import flags_of, only_chunk
from petastore.codecs.registry import BoundCodec
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded, decode_cells, decode_into
from petastore.errors import DecodeError
from petastore.once import once
from petastore.readers.loaded.as_one import AsOne
from petastore.readers.loaded.layout import Stack

__all__ = ["Stacked", "Stacking"]

_LONG_COLUMN_BYTES = 64 * 1024
"""Columns of so many bytes are permuted one by one rather than copied once more: NumPy writes to one run of memory."""

_FEW_COLUMNS = 4
"""Fewer columns than this are looked at one by one: each call into Arrow lets go of the interpreter lock."""


class Stacked(NamedTuple):
    """What became of the columns of a stack."""

    values: NDArray[Any]
    """Shape `(columns, rows, *shape)`; those of columns that are not there, or not stacked, are arbitrary."""

    missing: dict[str, NDArray[np.bool_]]
    """Of columns with missing values: which rows, in the order of the file, shape (rows,)."""

    not_stacked: dict[str, Any]
    """Columns that have to stay cells: a `pyarrow.Array` of all rows; None where they have to be read once more."""


@dataclasses.dataclass(frozen=True)
class Stacking:
    """Makes stacks of what is read. Thread-safe: what it remembers is the same whoever finds it out."""

    columns: Mapping[str, BoundCodec]
    """Each column that the files hold."""

    buffers: Buffers
    """Where memory comes from."""

    @once
    def as_one(self) -> AsOne:
        """What sees several of them as one array."""
        return AsOne(self.columns)

    def stacked(
        self, stack: Stack, table: pa.Table, read_order: NDArray[np.int64] | None, room: NDArray[Any] | None
    ) -> Stacked:
        """A stack whose columns were read in one go.

        Args:
            stack: Which columns it has.
            table: Those of them that the files hold.
            read_order: Rows in the order in which they are laid; None is the order of the file.
            room: Where they are laid, shape `(columns, rows or more, *shape)`; None is an array of its own.
        """
        whole = None if len(stack.names) < _FEW_COLUMNS else self.as_one.values(stack, table)
        if whole is not None and read_order is None and room is None:
            return Stacked(whole, {}, {})  # Arrow put it together in memory of its own, and it is as wanted
        rows = table.num_rows if read_order is None else len(read_order)
        made = Stacked(self._empty(stack, rows) if room is None else room[:, :rows], {}, {})
        if whole is not None:
            self._permute(whole, read_order, made.values)
            return made
        for name, out in zip(stack.names, made.values, strict=True):
            bound = self.columns.get(name)
            if bound is None:
                continue
            column = table.column(name)
            chunk = column.chunk(0) if column.num_chunks == 1 else only_chunk(column)
            decoded = _decoded(bound, chunk)
            if decoded is None:
                made.not_stacked[name] = chunk
                continue
            if decoded.missing is not None:
                made.missing[name] = decoded.missing
            _lay(_with_zeros(decoded), read_order, out)
        return made

    def stacked_piece_by_piece(
        self, stack: Stack, tables: Iterator[pa.Table], rows: int, room: NDArray[Any] | None
    ) -> Stacked:
        """A stack of one column of long rows, in the order of the file.

        Args:
            stack: Which column it is.
            tables: Give a few rows of it each, and no more of them than are taken here.
            rows: Of the row group.
            room: As above.
        """
        (name,) = stack.names
        made = Stacked(self._empty(stack, rows) if room is None else room[:, :rows], {}, {})
        bound, is_missing = self.columns.get(name), np.zeros(rows, dtype=np.bool_)
        first = 0
        while first < rows and bound is not None:
            column = next(tables).column(0)
            chunk = column.chunk(0) if column.num_chunks == 1 else only_chunk(column)
            where = slice(first, first + len(chunk))
            if not made.not_stacked and not _put(bound, chunk, Decoded(made.values[0, where], is_missing[where])):
                made.not_stacked[name] = None
            first = where.stop
        if rows == 0 or bound is None:
            next(tables)
        if not made.not_stacked and is_missing.any():
            made.missing[name] = is_missing
        return made

    def _empty(self, stack: Stack, rows: int) -> NDArray[Any]:
        return self.buffers.empty((len(stack.names), rows, *stack.shape), stack.dtype)

    def _permute(self, whole: NDArray[Any], read_order: NDArray[np.int64] | None, out: NDArray[Any]) -> None:
        if read_order is None:
            np.copyto(out, whole)
        elif out.flags.c_contiguous:
            np.take(whole, read_order, axis=1, out=out, mode="clip")
        elif out[0].nbytes >= _LONG_COLUMN_BYTES:
            for values, column in zip(whole, out, strict=True):
                np.take(values, read_order, axis=0, out=column, mode="clip")
        else:
            permuted = self.buffers.empty(out.shape, out.dtype)
            np.take(whole, read_order, axis=1, out=permuted, mode="clip")
            np.copyto(out, permuted)


def _decoded(bound: BoundCodec, chunk: Any) -> Decoded | None:
    """All values of a column; None where one of them has to be refused, or decoding them is work."""
    field = bound.field
    if bound.view is None or (chunk.null_count and not field.nullable):
        return None
    viewed = bound.view(chunk)
    if viewed is not None:
        return Decoded(viewed, flags_of(chunk.is_null()) if chunk.null_count else None)
    if not field.is_scalar or not (pa.types.is_primitive(chunk.type) or pa.types.is_boolean(chunk.type)):
        return None
    try:
        return decode_cells(chunk, field, bound.codec, max_cell_bytes=None)
    except DecodeError:
        return None


def _put(bound: BoundCodec, chunk: Any, out: Decoded) -> bool:
    """All values of a piece of a column into their place; False where one of them has to be refused."""
    viewed = None if bound.view is None or chunk.null_count else bound.view(chunk)
    if viewed is not None:
        np.copyto(out.values, viewed)
        return True
    try:
        decode_into(chunk, bound.field, bound.codec, out, max_cell_bytes=None)
    except DecodeError:
        return False
    return True


def _lay(values: NDArray[Any], read_order: NDArray[np.int64] | None, out: NDArray[Any]) -> None:
    if read_order is None or values.dtype != out.dtype:
        np.copyto(out, values if read_order is None else values[read_order])
    else:
        np.take(values, read_order, axis=0, out=out, mode="clip")


def _with_zeros(column: Decoded) -> NDArray[Any]:
    """The values, with zeros where they are missing."""
    if column.missing is None:
        return column.values
    values = column.values.copy()
    values[column.missing] = np.zeros((), values.dtype)
    return values
