"""Columns that are kept as cells: as they are stored, JPEG bytes and not pixels, and what is known of each cell.

Those of text or bytes are read a few megabytes at a time, so that Arrow's memory for them is used again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import only_chunk
from petastore.codecs.arrow.arrow_views import ByteCells, byte_cells
from petastore.codecs.registry import BoundCodec
from petastore.decoding.buffers import Buffers
from petastore.decoding.cell_sizes import decoded_sizes
from petastore.errors import DecodeError
from petastore.readers.loaded.moved_cells import are_movable, moved_cells
from petastore.storage.row_groups.asked_columns import Part

__all__ = ["KeptCells"]

_BYTES_AT_ONCE = 2 * 1024 * 1024
"""Bytes of text or bytes that are read in one go: Arrow's memory for them is used again, and stays in the cache."""


@dataclasses.dataclass(frozen=True)
class KeptCells:
    """Reads columns that are kept as cells. Thread-safe: what it remembers is the same whoever finds it out."""

    columns: Mapping[str, BoundCodec]
    """Each column that the files hold."""

    buffers: Buffers
    """Where memory comes from."""

    most_bytes: int
    """What the rows of a column of a row group may take that the file holds as a dictionary."""

    rows_at_once: dict[str, int] = dataclasses.field(default_factory=dict, kw_only=True)
    """Of columns of text or bytes: how many rows are best read in one go, as the first row group has shown."""

    def parts(self, names: Iterable[str]) -> list[Part]:
        """What is read of each column: some rows at a time, if that is known to be better."""
        return [Part((name,), self.rows_at_once.get(name), most_bytes=self.most_bytes) for name in names]

    def whole_parts(self, names: Iterable[str]) -> list[Part]:
        """What is read of each column, in one go."""
        return [Part((name,), most_bytes=self.most_bytes) for name in names]

    def read(self, parts: Iterable[Part], tables: Iterator[pa.Table], rows: int) -> dict[str, Any]:
        """The cells of each column, a `pyarrow.Array` of all rows.

        Args:
            parts: Of each column, as above.
            tables: Theirs, one after the other; no more of them than are taken here.
            rows: Of the row group.
        """
        cells: dict[str, Any] = {}
        for part in parts:
            (name,) = part.columns
            column = cells[name] = moved_cells(_pieces(tables, rows), rows, self.buffers.empty)
            if rows and name not in self.rows_at_once and are_movable(column):
                self.rows_at_once[name] = max(_BYTES_AT_ONCE * rows // max(column.nbytes, 1), 1)
        return cells

    def files(self, cells: Mapping[str, Any]) -> dict[str, ByteCells]:
        """Of those columns whose codec decodes cells wherever they lie: where each lies. Not of columns with nulls."""
        lying = {name: _lying(self.columns[name], column) for name, column in cells.items()}
        return {name: where for name, where in lying.items() if where is not None}

    def sizes(self, cells: Mapping[str, Any]) -> dict[str, NDArray[np.int64]]:
        """Of those columns whose values differ in size: bytes of each once decoded, shape (rows,)."""
        measured = {name: _sizes(self.columns[name], column) for name, column in cells.items()}
        return {name: of_cells for name, of_cells in measured.items() if of_cells is not None}

    def alike(self, cells: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Of those columns of a free shape in which all values have one: all values, where they lie."""
        views = {name: (self.columns[name].view_alike, column) for name, column in cells.items()}
        viewed = {name: view(column) for name, (view, column) in views.items() if view is not None}
        return {name: values for name, values in viewed.items() if values is not None}


def _pieces(tables: Iterator[pa.Table], rows: int) -> Iterator[Any]:
    """The arrays of the next tables, which are of one column, until they have so many rows."""
    given = 0
    while True:
        chunks = next(tables).column(0)
        chunks = list(chunks.chunks) or [only_chunk(chunks)]
        while chunks:  # several, where 32-bit offsets do not hold all bytes of one
            given += len(chunks[0])
            yield chunks.pop(0)
        if given >= rows:
            return


def _lying(bound: BoundCodec, chunk: Any) -> ByteCells | None:
    """Where cells lie; None where they are not to be decoded there."""
    if chunk.null_count or not bound.takes_bytes:
        return None
    if not (pa.types.is_binary(chunk.type) or pa.types.is_large_binary(chunk.type)):
        return None
    return byte_cells(chunk, bound.field)


def _sizes(bound: BoundCodec, chunk: Any) -> NDArray[np.int64] | None:
    """Bytes of each value once decoded, shape (rows,); None where that is not known."""
    try:
        return decoded_sizes(chunk, bound.field, bound.codec)
    except DecodeError:
        return None  # the column is of another kind; who asks for one of its rows is told
