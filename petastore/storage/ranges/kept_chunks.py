"""What a cache keeps of column chunks: each as it is stored; or decoded, and then neighbours of one type as one entry.

An entry of decoded columns is Arrow's memory: the values, column after column, and behind them, where one is missing, a
bit for each value that is there, column after column again. Its size tells which of both it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from petastore.errors import DecodeError
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.fetched_ranges import FetchedRanges

__all__ = ["Decode", "KeptChunks", "PlannedChunks", "entry_of"]

Decode: TypeAlias = Callable[[FetchedRanges, Sequence[ByteRange]], Sequence[pa.ChunkedArray]]
"""Given what was fetched, and which ranges of it are meant: the column of each."""


class KeptChunks(NamedTuple):
    """Column chunks of a row group that a cache keeps under one key: one, or several that are decoded."""

    ranges: tuple[ByteRange, ...]
    """Where they lie in the file."""

    columns: tuple[str, ...] = ()
    """Of each: the column that it is of, by its top-level name."""

    kind: Any = None
    """The `pyarrow.DataType` of all of them; None where it is kept as it is stored."""

    rows: int = 0
    """Of the row group, where it is decoded."""

    size: int | None = None
    """Bytes of the entry, if the footer is right; None where nobody knows."""

    within: KeptChunks | None = None
    """Of one that could be kept with its neighbours, but they are not asked for: all of them as one."""

    @property
    def others(self) -> Sequence[KeptChunks]:
        """Other entries that may have these chunks, or some of them: what they have is not asked for again."""
        if len(self.ranges) > 1:
            places = zip(self.ranges, self.columns, strict=True)
            return [KeptChunks((place,), (name,), self.kind, self.rows) for place, name in places]
        return () if self.within is None else (self.within,)

    @property
    def form(self) -> str:
        """What a key says of how they are kept."""
        return "" if self.kind is None else f" as {self.kind}"

    def arrays(self, entry: pa.Buffer) -> list[pa.Array]:
        """The columns again, if they are decoded: views of an entry.

        Raises:
            DecodeError: It has another size.
        """
        columns, one = len(self.ranges), self.rows * self.kind.bit_width // 8
        bits, values = -(-self.rows // 8), one * columns
        if entry.size == values:
            pieces = (entry.slice(number * one, one) for number in range(columns))
            return [pa.Array.from_buffers(self.kind, self.rows, [None, piece], null_count=0) for piece in pieces]
        if entry.size == values + bits * columns:
            both = ((values + number * bits, number * one) for number in range(columns))
            return [
                pa.Array.from_buffers(self.kind, self.rows, [entry.slice(at, bits), entry.slice(start, one)])
                for at, start in both
            ]
        what = "a column" if columns == 1 else f"{columns} columns"
        raise DecodeError(
            f"the cache on the local disk has {entry.size:,} bytes of {what} of {self.rows:,} values of {self.kind}; "
            "remove it by `petastore cache clear`",
            column=", ".join(self.columns),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedChunks:
    """What a plan knows of column chunks, before a footer says where they lie."""

    ordinal: int
    """Their row group: its number in the file."""

    columns: Mapping[ByteRange, str]
    """Of each range: the column that it is of."""

    kept: Sequence[KeptChunks] = ()
    """What a cache keeps of them, each range once; columns that are read in one go follow each other."""

    decode: Decode | None = None
    """Decodes ranges."""


def entry_of(columns: Sequence[pa.ChunkedArray | pa.Array], kind: Any) -> pa.Buffer:
    """What a cache keeps of columns that are decoded; of one, a view of its values, where it can be.

    Args:
        columns: Of one length.
        kind: The type of all of them, whose values have one width.

    Example:
        >>> entry = entry_of([pa.array([1, 2, 3]), pa.array([4, None, 6])], pa.int64())
        >>> kept = KeptChunks((ByteRange(4, 9), ByteRange(13, 9)), ("a", "b"), pa.int64(), 3)
        >>> entry.size, [array.to_pylist() for array in kept.arrays(entry)]
        (50, [[1, 2, 3], [4, None, 6]])
    """
    arrays = list(map(_whole, columns))
    width = kind.bit_width // 8
    values = [array.buffers()[1].slice(array.offset * width, len(array) * width) for array in arrays]
    if not any(array.null_count for array in arrays):
        return values[0] if len(values) == 1 else pa.py_buffer(b"".join(values))
    return pa.py_buffer(b"".join([*values, *map(_bits, arrays)]))


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array, whose bits of what is missing begin with a byte."""
    array = column
    if isinstance(column, pa.ChunkedArray):
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset and array.null_count else array


def _bits(array: pa.Array) -> pa.Buffer | bytes:
    """A bit for each value that is there."""
    size = -(-len(array) // 8)
    return array.buffers()[0].slice(0, size) if array.null_count else b"\xff" * size
