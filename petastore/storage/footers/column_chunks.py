"""What a Parquet footer says of column chunks, straight from its bytes: their contents, and their statistics. Pure.

Bounds are left out where their order is not sure: the old fields `min` and `max`, which nobody wrote down, and columns
whose order the footer does not declare.

Field numbers are those of `parquet.thrift`: FileMetaData {7 column_orders}, ColumnMetaData {1 type, 2 encodings,
3 path_in_schema, 5 num_values, 6 total_uncompressed_size, 7 total_compressed_size, 12 statistics, 16 size_statistics},
Statistics {3 null_count, 5 max_value, 6 min_value}, SizeStatistics {1 unencoded_byte_array_data_bytes}, ColumnOrder
{1 TYPE_ORDER}.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from petastore.storage.footers.footer_fields import COLUMNS, METADATA, ROW_GROUPS, footer_fields
from petastore.storage.footers.thrift import (
    BINARY,
    INTEGER,
    PRESENCE,
    STRUCT,
    Read,
    list_reader,
    read_binary,
    some_structs_reader,
    struct_reader,
)

__all__ = ["ChunkContents", "ChunkStatistics", "chunk_contents", "chunk_statistics"]

_DICTIONARIES = {2, 8}  # PLAIN_DICTIONARY, RLE_DICTIONARY
_ORDERS, _TYPE_ORDER = 7, 1  # of FileMetaData and of ColumnOrder
_TYPE, _STATISTICS, _SIZES = 1, 12, 16  # of ColumnMetaData


class ChunkContents(NamedTuple):
    """One column chunk; nothing of it is checked."""

    path: str = ""
    """Names from the column to the leaf, joined by dots."""

    values: int = 0
    """How many, missing ones too."""

    has_dictionary: bool = False
    """Whether some of them are numbers of values in a dictionary."""

    decoded_bytes: int = 0
    """Bytes of its pages, uncompressed."""

    stored_bytes: int = 0
    """Bytes of its pages in the file."""

    copied_bytes: int | None = None
    """Bytes of all values of text or bytes, were there a copy of each; None where the footer does not say."""


def chunk_contents(footer: bytes, leaves: Collection[int], *, source: str) -> list[dict[int, ChunkContents]]:
    """Of each row group: some of its column chunks, by the numbers of their leaf columns.

    Args:
        footer: The Thrift bytes, without length and magic.
        leaves: Leaf columns that are wanted.
        source: The file, for messages.

    Raises:
        MetadataError: The bytes are no footer.
    """
    fields_there = footer_fields(footer, {ROW_GROUPS: _row_groups(_column_chunk, leaves)}, source=source)
    return [group.get(COLUMNS, {}) for group in fields_there.get(ROW_GROUPS, [])]


def _row_groups(read_chunk: Read, leaves: Collection[int]) -> Mapping[int, Read]:
    """How a footer is asked for some leaf columns of all row groups."""
    return list_reader({STRUCT: struct_reader({COLUMNS: some_structs_reader(read_chunk, leaves)})})


_contents = struct_reader(
    {
        METADATA: {
            STRUCT: struct_reader(
                {
                    2: list_reader(INTEGER),
                    3: list_reader({BINARY: read_binary}),
                    **dict.fromkeys((5, 6, 7), INTEGER),
                    _SIZES: {STRUCT: struct_reader({1: INTEGER})},
                }
            )
        }
    }
)


def _column_chunk(data: bytes, at: int) -> tuple[ChunkContents, int]:
    chunk, at = _contents(data, at)
    said = chunk.get(METADATA, {})
    path = ".".join(name.decode() for name in said.get(3, ()))
    has_dictionary = not _DICTIONARIES.isdisjoint(said.get(2, ()))
    copied = said.get(_SIZES, {}).get(1)
    return ChunkContents(path, said.get(5, 0), has_dictionary, said.get(6, 0), said.get(7, 0), copied), at


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """What a footer says of one column in one row group; nothing of it is checked."""

    physical: int = -1
    """Physical type of Parquet."""

    nulls: int | None = None
    """Missing values, None where the footer does not say."""

    minimum: bytes | None = None
    """A lower bound as it lies there, None where there is none in a declared order."""

    maximum: bytes | None = None
    """An upper bound."""


def chunk_statistics(footer: bytes, leaves: Collection[int], *, source: str) -> list[dict[int, ChunkStatistics]]:
    """Of each row group: the statistics of some leaf columns, by their numbers.

    Args:
        footer: The Thrift bytes, without length and magic.
        leaves: Leaf columns that are wanted.
        source: The file, for messages.

    Raises:
        MetadataError: The bytes are no footer.
    """
    orders = list_reader({STRUCT: struct_reader({_TYPE_ORDER: PRESENCE})})
    fields = {ROW_GROUPS: _row_groups(_described, leaves), _ORDERS: orders}
    fields_there = footer_fields(footer, fields, source=source)
    ordered = {leaf for leaf, order in enumerate(fields_there.get(_ORDERS, ())) if order}
    return [
        {leaf: _statistics(chunk, has_bounds=leaf in ordered) for leaf, chunk in group.get(COLUMNS, {}).items()}
        for group in fields_there.get(ROW_GROUPS, [])
    ]


_VALUES = struct_reader({3: INTEGER, 5: {BINARY: read_binary}, 6: {BINARY: read_binary}})
_described = struct_reader({METADATA: {STRUCT: struct_reader({_TYPE: INTEGER, _STATISTICS: {STRUCT: _VALUES}})}})


def _statistics(chunk: dict[int, Any], *, has_bounds: bool) -> ChunkStatistics:
    said = chunk.get(METADATA, {})
    values = said.get(_STATISTICS, {})
    minimum, maximum = (values.get(6), values.get(5)) if has_bounds else (None, None)
    return ChunkStatistics(said.get(_TYPE, -1), values.get(3), minimum, maximum)
