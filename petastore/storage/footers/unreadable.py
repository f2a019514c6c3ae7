"""Columns that a file has and that nobody reads, each with the reason: known when its footer is read.

The others are read all the same; who asks for one of these is told why, at the call.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from petastore.errors import MetadataError
from petastore.storage.footers.thrift import (
    INTEGERS,
    LIST,
    STRUCT,
    read_field,
    read_integer,
    read_struct_list,
    skip_value,
)

__all__ = ["unreadable_columns"]

_MOST_TEXT_BYTES = 2**31
"""So much text inside lists, structs or maps of one row group is more than Arrow reads."""

_VALUE_OVERHEAD = 8
"""Bytes of a value at most that are no text: its length, and at what level it stands."""


def unreadable_columns(
    schema: pa.Schema, leaves: dict[str, range], metadata: Any, encoded: bytes, *, source: str
) -> dict[str, str]:
    """Of each top-level column that cannot be read: why, as a sentence that names it.

    Args:
        schema: The file's Arrow schema.
        leaves: Of each column that has a name of its own: the numbers of its leaves, half-open.
        metadata: The `pyarrow.parquet.FileMetaData`.
        encoded: The footer's bytes, without length and magic.
        source: The file, for messages.

    Raises:
        MetadataError: The bytes are no footer.
    """
    counts = collections.Counter(schema.names)
    found = {
        name: f"{count:,} columns of {source} are called {name!r}, and columns are read by name"
        for name, count in counts.items()
        if count > 1
    }
    # Who signs a footer that is not encrypted writes more behind it: the file has encrypted columns.
    is_signed = metadata.serialized_size != len(encoded)
    groups = range(metadata.num_row_groups)
    is_large = any(metadata.row_group(group).total_byte_size >= _MOST_TEXT_BYTES for group in groups)
    if not is_signed and not is_large:
        return found
    encrypted: set[int] = set()
    longest: dict[int, tuple[int, int]] = {}
    for group, leaf, is_encrypted, size in _chunks(encoded, source):
        if is_encrypted:
            encrypted.add(leaf)
        longest[leaf] = max(longest.get(leaf, (0, 0)), (size, group))
    for field in schema:
        own = leaves.get(field.name, range(0))
        if encrypted.intersection(own):
            found[field.name] = (
                f"column {field.name!r} of {source} is encrypted, and petastore reads no encrypted columns"
            )
            continue
        size, group = max((longest.get(leaf, (0, 0)) for leaf in own), default=(0, 0))
        if size >= _MOST_TEXT_BYTES and _has_text_inside(field.type):
            found[field.name] = (
                f"column {field.name!r} of {source} has some {size:,} bytes of text inside its values in row group "
                f"{group}, and Apache Arrow reads less than 2 GiB; write the file again with smaller row groups"
            )
    return found


def _has_text_inside(stored: pa.DataType) -> bool:
    return any(_has_text(stored.field(number).type) for number in range(stored.num_fields))


def _has_text(stored: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(stored) or types.is_binary(stored)
    return bool(is_text) or _has_text_inside(stored)


def _chunks(footer: bytes, source: str) -> Iterator[tuple[int, int, bool, int]]:
    """Of each column chunk: row group, leaf, whether it is encrypted, and bytes of its values at least.

    Field numbers are those of `parquet.thrift`: FileMetaData {4 row_groups}, RowGroup {1 columns},
    ColumnChunk {3 meta_data, 8 crypto_metadata}, ColumnMetaData {5 num_values, 6 total_uncompressed_size}.
    """
    try:
        at = field = 0
        while footer[at]:
            field, kind, at = read_field(footer, at, field)
            if field != 4 or kind != LIST:
                at = skip_value(footer, at, kind)
                continue
            count, at = read_struct_list(footer, at)
            for group in range(count):
                chunks, at = _row_group(footer, at)
                for leaf, (is_encrypted, size) in enumerate(chunks):
                    yield group, leaf, is_encrypted, size
    except (IndexError, ValueError, OverflowError, RecursionError) as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}") from None


def _row_group(data: bytes, at: int) -> tuple[list[tuple[bool, int]], int]:
    chunks: list[tuple[bool, int]] = []
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 1 and kind == LIST:
            count, at = read_struct_list(data, at)
            for _ in range(count):
                chunk, at = _column_chunk(data, at)
                chunks.append(chunk)
        else:
            at = skip_value(data, at, kind)
    return chunks, at + 1


def _column_chunk(data: bytes, at: int) -> tuple[tuple[bool, int], int]:
    is_encrypted, size, field = False, 0, 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 3 and kind == STRUCT:
            size, at = _size_of_values(data, at)
        else:
            is_encrypted |= field == 8
            at = skip_value(data, at, kind)
    return (is_encrypted, size), at + 1


def _size_of_values(data: bytes, at: int) -> tuple[int, int]:
    values = size = field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 5 and kind in INTEGERS:
            values, at = read_integer(data, at)
        elif field == 6 and kind in INTEGERS:
            size, at = read_integer(data, at)
        else:
            at = skip_value(data, at, kind)
    return size - _VALUE_OVERHEAD * values, at + 1
