"""Statistics of column chunks straight from the bytes of a Parquet footer. Pure.

Bounds are left out where their order is not sure: the old fields `min` and `max`, which nobody wrote down, and columns
whose order the footer does not declare.

Field numbers are those of `parquet.thrift`: FileMetaData {7 column_orders}, ColumnMetaData {1 type, 12 statistics},
Statistics {3 null_count, 5 max_value, 6 min_value}, ColumnOrder {1 TYPE_ORDER}.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

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

__all__ = ["ChunkStatistics", "chunk_statistics"]


_ORDERS, _TYPE_ORDER = 7, 1  # of FileMetaData and of ColumnOrder
_TYPE, _STATISTICS = 1, 12  # of ColumnMetaData


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
    chunks = {COLUMNS: some_structs_reader(_fields, leaves)}
    orders = list_reader({STRUCT: struct_reader({_TYPE_ORDER: PRESENCE})})
    fields = {ROW_GROUPS: list_reader({STRUCT: struct_reader(chunks)}), _ORDERS: orders}
    found = footer_fields(footer, fields, source=source)
    ordered = {leaf for leaf, order in enumerate(found.get(_ORDERS, ())) if order}
    return [
        {leaf: _statistics(chunk, has_bounds=leaf in ordered) for leaf, chunk in group.get(COLUMNS, {}).items()}
        for group in found.get(ROW_GROUPS, [])
    ]


_VALUES = struct_reader({3: INTEGER, 5: {BINARY: read_binary}, 6: {BINARY: read_binary}})
_fields: Read = struct_reader({METADATA: {STRUCT: struct_reader({_TYPE: INTEGER, _STATISTICS: {STRUCT: _VALUES}})}})


def _statistics(chunk: dict[int, Any], *, has_bounds: bool) -> ChunkStatistics:
    said = chunk.get(METADATA, {})
    values = said.get(_STATISTICS, {})
    minimum, maximum = (values.get(6), values.get(5)) if has_bounds else (None, None)
    return ChunkStatistics(said.get(_TYPE, -1), values.get(3), minimum, maximum)
