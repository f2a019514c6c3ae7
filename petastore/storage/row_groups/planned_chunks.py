"""The column chunks that a row group is read of, where their bytes are fetched; and how a cache decodes them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import pyarrow as pa

from petastore.storage.footers.footers import Footer
from petastore.storage.pages.damage import refuse_damaged_pages
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.column_chunks import chunk_ranges
from petastore.storage.ranges.fetched_ranges import FetchedRanges, in_memory_file
from petastore.storage.ranges.kept_chunks import PlannedChunks
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.row_groups.asked_columns import check_rows
from petastore.storage.row_groups.decoded_columns import kept_chunks
from petastore.storage.row_groups.opened_file import OpenedFile, Settings
from petastore.storage.row_groups.verified import Asked

__all__ = ["planned_chunks"]


def planned_chunks(footer: Footer, ordinal: int, asked: Asked, kept: KeptFiles | None) -> PlannedChunks:
    """The column chunks of some stored columns of a row group.

    Args:
        footer: Of the file.
        ordinal: The row group's number in it, from 0.
        asked: The columns, by what of them is read in one go.
        kept: Where they are kept; whose column each is, is told for that alone.

    Raises:
        DecodeError: The footer says what cannot be.
    """
    names = dict.fromkeys(name for columns in asked for name in columns)
    columns_of = {leaf: name for name in names for leaf in footer.leaves[name]}
    footer.check_chunks([ordinal], columns_of)
    ranges = chunk_ranges(footer.metadata, ordinal, columns_of, footer.file)
    columns_at = {one: columns_of[leaf] for leaf, one in ranges.items()}
    if kept is None or kept.cache is None:
        return PlannedChunks(ordinal, columns_at)
    decode = functools.partial(_decoded, footer, ordinal, columns_at)
    return PlannedChunks(ordinal, columns_at, kept_chunks(footer, ordinal, columns_of, ranges), decode)


def _decoded(
    footer: Footer,
    ordinal: int,
    columns: Mapping[ByteRange, str],
    fetched: FetchedRanges,
    asked: Sequence[ByteRange],
) -> list[pa.ChunkedArray]:
    """The columns of some chunks, verified, of the types that the footer says.

    Raises:
        DecodeError: One is damaged; or what Arrow raises.
    """
    names = [columns[one] for one in asked]
    leaves = [footer.leaves[name][0] for name in names]
    opened = OpenedFile(in_memory_file(fetched), footer, Settings(verify=True, whole=True), buffer_bytes=0)
    table = opened.reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
    refuse_damaged_pages(opened.source.read_at, footer.metadata, leaves, file=footer.file, ordinal=ordinal)
    check_rows(table.num_rows, footer, ordinal, names, footer.metadata.row_group(ordinal).num_rows)
    return [table.column(name).cast(footer.arrow_schema.field(name).type) for name in names]
