"""One row group of a file that is far away: its column chunks are fetched at once, or the first of their bytes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from petastore.storage.files.location import Location
from petastore.storage.footers.footers import Footer
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.fetched_ranges import FetchedRanges, file_as_needed, in_memory_file
from petastore.storage.ranges.kept_chunks import PlannedChunks
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.requests.client import FileVersion
from petastore.storage.row_groups.fetched_ahead import FetchedAhead, place_of
from petastore.storage.row_groups.opened_file import OpenedFile, Settings
from petastore.storage.row_groups.planned_chunks import planned_chunks
from petastore.storage.row_groups.verified import Asked

if TYPE_CHECKING:
    from petastore.storage.ranges.pinned_files import PinnedFiles

__all__ = ["FetchedRowGroup", "fetch_chunks"]


class FetchedRowGroup:
    """What is fetched of a row group, in the version of its file that has the footer.

    Args:
        pinned: Fetches ranges of the dataset's files.
        ahead: What was fetched before anybody read it.
        location: Where the dataset lies.
        footer: Of the file.
        ordinal: The row group.
        asked: What is read of it.
        kept: What is kept of the files of the dataset.
    """

    def __init__(
        self,
        pinned: PinnedFiles,
        ahead: FetchedAhead,
        location: Location,
        footer: Footer,
        ordinal: int,
        asked: Asked,
        kept: KeptFiles | None,
    ) -> None:
        self._pinned, self._ahead, self._footer = pinned, ahead, footer
        self._place = place_of(location, footer.file, ordinal)
        self._chunks = functools.partial(planned_chunks, footer, ordinal, asked, kept)

    def open(self, settings: Settings) -> tuple[OpenedFile | None, dict[str, pa.Array]]:
        """The file, and columns that a cache had decoded; no file where those are all that is asked for.

        Raises:
            DecodeError: The footer says what cannot be.
            StorageError: Ranges cannot be fetched.
        """
        if not settings.whole and self._pinned.cache is None:
            return OpenedFile(self._as_needed(), self._footer, settings, is_near=False), {}
        # Whoever keeps chunks has them whole: the first rows of one are a request less the next time.
        chunks = self._chunks()
        fetched = self._fetched(chunks)
        decoded = {name: fetched.decoded[one] for one, name in chunks.columns.items() if one in fetched.decoded}
        if decoded and len(decoded) == len(chunks.columns):
            return None, decoded
        return OpenedFile(in_memory_file(fetched), self._footer, settings, buffer_bytes=0), decoded

    def discard(self) -> None:
        """What was fetched is not what it should be: nobody else is to read it."""
        chunks = self._chunks()
        self._ahead.drop(self._place)
        self._pinned.discard(self._footer.file, chunks.columns, chunks)

    def _as_needed(self) -> Any:
        footer = self._footer

        def fetch(one: ByteRange) -> pa.Buffer:
            return self._pinned.fetch(footer.file, footer.encoded, [one], seen=footer.version).read(*one)

        return file_as_needed(footer.file.size, fetch)

    def _fetched(self, chunks: PlannedChunks) -> FetchedRanges:
        footer, ahead = self._footer, self._ahead
        for_cache = functools.partial(ahead.of, self._place, for_cache=True)
        return ahead.of(self._place, chunks.columns) or self._pinned.fetch(
            footer.file, footer.encoded, chunks.columns, chunks, footer.version, ahead=for_cache
        )


def fetch_chunks(
    pinned: PinnedFiles,
    footer: Footer,
    ordinal: int,
    columns: Sequence[str],
    kept: KeptFiles | None,
    *,
    by_cache: bool,
) -> tuple[frozenset[ByteRange], FetchedRanges]:
    """The chunks of some columns of a row group that no cache has: where they lie, and their bytes.

    Args:
        pinned: Fetches ranges of the dataset's files.
        footer: Of the file.
        ordinal: The row group.
        columns: All columns that are going to be read.
        kept: What is kept of the files of the dataset.
        by_cache: Whether the cache is given them at once.

    Raises:
        DecodeError: The footer says what cannot be.
        StorageError: Ranges cannot be fetched.
    """
    chunks = planned_chunks(footer, ordinal, (tuple(columns),), kept)
    missing = pinned.missing(footer.file, chunks, footer.version)
    if not missing:
        return frozenset(), FetchedRanges(footer.file.size, FileVersion(footer.file.size), ())
    asked = chunks.columns if by_cache else missing
    fetched = pinned.fetch(footer.file, footer.encoded, asked, chunks, footer.version, by_cache=by_cache)
    return frozenset(asked), fetched
