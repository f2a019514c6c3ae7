"""One file, opened as it is going to be read: what its pages come from, and Arrow's reader of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from petastore.errors import DatasetChangedError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import INT96_UNIT, Footer, check_unchanged, read_footer
from petastore.storage.footers.tails import read_tail
from petastore.storage.requests.failures import answered
from petastore.storage.row_groups.verified import Version

__all__ = ["OpenedFile", "Settings", "check_footer", "open_local"]

_STREAM_BYTES = 256 * 1024
"""Bytes that are read of a local file at a time: a column chunk never lies in memory twice, stored and decoded.

Of a file that is far away so many are fetched at a time where only the first rows of chunks are wanted.
"""

_WHOLE_BYTES = 8 * 1024 * 1024
"""Row groups up to this size in bytes have their column chunks read whole.

Arrow's stream takes as many bytes of memory as a page header says that its page has. A chunk that is read whole bounds
them, so that headers need no check before.
"""


class Settings(NamedTuple):
    """How a file is read."""

    verify: bool
    """Whether checksums of pages are verified."""

    whole: bool
    """Whether most of each column chunk is going to be read."""


class OpenedFile:
    """What the pages of a file are read from, and a reader of them; closes it where it can be none.

    Args:
        source: A `pyarrow.NativeFile`, which is this object's from now on.
        footer: Of the file.
        settings: How it is read.
        version: Of a local file, as it was before it was opened; None where nothing tells.
        is_near: Whether reading takes no requests.
        buffer_bytes: Bytes that are read of it at a time; 0 is a whole column chunk.
    """

    def __init__(
        self,
        source: Any,
        footer: Footer,
        settings: Settings,
        *,
        version: Version | None = None,
        is_near: bool = True,
        buffer_bytes: int = _STREAM_BYTES,
    ) -> None:
        self.source, self.settings, self.version, self.is_near = source, settings, version, is_near
        self._buffer_bytes = 0 if is_near and footer.largest_group_bytes <= _WHOLE_BYTES else buffer_bytes
        self.is_streamed = is_near and self._buffer_bytes > 0
        """Whether Arrow reads pages from a stream, for which it takes as much memory as their headers say."""
        try:
            self.reader = self.reader_of(footer, verify=settings.verify)
        except BaseException:
            self.source.close()
            raise

    def reader_of(
        self, footer: Footer, dictionaries: Sequence[str] = (), *, int96_unit: str = INT96_UNIT, verify: bool = True
    ) -> Any:
        """A `pyarrow.parquet.ParquetReader`.

        Args:
            footer: Of the file.
            dictionaries: Leaf columns, by their paths, that it gives as Arrow's dictionaries.
            int96_unit: Unit of INT96 timestamps.
            verify: Whether it verifies checksums of pages.
        """
        reader = pq.ParquetReader()  # `ParquetFile` is this and a table of all columns' names
        reader.open(
            self.source,
            metadata=footer.metadata,
            read_dictionary=list(dictionaries),
            pre_buffer=False,
            buffer_size=self._buffer_bytes,
            coerce_int96_timestamp_unit=int96_unit,
            page_checksum_verification=verify,
        )
        return reader


def open_local(location: Location, path: str, expected: DataFile) -> Any:
    """A local file, a `pyarrow.NativeFile`, if it has the size that its footer is of.

    Raises:
        DatasetChangedError: It has another size.
        StorageError: It is missing, or cannot be opened.
    """
    source = answered(location, lambda: location.filesystem.open_input_file(path), "open", expected.path)
    size = source.size()
    if size != expected.size:
        source.close()
        raise DatasetChangedError(
            f"{expected.path} was rewritten since the dataset was listed: it had {expected.size:,} bytes, and has "
            f"{size:,}. Open the dataset again"
        )
    return source


def check_footer(location: Location, footer: Footer, version: Version) -> None:
    """Refuses a local file that has another size or footer by now.

    Raises:
        DatasetChangedError: It has.
        StorageError: It cannot be read.
    """
    path = footer.file.path
    check_unchanged(DataFile(path, version.size, footer.file.digest), footer.file)
    if read_tail(location, path) != (footer.file.size, footer.encoded):
        check_unchanged(read_footer(location, path).file, footer.file)
