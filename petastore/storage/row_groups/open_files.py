"""Files that stay open from one row group to the next, and are read without verifying what was found right before.

Opening a file and making a reader of its pages are a handful of short calls into Arrow, each of which lets go of the
interpreter lock and has to get it again: with several threads at work that costs more than what they do. Verifying the
checksums of pages costs more than decoding them, where cells are not compressed.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from petastore import forks
from petastore.errors import DatasetChangedError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.files.watched_file import open_to_read
from petastore.storage.footers.footers import Footer, check_unchanged, read_footer
from petastore.storage.ranges.column_chunks import chunk_ranges
from petastore.storage.ranges.fetch import FetchedRanges
from petastore.storage.ranges.open_fetcher import has_web_requests, open_fetcher
from petastore.storage.ranges.parquet_bytes import in_memory_file
from petastore.storage.ranges.pinned_files import PinnedFiles
from petastore.storage.row_groups.page_headers import refuse_damaged_pages
from petastore.storage.row_groups.verified import Asked, Verified, Version, tells_of_writes, version_of

__all__ = ["OpenFiles", "Reading", "lent_by"]

_STREAM_BYTES = 256 * 1024
"""Bytes that are read of a local file at a time: a column chunk never lies in memory twice, stored and decoded."""

_MOST_IDLE = 8
"""Files that stay open while nobody reads them, unless asked otherwise."""


class OpenFiles:
    """Lends readers of files, each to one thread at a time, and keeps the last ones open. Thread-safe.

    Only files of the local file system are kept open, and believed: a reader of any other holds the bytes that it
    fetched ahead, and nothing tells whether others wrote to it. One that was written to meanwhile is opened anew, and
    refused unless its footer is the same.

    Args:
        most_idle: Files that stay open while nobody reads them.
        verified: What was found right before; outlives this, where files are read again.
    """

    def __init__(self, *, most_idle: int = _MOST_IDLE, verified: Verified | None = None) -> None:
        self._most_idle = most_idle
        self._verified = Verified() if verified is None else verified
        self._lock = forks.Lock()
        self._closed = False
        self._idle: collections.OrderedDict[_Opened, None] = collections.OrderedDict()
        self._pinned: dict[int, tuple[Location, PinnedFiles | None]] = {}

    @contextlib.contextmanager
    def reading(
        self,
        location: Location,
        footer: Footer,
        ordinal: int,
        asked: Asked,
        *,
        whole: bool = True,
        dictionaries: tuple[str, ...] = (),
    ) -> Iterator[Reading]:
        """A file that is read by the calling thread alone.

        Args:
            location: Where the dataset lies.
            footer: Of the file; the one of each call for a file has to be the same object for it to be found open.
            ordinal: The row group that is read.
            asked: What is read of it.
            whole: Whether most of each column chunk is going to be read.
            dictionaries: Paths of leaves that it gives as Arrow's dictionaries.

        Raises:
            DatasetChangedError: The file is not the one that the footer is of.
            FileMissingError: It is missing.
            StorageError: It cannot be opened; reading may raise `RaisedByStorage` and what Arrow raises.
        """
        reading = Reading(
            self, self._verified, location, footer, ordinal, asked, whole=whole, dictionaries=dictionaries
        )
        try:
            yield reading
        except Exception:
            reading.opened.source.close()
            raise
        finally:
            if not reading.opened.source.closed:
                self.keep(reading.opened)

    def found(self, footer: Footer, version: Version | None, settings: Settings) -> _Opened | None:
        """A file that nobody reads, to be read as asked; what is open of an older version of it is closed."""
        stale = []
        found = None
        with self._lock:
            for opened in reversed(self._idle):
                if opened.footer is not footer:
                    continue
                if opened.version != version:
                    stale.append(opened)
                elif opened.settings == settings:
                    found = opened
                    break
            for opened in stale if found is None else [*stale, found]:
                del self._idle[opened]
        for opened in stale:
            opened.source.close()
        return found

    def keep(self, opened: _Opened) -> None:
        """Takes back a file that was lent."""
        with self._lock:
            if opened.version is None or self._closed:
                dropped: _Opened | None = opened
            else:
                self._idle[opened] = None
                dropped = self._idle.popitem(last=False)[0] if len(self._idle) > self._most_idle else None
        if dropped is not None:
            dropped.source.close()

    def close(self) -> None:
        """Closes what nobody reads, and from now on what comes back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, collections.OrderedDict()
            pinned, self._pinned = self._pinned, {}
        for opened in idle:
            opened.source.close()
        for _, files in pinned.values():
            if files is not None:
                files.fetcher.close()

    def pinned(self, location: Location) -> PinnedFiles | None:
        """What fetches ranges of the files of a dataset; None where they are opened instead."""
        if not has_web_requests(location):
            return None
        with self._lock:
            _, pinned = self._pinned.get(id(location), (location, None))
            if pinned is None and not self._closed:
                fetcher = open_fetcher(location)
                pinned = None if fetcher is None else PinnedFiles(fetcher)
                self._pinned[id(location)] = location, pinned
            return pinned


@contextlib.contextmanager
def lent_by(files: OpenFiles | None) -> Iterator[OpenFiles]:
    """Who lends files: the one given, or else one for this block alone."""
    lender = files or OpenFiles()
    try:
        yield lender
    finally:
        if files is None:
            lender.close()


