"""What a Parquet footer says of the contents of column chunks, straight from its bytes. Pure.

Field numbers are those of `parquet.thrift`: ColumnMetaData {2 encodings, 3 path_in_schema, 5 num_values,
6 total_uncompressed_size, 7 total_compressed_size, 16 size_statistics}, SizeStatistics
{1 unencoded_byte_array_data_bytes}.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from petastore.storage.footers.footer_fields import COLUMNS, METADATA, ROW_GROUPS, footer_fields
from petastore.storage.footers.thrift import (
    BINARY,
    INTEGER,
    STRUCT,
    Read,
    list_reader,
    read_binary,
    some_structs_reader,
    struct_reader,
)

__all__ = ["ChunkContents", "chunk_contents"]

_DICTIONARIES = {2, 8}  # PLAIN_DICTIONARY, RLE_DICTIONARY
_SIZES = 16


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
    chunks = {COLUMNS: some_structs_reader(_column_chunk, leaves)}
    found = footer_fields(footer, {ROW_GROUPS: list_reader({STRUCT: struct_reader(chunks)})}, source=source)
    return [group.get(COLUMNS, {}) for group in found.get(ROW_GROUPS, [])]


_fields: Read = struct_reader(
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
    chunk, at = _fields(data, at)
    said = chunk.get(METADATA, {})
    path = ".".join(name.decode() for name in said.get(3, ()))
    has_dictionary = not _DICTIONARIES.isdisjoint(said.get(2, ()))
    copied = said.get(_SIZES, {}).get(1)
    return ChunkContents(path, said.get(5, 0), has_dictionary, said.get(6, 0), said.get(7, 0), copied), at
