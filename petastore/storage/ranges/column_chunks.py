"""Where the column chunks of a row group lie in their file, as its footer says; it is not believed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.ranges.coalesced import ByteRange

__all__ = ["END_BYTES", "chunk_ranges", "first_page"]

_FIRST_PAGE = 4
END_BYTES = 8
"""Behind all chunks and the footer stand its length and the magic."""

_UNCOUNTED_BYTES = 100
"""Old writers did not count the header of a dictionary: decoders look for as many bytes more, and so do we."""

_MOST_TIMES = 2
"""Chunks may share bytes, where a writer made one of two that were alike; all of them together hardly do."""


def chunk_ranges(metadata: Any, ordinal: int, leaves: Iterable[int], file: DataFile) -> dict[int, ByteRange]:
    """The bytes of some column chunks of a row group, by leaf and in their order; empty chunks are left out.

    A little more than the chunk where its writer may have counted too few.

    Args:
        metadata: The `pyarrow.parquet.FileMetaData`.
        ordinal: The row group, from 0.
        leaves: Numbers of leaf columns that can be read, each once.
        file: The file, for its size and for messages.

    Raises:
        DecodeError: The footer says what cannot be: chunks beyond the file, or more bytes of them than it has.
    """
    group = metadata.row_group(ordinal)
    slack = _UNCOUNTED_BYTES if _may_miscount(metadata) else 0
    last = file.size - END_BYTES
    ranges: dict[int, ByteRange] = {}
    for leaf in leaves:
        column = group.column(leaf)
        first, stored = first_page(column), column.total_compressed_size
        if stored == 0 and column.num_values == 0:
            continue
        if first < _FIRST_PAGE or stored <= 0 or first + stored > last:
            raise DecodeError(
                f"the footer is damaged: it says that {stored:,} bytes lie at {first:,}, but the file has "
                f"{file.size:,} bytes",
                column=column.path_in_schema,
                file=file.path,
                row_group=ordinal,
            )
        ranges[leaf] = ByteRange(first, min(stored + slack, file.size - first))
    _check_sum(ranges.values(), file, ordinal)
    return ranges


def first_page(column: Any) -> int:
    """Where the pages of a column chunk begin, by the metadata of the footer."""
    at: int = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:  # some writers say 0 where there is none
        at = min(at, column.dictionary_page_offset)
    return at


def _may_miscount(metadata: Any) -> bool:
    try:
        writer = str(metadata.created_by)
    except UnicodeDecodeError:
        return True
    return writer.startswith("parquet-mr") or not writer


def _check_sum(ranges: Collection[ByteRange], file: DataFile, ordinal: int) -> None:
    wanted = sum(one.length for one in ranges)
    if wanted > _MOST_TIMES * file.size:
        raise DecodeError(
            f"the footer is damaged: column chunks have {wanted:,} bytes, but the file has {file.size:,}",
            file=file.path,
            row_group=ordinal,
        )
