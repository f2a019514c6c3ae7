"""Row group of a remote file: fetch its column chunks.

Whole column chunks are fetched before decoding, or byte ranges of the chunks during decoding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer
from petastore.storage.ranges.fetch import (
    END_BYTES,
    ByteRange,
    FetchedRanges,
    RowGroupChunks,
    in_memory_file,
)
from petastore.storage.ranges.pinned_files import PinnedFiles
from petastore.storage.row_groups.fetched_ahead import FetchedAhead, place_of
from petastore.storage.row_groups.opened_file import Asked, OpenedFile
from petastore.storage.row_groups.page_headers import checked_pages
from petastore.storage.stores.interface import FileVersion, range_file

__all__ = ["FetchedRowGroup", "chunk_ranges", "fetch_chunks", "row_group_chunks"]

_FIRST_PAGE = 4

_UNCOUNTED_BYTES = 100
"""Extra bytes to read after a column chunk of an old writer.

Old writers did not count the header of the dictionary page in the size of a chunk. Other Parquet readers read the same
number of extra bytes.
"""

_MOST_TIMES = 2
"""Maximum ratio of the bytes of all column chunks to the bytes of the file.

It is above 1, because some writers store equal chunks only once.
"""


def row_group_chunks(footer: Footer, ordinal: int, asked: Iterable[Sequence[str]]) -> RowGroupChunks:
    """Return the column chunks of some stored columns of a row group.

    Args:
        footer: Footer of the file.
        ordinal: Number of the row group in the file, from 0.
        asked: Columns of each part that is read at once.

    Raises:
        DecodeError: The footer is invalid.
    """
    names = dict.fromkeys(name for columns in asked for name in columns)
    columns_of = {leaf: name for name in names for leaf in footer.leaves[name]}
    ranges = chunk_ranges(footer, ordinal, columns_of)
    return RowGroupChunks(ordinal, {one: columns_of[leaf] for leaf, one in ranges.items()})


def chunk_ranges(footer: Footer, ordinal: int, leaves: Iterable[int]) -> dict[int, ByteRange]:
    """Return a dict from leaf to the byte range of its column chunk in a row group.

    Empty chunks are omitted. If the program that wrote the file may have stored too small sizes, ranges are slightly
    longer than the chunks.

    Args:
        footer: Footer of the file.
        ordinal: Number of the row group, from 0.
        leaves: Distinct numbers of readable leaf columns.

    Raises:
        DecodeError: The footer is invalid: chunks beyond the end of the file, or too many bytes in total.
    """
    file = footer.file
    slack = _UNCOUNTED_BYTES if footer.may_miscount else 0
    last = file.size - END_BYTES
    ranges: dict[int, ByteRange] = {}
    for leaf in leaves:
        chunk = footer.chunk(ordinal, leaf)
        first, stored = chunk.first_page, chunk.stored_bytes
        if stored == 0 and chunk.values == 0:
            continue
        if first < _FIRST_PAGE or stored <= 0 or first + stored > last:
            raise DecodeError(
                f"the footer is damaged: it declares {stored:,} bytes at offset {first:,}, but the file has "
                f"{file.size:,} bytes. Restore the file from a copy",
                column=chunk.path,
                file=file.path,
                row_group=ordinal,
            )
        ranges[leaf] = ByteRange(first, min(stored + slack, file.size - first))
    _check_sum(ranges.values(), file, ordinal)
    return ranges


def _check_sum(ranges: Collection[ByteRange], file: DataFile, ordinal: int) -> None:
    wanted = sum(one.length for one in ranges)
    if wanted > _MOST_TIMES * file.size:
        raise DecodeError(
            f"the footer is damaged: column chunks have {wanted:,} bytes, but the file has {file.size:,}. Restore the "
            "file from a copy",
            file=file.path,
            row_group=ordinal,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class FetchedRowGroup:
    """Row group of a remote file, read in the file version of the footer."""

    pinned: PinnedFiles
    """Range fetcher of the dataset's files."""

    ahead: FetchedAhead
    """Prefetched row groups."""

    location: Location
    footer: Footer
    ordinal: int
    asked: Asked

    def _chunks(self) -> RowGroupChunks:
        return row_group_chunks(self.footer, self.ordinal, self.asked)

    def open(self, *, whole: bool, request_bytes: int | None = None) -> OpenedFile:
        """Open the remote file for reading the columns of this row group.

        Whole column chunks are fetched now, or byte ranges of the chunks when Arrow reads them.

        Args:
            whole: Whether most of each column chunk will be read. If False, byte ranges are fetched, unless there is a
                disk cache, which stores whole chunks.
            request_bytes: Bytes of a column chunk to fetch at a time while reading; None means that
                `whole` decides.

        Raises:
            DecodeError: The footer is invalid.
            StorageError: Ranges cannot be fetched.
        """
        if request_bytes is not None:
            return OpenedFile(self._as_needed(), self.footer, is_near=False, buffer_bytes=request_bytes)
        if not whole and self.pinned.cache is None:
            return OpenedFile(self._as_needed(), self.footer, is_near=False)
        # With a cache, whole chunks are fetched even for the first rows, so that the next read needs no request.
        return OpenedFile(in_memory_file(self._fetched(self._chunks())), self.footer, buffer_bytes=0)

    def discard(self) -> None:
        """Delete damaged bytes from memory and the cache, so that they are not read again."""
        chunks = self._chunks()
        self.ahead.drop(place_of(self.location, self.footer.file, self.ordinal))
        self.pinned.discard(self.footer.file, chunks.columns, chunks)

    def _as_needed(self) -> Any:
        footer = self.footer

        def fetch(one: ByteRange) -> pa.Buffer:
            return self.pinned.fetch(footer.file, footer.encoded, [one], seen=footer.version).read(*one)

        leaves = dict.fromkeys(leaf for columns in self.asked for name in columns for leaf in footer.leaves[name])
        ranges = chunk_ranges(footer, self.ordinal, leaves)
        checked = checked_pages(fetch, footer, self.ordinal, ranges)
        return range_file(footer.file.size, lambda offset, length: checked(ByteRange(offset, length)))

    def _fetched(self, chunks: RowGroupChunks) -> FetchedRanges:
        footer, ahead, place = self.footer, self.ahead, place_of(self.location, self.footer.file, self.ordinal)
        for_cache = functools.partial(ahead.of, place, for_cache=True)
        return ahead.of(place, chunks.columns) or self.pinned.fetch(
            footer.file, footer.encoded, chunks.columns, chunks, footer.version, ahead=for_cache
        )


def fetch_chunks(
    pinned: PinnedFiles,
    footer: Footer,
    ordinal: int,
    columns: Sequence[str],
    *,
    by_cache: bool,
) -> tuple[frozenset[ByteRange], FetchedRanges]:
    """Fetch those column chunks of a row group that are not in the disk cache.

    Return (byte ranges, their bytes in memory). Both are empty if the cache has all chunks.

    Args:
        pinned: Range fetcher of the dataset's files.
        footer: Footer of the file.
        ordinal: Number of the row group.
        columns: All columns that will be read.
        by_cache: Whether to store fetched chunks in the cache. The result then also has the chunks that the cache
            already had, unless it had all of them.

    Raises:
        DecodeError: The footer is invalid.
        StorageError: Ranges cannot be fetched.
    """
    chunks = row_group_chunks(footer, ordinal, (tuple(columns),))
    missing = pinned.missing(footer.file, chunks, footer.version)
    if not missing:
        return frozenset(), FetchedRanges(footer.file.size, FileVersion(footer.file.size), ())
    asked = chunks.columns if by_cache else missing
    fetched = pinned.fetch(footer.file, footer.encoded, asked, chunks, footer.version, by_cache=by_cache)
    return frozenset(asked), fetched
