"""Statistics of column chunks straight from the bytes of a Parquet footer. Pure.

Like the counts (`petastore.storage.footers.row_group_counts`) they are taken from the bytes, since pyarrow's own access
ends the whole process where a footer is damaged in certain places. Bounds are left out where their order is not sure:
the old fields `min` and `max`, which nobody wrote down, and columns whose order the footer does not declare.

Field numbers are those of `parquet.thrift`: FileMetaData {4 row_groups, 7 column_orders}, RowGroup {1 columns},
ColumnChunk {3 meta_data}, ColumnMetaData {1 type, 12 statistics}, Statistics {3 null_count, 5 max_value, 6 min_value},
ColumnOrder {1 TYPE_ORDER}.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

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

__all__ = ["ChunkStatistics", "chunk_statistics"]


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


_NOTHING = ChunkStatistics()


def chunk_statistics(footer: bytes, leaves: Collection[int], *, source: str) -> list[dict[int, ChunkStatistics]]:
    """Of each row group: the statistics of some leaf columns, by their numbers.

    Args:
        footer: The Thrift bytes, without length and magic.
        leaves: Leaf columns that are wanted.
        source: The file, for messages.

    Raises:
        MetadataError: The bytes are no footer.
    """
    groups: list[dict[int, ChunkStatistics]] = []
    ordered: set[int] = set()
    try:
        at = field = 0
        while footer[at]:
            field, kind, at = read_field(footer, at, field)
            if field == 4 and kind == LIST:
                count, at = read_struct_list(footer, at)
                for _ in range(count):
                    chunks, at = _row_group(footer, at, leaves)
                    groups.append(chunks)
            elif field == 7 and kind == LIST:
                ordered, at = _ordered_columns(footer, at)
            else:
                at = skip_value(footer, at, kind)
    except (IndexError, ValueError, OverflowError, RecursionError) as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}") from None
    return [
        {leaf: chunk if leaf in ordered else _without_bounds(chunk) for leaf, chunk in chunks.items()}
        for chunks in groups
    ]


def _without_bounds(chunk: ChunkStatistics) -> ChunkStatistics:
    return dataclasses.replace(chunk, minimum=None, maximum=None)


def _ordered_columns(data: bytes, at: int) -> tuple[set[int], int]:
    """Leaf columns whose order is that of their type."""
    count, kind, at = read_list_header(data, at)
    if count and kind != STRUCT:
        raise ValueError(f"the list of column orders holds type {kind}")
    ordered = set()
    for leaf in range(count):
        field = 0
        while data[at]:
            field, kind, at = read_field(data, at, field)
            if field == 1:
                ordered.add(leaf)
            at = skip_value(data, at, kind)
        at += 1
    return ordered, at


def _row_group(data: bytes, at: int, leaves: Collection[int]) -> tuple[dict[int, ChunkStatistics], int]:
    chunks: dict[int, ChunkStatistics] = {}
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 1 and kind == LIST:
            count, at = read_struct_list(data, at)
            for leaf in range(count):
                if leaf in leaves:
                    chunks[leaf], at = _column_chunk(data, at)
                else:
                    at = skip_struct(data, at)
        else:
            at = skip_value(data, at, kind)
    return chunks, at + 1


def _column_chunk(data: bytes, at: int) -> tuple[ChunkStatistics, int]:
    found = _NOTHING
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 3 and kind == STRUCT:
            found, at = _column_metadata(data, at)
        else:
            at = skip_value(data, at, kind)
    return found, at + 1


def _column_metadata(data: bytes, at: int) -> tuple[ChunkStatistics, int]:
    physical, found = -1, _NOTHING
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 1 and kind in INTEGERS:
            physical, at = read_integer(data, at)
        elif field == 12 and kind == STRUCT:
            found, at = _statistics(data, at)
        else:
            at = skip_value(data, at, kind)
    return dataclasses.replace(found, physical=physical), at + 1


def _statistics(data: bytes, at: int) -> tuple[ChunkStatistics, int]:
    values: dict[int, Any] = {}
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 3 and kind in INTEGERS:
            values[field], at = read_integer(data, at)
        elif field in (5, 6) and kind == BINARY:
            length, at = read_varint(data, at)
            values[field], at = data[at : at + length], at + length
        else:
            at = skip_value(data, at, kind)
    return ChunkStatistics(nulls=values.get(3), minimum=values.get(6), maximum=values.get(5)), at + 1