class Settings(NamedTuple):
    """How a file is read."""

    verify: bool
    """Whether checksums of pages are verified."""

    whole: bool
    """Whether most of each column chunk is going to be read."""

    dictionaries: tuple[str, ...]
    """Paths of leaves that come as Arrow's dictionaries."""


class Reading:
    """One row group of a file that is being read: by whom it was found right, and whether somebody writes to it."""

    def __init__(
        self,
        files: OpenFiles,
        verified: Verified,
        location: Location,
        footer: Footer,
        ordinal: int,
        asked: Asked,
        *,
        whole: bool,
        dictionaries: tuple[str, ...],
    ) -> None:
        self._files, self._verified = files, verified
        self._location, self._footer, self._whole, self._dictionaries = location, footer, whole, dictionaries
        self._ordinal, self._asked = ordinal, asked
        self._path = location.join(footer.file.path)
        # Nothing tells whether a file elsewhere was written to: it is opened anew each time, and verified.
        self._version = version_of(self._path) if str(location.filesystem.type_name) == "local" else None
        self._is_settled = False
        self.opened = self._open()

    def _open(self, *, believe: bool = True) -> _Opened:
        version = self._version
        if version is not None:
            if not self._verified.is_known(self._path, version):
                check_unchanged(read_footer(self._location, self._footer.file.path).file, self._footer.file)
                self._verified.see(self._path, version)
            believe = believe and self._verified.is_believed(self._path, version, self._ordinal, self._asked)
            self._is_settled = not believe and self._verified.is_settled(version)
        settings = Settings(version is None or not believe, self._whole, self._dictionaries)
        found = None if version is None else self._files.found(self._footer, version, settings)
        pinned = self._files.pinned(self._location) if self._whole else None
        if pinned is None:
            return found or _Opened(self._location, self._footer, version, settings)
        return _Opened(self._location, self._footer, version, settings, in_memory_file(self._fetched(pinned)))

    def _fetched(self, pinned: PinnedFiles) -> FetchedRanges:
        footer = self._footer
        leaves = {leaf: None for columns in self._asked for name in columns for leaf in footer.leaves[name]}
        chunks = chunk_ranges(footer.metadata, self._ordinal, leaves, footer.file)
        return pinned.fetch(footer.file, footer.encoded, chunks)

    @property
    def reader(self) -> Any:
        """A `pyarrow.parquet.ParquetReader`."""
        return self.opened.reader

    @property
    def is_in_doubt(self) -> bool:
        """Whether what was read was believed, but somebody has written to the file since; looks at the file."""
        return not self.opened.settings.verify and version_of(self._path) != self._version

    def verify(self) -> None:
        """Opens the file anew, to verify what is read from now on.

        Raises:
            DatasetChangedError: The file is not the one that the footer is of any more.
            StorageError: It is gone, or cannot be opened.
        """
        self.opened.source.close()
        self._version = version_of(self._path)
        self.opened = self._open(believe=False)

    def check_pages(self, leaves: Iterable[int]) -> None:
        """Checks the page headers of some leaf columns that were read and verified; where that takes no requests.

        Raises:
            DecodeError: One contradicts the footer, or itself.
        """
        if not self.opened.is_near or not self.opened.settings.verify:
            return
        footer, ordinal = self._footer, self._ordinal
        refuse_damaged_pages(self.opened.source.read_at, footer.metadata, leaves, file=footer.file, ordinal=ordinal)

    def found_right(self) -> None:
        """Says that all that was asked for was read; if it was verified in a version that tells, that is noted."""
        version = self._version
        if not self._is_settled or version is None or version_of(self._path) != version:
            return
        if tells_of_writes(self._path, version):
            groups = self._footer.metadata.num_row_groups
            self._verified.note(self._path, version, self._ordinal, groups, self._asked)


class _Opened:
    """A file and a reader of it."""

    def __init__(
        self, location: Location, footer: Footer, version: Version | None, settings: Settings, fetched: Any = None
    ) -> None:
        self.footer, self.version, self.settings = footer, version, settings
        self.is_near = version is not None or fetched is not None
        # Neighbouring column chunks are fetched together where a request is slow; a local file gains nothing from
        # that, and who wants the first rows wants little of each chunk.
        together = settings.whole and not self.is_near
        self.source = open_to_read(location, footer.file.path) if fetched is None else fetched
        try:
            if fetched is None:
                _check_size(self.source, footer.file)
            self.reader = pq.ParquetReader()  # `ParquetFile` is this and a table of all columns' names
            self.reader.open(
                self.source,
                metadata=footer.metadata,
                read_dictionary=list(settings.dictionaries),
                pre_buffer=together,
                buffer_size=_STREAM_BYTES if fetched is None and not together else 0,
                page_checksum_verification=settings.verify,
            )
        except BaseException:
            self.source.close()
            raise


def _check_size(source: Any, file: DataFile) -> None:
    size = source.size()
    if size != file.size:
        raise DatasetChangedError(
            f"{file.path} was rewritten since the dataset was listed: it had {file.size:,} bytes, and has {size:,}. "
            "Open the dataset again"
        )
