"""Pages of row groups that are read in parts: their memory, and checks of their headers before Arrow gets the bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer
from petastore.storage.page_headers import (
    LONGEST_HEADER,
    PACKED,
    PAGE_ERRORS,
    TYPE,
    UNPACKED,
    ChunkCheck,
    Header,
    PageWindow,
    damaged_header,
    headers_of,
    values_of,
)
from petastore.storage.ranges.fetch import ByteRange
from petastore.storage.row_groups.opened_file import LocalFile

__all__ = ["checked_pages", "page_bytes"]

_DICTIONARY = 2
"""Number of the page type "dictionary page" in page headers."""


def page_bytes(location: Location, footer: Footer, ordinal: int, columns: Iterable[str]) -> int:
    """Return the memory for pages while streaming some columns: each leaf needs its largest page and dictionary.

    Args:
        location: Location of a local dataset.
        footer: Footer of the file; caches the result.
        ordinal: Number of the row group.
        columns: Names of the columns.

    Raises:
        StorageError: The file is missing, or cannot be read.
    """
    leaves = [leaf for name in columns for leaf in footer.leaves.get(name, ())]
    missing = [leaf for leaf in leaves if (ordinal, leaf) not in footer.page_bytes]
    if missing:
        opened = LocalFile.open_with(location, footer)
        try:
            for leaf in missing:
                window = PageWindow(opened.source.read_at)
                footer.page_bytes[ordinal, leaf] = _of_chunk(window, footer, ordinal, leaf)
        finally:
            opened.source.close()
    return sum(footer.page_bytes[ordinal, leaf] for leaf in leaves)


def _of_chunk(window: PageWindow, footer: Footer, ordinal: int, leaf: int) -> int:
    dictionary = copied = largest = 0
    try:
        for header, _, _ in headers_of(window.header, footer.chunk(ordinal, leaf)):
            size = _of_page(header)
            if header[TYPE] == _DICTIONARY:
                copied = header.get(UNPACKED, 0)
                dictionary = size + copied  # values of the dictionary are copied
            else:
                largest = max(largest, size)
    except PAGE_ERRORS:
        return 0  # reading raises the error
    return max(dictionary, copied + largest)


def _of_page(header: Header) -> int:
    """Return the bytes of a page, as stored and decompressed."""
    stored, decompressed = header[PACKED], header.get(UNPACKED, 0)
    return stored if stored == decompressed else stored + decompressed


def checked_pages(
    fetch: Callable[[ByteRange], pa.Buffer], footer: Footer, ordinal: int, ranges: Mapping[int, ByteRange]
) -> Callable[[ByteRange], pa.Buffer]:
    """Return a function that fetches ranges of column chunks, and checks the page headers in them.

    Arrow reads each chunk in consecutive ranges, and may read it again from its first byte on. It allocates the sizes
    that a header declares as soon as it has the header.

    Args:
        fetch: Function that fetches a range.
        footer: Footer of the file.
        ordinal: Number of the row group.
        ranges: Bytes of the column chunk of each leaf that is read.

    Returns:
        A function that raises DecodeError if a page header contradicts the footer.
    """
    # Leaves with equal chunks may share their bytes.
    chunks = {one: _ArrivingChunk(footer, ordinal, leaf, one.offset) for leaf, one in ranges.items()}

    def checked(one: ByteRange) -> pa.Buffer:
        data = fetch(one)
        for where, chunk in chunks.items():
            if where.offset <= one.offset < where.end:
                chunk.arrive(one.offset, memoryview(data).cast("B"))
        return data

    return checked


class _ArrivingChunk:
    """Column chunk whose bytes arrive in order, with a check of its page headers.

    Args:
        footer: Footer of the file.
        ordinal: Number of the row group.
        leaf: Number of the leaf column.
        first: Position of the first byte in the file.
    """

    def __init__(self, footer: Footer, ordinal: int, leaf: int, first: int) -> None:
        self._footer, self._ordinal = footer, ordinal
        self._chunk = footer.chunk(ordinal, leaf)
        self._pages = ChunkCheck(footer, self._chunk, leaf, unchecked=True)
        self._arrived = self._header_at = first
        self._stop, self._values = first + self._chunk.stored_bytes, self._chunk.values
        self._rest = b""  # start of an incomplete header

    def arrive(self, offset: int, data: memoryview) -> None:
        """Check the headers that are complete with some bytes.

        Raises:
            DecodeError: A header is damaged.
        """
        assert offset <= self._arrived, "internal error: a column chunk was not read in order"  # noqa: S101
        end = offset + len(data)
        if end <= self._arrived:
            return  # these bytes were checked when they were read first
        new = data[max(self._arrived, self._header_at) - offset :]
        self._arrived = end
        try:
            self._check(memoryview(self._rest + new.tobytes()) if self._rest else new)
        except PAGE_ERRORS as problem:
            raise damaged_header(problem, self._footer, self._ordinal, self._chunk, self._header_at) from None

    def _check(self, data: memoryview) -> None:
        """Check the headers in bytes from the next header on."""
        first, self._rest = self._header_at, b""
        window = PageWindow(lambda length, at: bytes(data[at - first :][:length]))
        while self._header_at < min(self._arrived, self._stop) and self._values > 0:
            try:
                header, after = window.header(self._header_at)
            except IndexError:
                rest = data[self._header_at - first :]
                if self._arrived >= self._stop or len(rest) >= LONGEST_HEADER:
                    raise
                self._rest = bytes(rest)
                return
            self._pages.check(header, max(self._stop - after, 0), functools.partial(_in_memory, window, after))
            self._values -= values_of(header)
            self._header_at = after + header[PACKED]
        if self._header_at >= self._stop or self._values <= 0:
            self._pages.finish()


def _in_memory(window: PageWindow, at: int, length: int) -> bytes | None:
    data = window.bytes_at(at, length)
    return data if len(data) >= length else None
