"""Files that stay open from one row group to the next.

Opening a file and making a reader of its pages are a handful of short calls into Arrow, each of which lets go of the
interpreter lock and has to get it again: with several threads at work that costs more than what they do.
"""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from petastore import forks
from petastore.errors import DatasetChangedError
from petastore.inventory import DataFile
from petastore.storage.footers import Footer
from petastore.storage.location import Location
from petastore.storage.watched_file import open_to_read

__all__ = ["OpenFiles"]

_STREAM_BYTES = 256 * 1024
"""Bytes that are read of a local file at a time: a column chunk never lies in memory twice, stored and decoded."""

_MOST_IDLE = 8
"""Files that stay open while nobody reads them, unless asked otherwise."""


class OpenFiles:
    """Lends readers of files, each to one thread at a time, and keeps the last ones open. Thread-safe.

    Only files of the local file system are kept open: a reader of any other holds the bytes that it fetched ahead. One
    that was written to meanwhile is opened anew, and so refused if it has another size.

    Args:
        most_idle: Files that stay open while nobody reads them.
    """

    def __init__(self, *, most_idle: int = _MOST_IDLE) -> None:
        self._most_idle = most_idle
        self._lock = forks.Lock()
        self._closed = False
        self._idle: collections.OrderedDict[_Opened, None] = collections.OrderedDict()

    @contextlib.contextmanager
    def reader(
        self, location: Location, footer: Footer, *, verify: bool, whole: bool, dictionaries: tuple[str, ...] = ()
    ) -> Iterator[Any]:
        """A `pyarrow.parquet.ParquetReader` of a file, for the calling thread alone.

        Args:
            location: Where the dataset lies.
            footer: Of the file; the one of each call for a file has to be the same object for it to be found open.
            verify: Whether the checksums of pages are verified.
            whole: Whether most of each column chunk is going to be read.
            dictionaries: Paths of leaves that it gives as Arrow's dictionaries.

        Raises:
            DatasetChangedError: The file is not the one that the footer is of.
            FileMissingError: It is missing.
            StorageError: It cannot be opened; reading may raise `RaisedByStorage` and what Arrow raises.
        """
        opened = self._found(footer, verify, whole, dictionaries)
        if opened is not None and opened.was_touched:
            opened.source.close()
            opened = None
        opened = opened or _Opened(location, footer, verify=verify, whole=whole, dictionaries=dictionaries)
        try:
            yield opened.reader
        except Exception:
            opened.source.close()
            raise
        finally:
            if not opened.source.closed:
                self._keep(opened)

    def _found(self, footer: Footer, verify: bool, whole: bool, dictionaries: tuple[str, ...]) -> _Opened | None:
        asked = verify, whole, dictionaries
        with self._lock:
            for opened in reversed(self._idle):
                if opened.footer is footer and (opened.verify, opened.whole, opened.dictionaries) == asked:
                    del self._idle[opened]
                    return opened
        return None

    def _keep(self, opened: _Opened) -> None:
        with self._lock:
            if opened.is_fetched_ahead or self._closed:
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
        for opened in idle:
            opened.source.close()


class _Opened:
    """A file and a reader of it."""

    def __init__(
        self, location: Location, footer: Footer, *, verify: bool, whole: bool, dictionaries: tuple[str, ...]
    ) -> None:
        self.footer, self.verify, self.whole, self.dictionaries = footer, verify, whole, dictionaries
        # Neighbouring column chunks are fetched together where a request is slow; a local file gains nothing from
        # that, and who wants the first rows wants little of each chunk.
        self.is_fetched_ahead = str(location.filesystem.type_name) != "local"
        together = whole and self.is_fetched_ahead
        self._path = location.join(footer.file.path)
        self.source = open_to_read(location, footer.file.path)
        try:
            self._version = None if self.is_fetched_ahead else _version(self._path)
            _check_size(self.source, footer.file)
            self.reader = pq.ParquetReader()  # `ParquetFile` is this and a table of all columns' names
            self.reader.open(
                self.source,
                metadata=footer.metadata,
                read_dictionary=list(dictionaries),
                pre_buffer=together,
                buffer_size=0 if together else _STREAM_BYTES,
                page_checksum_verification=verify,
            )
        except BaseException:
            self.source.close()
            raise

    @property
    def was_touched(self) -> bool:
        """Whether somebody wrote to the file, or put another one in its place, since it was opened."""
        return self._version is not None and self._version != _version(self._path)


def _version(path: str) -> tuple[int, int, int] | None:
    """What changes when a local file is written to; None where there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a row group is read in less time than a `Path` is made a few times
    except OSError:  # it is opened anew, which says what is wrong with it
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _check_size(source: Any, file: DataFile) -> None:
    size = source.size()
    if size != file.size:
        raise DatasetChangedError(
            f"{file.path} was rewritten since the dataset was listed: it had {file.size:,} bytes, and has {size:,}. "
            "Open the dataset again"
        )
