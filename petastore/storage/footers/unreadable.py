"""Columns that a file has and that nobody reads, each with the reason: known when its footer is read.

The others are read all the same; who asks for one of these is told why, at the call.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from petastore.storage.footers.footer_fields import COLUMNS, METADATA, ROW_GROUPS, footer_fields
from petastore.storage.footers.thrift import INTEGER, PRESENCE, STRUCT, list_reader, struct_reader

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
    reasons = {
        name: f"{count:,} columns of {source} are called {name!r}, and columns are read by name"
        for name, count in counts.items()
        if count > 1
    }
    # Who signs a footer that is not encrypted writes more behind it: the file has encrypted columns.
    is_signed = metadata.serialized_size != len(encoded)
    groups = range(metadata.num_row_groups)
    is_large = any(metadata.row_group(group).total_byte_size >= _MOST_TEXT_BYTES for group in groups)
    if not is_signed and not is_large:
        return reasons
    encrypted: set[int] = set()
    longest: dict[int, tuple[int, int]] = {}
    for group, leaf, is_encrypted, size in _chunks(encoded, source):
        if is_encrypted:
            encrypted.add(leaf)
        longest[leaf] = max(longest.get(leaf, (0, 0)), (size, group))
    for field in schema:
        own = leaves.get(field.name, range(0))
        if encrypted.intersection(own):
            reasons[field.name] = (
                f"column {field.name!r} of {source} is encrypted, and petastore reads no encrypted columns"
            )
            continue
        size, group = max((longest.get(leaf, (0, 0)) for leaf in own), default=(0, 0))
        if size >= _MOST_TEXT_BYTES and _has_text_inside(field.type):
            reasons[field.name] = (
                f"column {field.name!r} of {source} has some {size:,} bytes of text inside its values in row group "
                f"{group}, and Apache Arrow reads less than 2 GiB; write the file again with smaller row groups"
            )
    return reasons


def _has_text_inside(stored: pa.DataType) -> bool:
    return any(_has_text(stored.field(number).type) for number in range(stored.num_fields))


def _has_text(stored: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(stored) or types.is_binary(stored)
    return bool(is_text) or _has_text_inside(stored)


_VALUES, _SIZE, _ENCRYPTION = 5, 6, 8
_CHUNK = struct_reader({METADATA: {STRUCT: struct_reader({_VALUES: INTEGER, _SIZE: INTEGER})}, _ENCRYPTION: PRESENCE})
_GROUPS = list_reader({STRUCT: struct_reader({COLUMNS: list_reader({STRUCT: _CHUNK})})})


def _chunks(footer: bytes, source: str) -> Iterator[tuple[int, int, bool, int]]:
    """Of each column chunk: row group, leaf, whether it is encrypted, and bytes of its values at least.

    Field numbers are those of `parquet.thrift`: ColumnChunk {8 crypto_metadata}, ColumnMetaData {5 num_values,
    6 total_uncompressed_size}.
    """
    for group, columns in enumerate(footer_fields(footer, {ROW_GROUPS: _GROUPS}, source=source).get(ROW_GROUPS, [])):
        for leaf, chunk in enumerate(columns.get(COLUMNS, ())):
            said = chunk.get(METADATA, {})
            yield group, leaf, _ENCRYPTION in chunk, said.get(_SIZE, 0) - _VALUE_OVERHEAD * said.get(_VALUES, 0)
