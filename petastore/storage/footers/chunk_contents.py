"""What a Parquet footer says of the contents of column chunks, straight from its bytes. Pure.

Like the counts (`petastore.storage.footers.row_group_counts`) it is taken from the bytes, since pyarrow's own access
ends the whole process where a footer is damaged in certain places.

Field numbers are those of `parquet.thrift`: FileMetaData {4 row_groups}, RowGroup {1 columns}, ColumnChunk
{3 meta_data}, ColumnMetaData {2 encodings, 3 path_in_schema, 5 num_values, 6 total_uncompressed_size,
7 total_compressed_size}.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from petastore.errors import MetadataError
from petastore.storage.footers.thrift import (
    BINARY,
    INTEGERS,
    LIST,
    STRUCT,
    read_field,
    read_integer,
    read_list_header,
    read_struct_list,
    read_varint,
    skip_struct,
    skip_value,
)

__all__ = ["ChunkContents", "chunk_contents"]

_DICTIONARIES = {2, 8}  # PLAIN_DICTIONARY, RLE_DICTIONARY


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


def chunk_contents(footer: bytes, leaves: Collection[int], *, source: str) -> list[dict[int, ChunkContents]]:
    """Of each row group: some of its column chunks, by the numbers of their leaf columns.

    Args:
        footer: The Thrift bytes, without length and magic.
        leaves: Leaf columns that are wanted.
        source: The file, for messages.

    Raises:
        MetadataError: The bytes are no footer.
    """
    groups: list[dict[int, ChunkContents]] = []
    try:
        at = field = 0
        while footer[at]:
            field, kind, at = read_field(footer, at, field)
            if field != 4 or kind != LIST:
                at = skip_value(footer, at, kind)
                continue
            count, at = read_struct_list(footer, at)
            for _ in range(count):
                chunks, at = _row_group(footer, at, leaves)
                groups.append(chunks)
    except (IndexError, ValueError, OverflowError, RecursionError) as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}") from None
    return groups


def _row_group(data: bytes, at: int, leaves: Collection[int]) -> tuple[dict[int, ChunkContents], int]:
    chunks: dict[int, ChunkContents] = {}
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field != 1 or kind != LIST:
            at = skip_value(data, at, kind)
            continue
        count, at = read_struct_list(data, at)
        for leaf in range(count):
            if leaf in leaves:
                chunks[leaf], at = _column_chunk(data, at)
            else:
                at = skip_struct(data, at)
    return chunks, at + 1


def _column_chunk(data: bytes, at: int) -> tuple[ChunkContents, int]:
    found = ChunkContents()
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 3 and kind == STRUCT:
            found, at = _column_metadata(data, at)
        else:
            at = skip_value(data, at, kind)
    return found, at + 1


def _column_metadata(data: bytes, at: int) -> tuple[ChunkContents, int]:
    numbers: dict[int, int] = {}
    encodings: set[int] = set()
    path: list[str] = []
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field in (5, 6, 7) and kind in INTEGERS:
            numbers[field], at = read_integer(data, at)
        elif field == 2 and kind == LIST:
            encodings, at = _integers(data, at)
        elif field == 3 and kind == LIST:
            path, at = _texts(data, at)
        else:
            at = skip_value(data, at, kind)
    of_fields = (numbers.get(field, 0) for field in (6, 7))
    has_dictionary = not _DICTIONARIES.isdisjoint(encodings)
    return ChunkContents(".".join(path), numbers.get(5, 0), has_dictionary, *of_fields), at + 1


def _integers(data: bytes, at: int) -> tuple[set[int], int]:
    count, kind, at = read_list_header(data, at)
    if count and kind not in INTEGERS:
        raise ValueError(f"a list of encodings holds type {kind}")
    found = set()
    for _ in range(count):
        number, at = read_integer(data, at)
        found.add(number)
    return found, at


def _texts(data: bytes, at: int) -> tuple[list[str], int]:
    count, kind, at = read_list_header(data, at)
    if count and kind != BINARY:
        raise ValueError(f"the path of a column holds type {kind}")
    found = []
    for _ in range(count):
        length, at = read_varint(data, at)
        found.append(data[at : at + length].decode())
        at += length
    return found, at
