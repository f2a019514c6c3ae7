"""Compare page headers with the column chunk metadata in the footer.

The checksum of a page covers only its data, not its header. A flipped bit in the header may change the number of values
or the encoding, and give wrong values without any error. Redundant fields of header and footer are therefore compared.
The pages of a chunk must have as many values as the chunk, and only the chunk's encodings. No page may be larger than
the chunk. The levels of a version 2 page must fill the bytes given in its header. For pages without a checksum at most
the sizes are checked, because their data may be damaged as well.

`checked_pages` checks column chunks that arrive in several byte ranges, before Arrow gets the bytes. `page_bytes`
computes from the headers how much memory pages take while a row group is read in parts.

Field numbers are those of `parquet.thrift`: PageHeader {1 type, 2 uncompressed_page_size, 3 compressed_page_size, 4
crc, 5 data_page_header, 7 dictionary_page_header, 8 data_page_header_v2}.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from petastore.errors import DecodeError
from petastore.storage.files.location import Location
from petastore.storage.footers.chunk_metadata import INTEGER, STRUCT, ChunkContents, read_varint, struct_reader
from petastore.storage.footers.footer import Footer
from petastore.storage.ranges.fetch import ByteRange
from petastore.storage.row_groups.opened_file import LocalFile

__all__ = [
    "PageWindow",
    "checked_pages",
    "has_checksums",
    "headers_of",
    "page_bytes",
    "read_header",
    "refuse_damaged_pages",
    "values_of",
]

_LEAST_BYTES = 128
"""Bytes to read for a page header at first; nearly all headers are shorter."""

_READ_BYTES = 1024
LONGEST_HEADER = 1 << 24
"""Maximum bytes of a page header, the same as in Arrow."""

DATA, DICTIONARY_PAGE, DATA_V2 = 0, 2, 3
"""Numbers of page types in page headers.

They are "data page", "dictionary page", and "data page, version 2".
"""

TYPE, UNPACKED, PACKED, CHECKSUM, V1, DICTIONARY, V2 = 1, 2, 3, 4, 5, 7, 8
"""Field numbers of a page header."""

_OF_VERSIONS = {DATA: V1, DATA_V2: V2}

_BOOLEAN = {1: lambda _, at: (True, at), 2: lambda _, at: (False, at)}
"""Readers of boolean fields, whose value is in the Thrift type."""

RLE, BIT_PACKED = 3, 4
"""Numbers of the encodings of repetition and definition levels in page headers."""

Read = Callable[[int, int], bytes]
"""Function (length, offset) that reads bytes of a file; fewer at the file's end."""

Header = dict[int, Any]
"""Dict from field number to value; fields of the page type are in a nested dict."""


def headers_of(
    header_at: Callable[[int], tuple[Header, int]], chunk: ChunkContents
) -> Iterator[tuple[Header, int, int]]:
    """Yield (header, start of the data, remaining bytes of the chunk) for each page of a chunk.

    Args:
        header_at: Function that returns the page header at a position of the file, and the position after the header.
        chunk: Metadata of the column chunk.
    """
    at, left = chunk.first_page, chunk.values
    stop = at + chunk.stored_bytes
    while left > 0 and at < stop:
        header, after = header_at(at)
        yield header, after, max(stop - after, 0)
        left -= values_of(header)
        at = after + header[PACKED]


def values_of(header: Header) -> int:
    """Return the number of values of a page, including nulls; 0 for dictionary pages."""
    of_version = _OF_VERSIONS.get(header[TYPE])
    values: int = 0 if of_version is None else header[of_version][1]
    return values


class PageWindow:
    """Buffer for reading a file: the last requested bytes, and some bytes after them.

    Args:
        read: Function that reads a number of bytes from a position on; fewer at the end of the file.
        length: Number of bytes that are read at a time.
    """

    def __init__(self, read: Read, length: int = _READ_BYTES) -> None:
        self._read, self._length = read, length
        self._at, self._data = 0, b""
        self.header_at = 0
        """Position of the page header that was read last."""

    def bytes_at(self, at: int, least: int = _LEAST_BYTES) -> bytes:
        """Return at least `least` bytes from a position on; fewer at the end of the file."""
        first = at - self._at
        if first < 0 or first + least > len(self._data):
            self._at, self._data = at, self._read(max(self._length, least), at)
            first = 0
        return self._data[first : first + max(least, _READ_BYTES)]

    def header(self, at: int) -> tuple[Header, int]:
        """Return the page header at a position, and the position after it.

        Raises:
            IndexError: The header is truncated.
            ValueError: The bytes are not a page header.
        """
        self.header_at = at
        try:
            header, after = read_header(self.bytes_at(at), 0)
        except IndexError:
            # The header is longer than usual: its statistics may be as long as the longest cells.
            header, after = read_header(self._read(LONGEST_HEADER, at), 0)
        return header, at + after


def read_header(data: bytes, at: int) -> tuple[Header, int]:
    """Return the page header at a position of some bytes, and the position after it.

    Raises:
        IndexError: The header is truncated.
        ValueError: The bytes are not a page header.
    """
    header, at = _read_header(data, at)
    # A negative size would make the loop over pages go backwards, and never end.
    if TYPE not in header or header.get(PACKED, -1) < 0:
        raise ValueError("the header lacks the type or the size of its page")
    return header, at


_page = struct_reader({**dict.fromkeys(range(1, 7), INTEGER), 7: _BOOLEAN})
_read_header = struct_reader(
    {
        **dict.fromkeys((TYPE, UNPACKED, PACKED, CHECKSUM), INTEGER),
        **{number: {STRUCT: _page} for number in (V1, DICTIONARY, V2)},
    }
)


_SMALL_BYTES = 64 * 1024

_LEFT_OUT_BYTES = 128
"""Extra bytes of a column chunk of an old writer.

Old releases of parquet-mr omit the dictionary header from the chunk's size.
"""


def has_checksums(data: bytes, column: Any) -> bool:
    """Return whether the pages of a file have checksums.

    Return True if the first page header is unreadable.

    Args:
        data: All bytes of the file.
        column: The `pyarrow.parquet.ColumnChunkMetaData` of a chunk that Arrow has read: requesting the metadata of
            other chunks may terminate the process.
    """
    try:
        header, _ = read_header(data, column.dictionary_page_offset or column.data_page_offset)
    except (LookupError, ValueError, OverflowError, RecursionError):
        return True
    return CHECKSUM in header


def refuse_damaged_pages(
    read: Read, footer: Footer, ordinals: Sequence[int], leaves: Sequence[int], *, unchecked: bool = False
) -> None:
    """Raise an error if page headers of row groups contradict the footer or each other.

    Args:
        read: Function that reads a number of bytes from a position on; fewer at the end of the file.
        footer: Footer of the file.
        ordinals: Numbers of the row groups.
        leaves: Leaf columns to check.
        unchecked: Whether to check the lengths of pages without a checksum, too.

    Raises:
        DecodeError: A header is damaged; the message names the contradiction.
    """
    window = PageWindow(read, _window_bytes(footer, ordinals))
    for ordinal in ordinals:
        for number, leaf in enumerate(leaves):
            chunk = footer.chunk(ordinal, leaf)
            pages = ChunkCheck(footer, chunk, leaf, unchecked=unchecked)
            try:
                for header, after, left in headers_of(window.header, chunk):
                    if not pages.check(header, left, functools.partial(window.bytes_at, after)):
                        break
                pages.finish()
            except PAGE_ERRORS as problem:
                raise damaged_header(problem, footer, ordinal, chunk, window.header_at) from None
            if number == 0 and not (pages.have_checksums or unchecked):
                break  # writers compute checksums for all columns or none


def _window_bytes(footer: Footer, ordinals: Sequence[int]) -> int:
    """Return how many bytes to read at a time for the page headers of row groups.

    All headers of a small row group are read at once, and those of consecutive ones together.
    """
    largest = max(footer.metadata.row_group(ordinal).total_byte_size for ordinal in ordinals)
    if largest > _SMALL_BYTES:
        return _READ_BYTES
    is_run = len(ordinals) > 1 and ordinals[-1] - ordinals[0] == len(ordinals) - 1
    return _SMALL_BYTES if is_run else max(largest, _READ_BYTES)


PAGE_ERRORS = LookupError, ValueError, OverflowError, RecursionError
"""Exceptions of reading and checking a damaged header."""


def damaged_header(problem: Exception, footer: Footer, ordinal: int, chunk: ChunkContents, at: int) -> DecodeError:
    """Return the error for a page header at a position of the file."""
    return DecodeError(
        f"the data is damaged: the page header of {chunk.path} at byte {at:,} is damaged: {problem}. Restore the file "
        "from a copy, or write the file again",
        file=footer.file.path,
        row_group=ordinal,
    )


class ChunkCheck:
    """Check of the page headers of one column chunk, in order.

    Its methods raise `PAGE_ERRORS`.
    """

    def __init__(self, footer: Footer, chunk: ChunkContents, leaf: int, *, unchecked: bool) -> None:
        levels = footer.columns.stored.column(leaf)
        self._most = levels.max_definition_level, levels.max_repetition_level
        self._chunk, self._unchecked = chunk, unchecked
        self._values = 0
        self._checked: list[bool] = []

    @property
    def have_checksums(self) -> bool:
        """Whether the first page has a checksum; also True without pages."""
        return not self._checked or self._checked[0]

    def check(self, header: Header, left: int, levels: Callable[[int], bytes | None]) -> bool:
        """Check one page header; return whether the next header must be checked, too.

        Args:
            header: Header of the page.
            left: Number of bytes from the page's data to the end of the chunk.
            levels: Function that returns a number of bytes of the page's data; None if they are not in memory.
        """
        self._checked.append(CHECKSUM in header)
        left += 0 if self._checked[-1] else _LEFT_OUT_BYTES
        if header[PACKED] > left:
            raise ValueError(f"the page declares {header[PACKED]:,} bytes, but its column chunk has only {left:,} left")
        if header.get(UNPACKED, 0) > self._chunk.decoded_bytes + _LEFT_OUT_BYTES:
            raise ValueError(
                f"the page declares {header[UNPACKED]:,} bytes after decompression, but the footer declares "
                f"{self._chunk.decoded_bytes:,} for the whole column chunk"
            )
        if not all(self._checked):
            return self._unchecked
        self._values += values_of(header)
        if header[TYPE] == DATA:
            _check_v1(header[V1], self._chunk.encodings, *self._most)
        elif header[TYPE] == DATA_V2:
            _check_v2(header, self._chunk.encodings, levels, self._most)
        return True

    def finish(self) -> None:
        """After the last page, check that the pages have as many values as the chunk."""
        if all(self._checked) and self._values != self._chunk.values:
            raise ValueError(f"the pages have {self._values:,} values, but the footer declares {self._chunk.values:,}")


def _check_v1(page: Header, encodings: Sequence[int], max_definition: int, max_repetition: int) -> None:
    _check_encoding(page.get(2), encodings)
    if max_definition:
        _check_levels_encoding(page.get(3), encodings)
    if max_repetition:
        _check_levels_encoding(page.get(4), encodings)


def _check_v2(
    header: Header, encodings: Sequence[int], levels_of: Callable[[int], bytes | None], most: tuple[int, int]
) -> None:
    page = header.get(V2, {})
    _check_encoding(page.get(4), encodings)
    definition, repetition = page.get(5, -1), page.get(6, -1)
    if definition < 0 or repetition < 0 or definition + repetition > header[PACKED]:
        raise ValueError(
            f"the levels must fit into the page of {header[PACKED]:,} bytes, got {definition:,} bytes of definition "
            f"levels and {repetition:,} of repetition levels"
        )
    if not page.get(7, True) and header[PACKED] != header.get(UNPACKED):
        raise ValueError(
            "the page is not compressed, but its header declares different sizes before and after compression: "
            f"{header.get(UNPACKED)} and {header[PACKED]} bytes"
        )
    levels = levels_of(repetition + definition)
    if levels is not None:
        _check_runs(levels[:repetition], most[1], page.get(1, 0))
        _check_runs(levels[repetition : repetition + definition], most[0], page.get(1, 0))


def _check_encoding(encoding: int | None, encodings: Sequence[int]) -> None:
    if encoding not in encodings:
        raise ValueError(
            f"the page has encoding number {encoding}, but the footer declares only {', '.join(map(str, encodings))}"
        )


def _check_levels_encoding(encoding: int | None, encodings: Sequence[int]) -> None:
    if encoding != RLE and BIT_PACKED not in encodings:
        raise ValueError(
            f"definition and repetition levels must have encoding number {RLE} (RLE), got encoding number {encoding}"
        )


def _check_runs(levels: bytes, highest: int, values: int) -> None:
    """Raise an error if the encoded levels of a page are damaged.

    Args:
        levels: Encoded repetition or definition levels; the encoding must end with the last byte.
        highest: Largest possible level.
        values: Number of values of the page; there must be one level for each value.

    Raises:
        ValueError: The bytes encode too few or too many levels.
        IndexError: The last run of levels is truncated.
    """
    width = highest.bit_length()
    at = read = 0
    while width and at < len(levels):
        run, at = read_varint(levels, at)
        read += (run >> 1) * 8 if run & 1 else run >> 1
        at += (run >> 1) * width if run & 1 else (width + 7) // 8
    if at != len(levels) or (width and not values <= read < values + 8):
        raise ValueError(
            f"the {len(levels):,} bytes of levels encode {read:,} levels, but the page has {values:,} values"
        )


def page_bytes(location: Location, footer: Footer, ordinal: int, columns: Iterable[str]) -> int:
    """Return the memory in bytes for the pages of columns while they are streamed.

    Each leaf needs memory for its largest page and its dictionary.

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
            if header[TYPE] == DICTIONARY_PAGE:
                copied = header.get(UNPACKED, 0)
                dictionary = size + copied  # Arrow copies the values of the dictionary
            else:
                largest = max(largest, size)
    except PAGE_ERRORS:
        return 0  # reading raises the error
    return max(dictionary, copied + largest)


def _of_page(header: Header) -> int:
    """Return the memory for decompressing a page: the sum of its stored and decompressed bytes.

    For a page that is not compressed, return only its stored bytes.
    """
    stored, decompressed = header[PACKED], header.get(UNPACKED, 0)
    return stored if stored == decompressed else stored + decompressed


def checked_pages(
    fetch: Callable[[ByteRange], pa.Buffer], footer: Footer, ordinal: int, ranges: Mapping[int, ByteRange]
) -> Callable[[ByteRange], pa.Buffer]:
    """Return a function that fetches byte ranges, and checks the page headers in them.

    The ranges are parts of column chunks. Arrow reads each chunk in consecutive ranges, and may read it again from its
    first byte on. It allocates the sizes that a header declares as soon as it has the header.

    Args:
        fetch: Function that fetches a range.
        footer: Footer of the file.
        ordinal: Number of the row group.
        ranges: Bytes of the column chunk of each leaf that is read.

    Returns:
        A function that raises DecodeError if a page header contradicts the footer.
    """
    # The byte range is the key, because leaves with equal chunks may share their bytes.
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
        """Take the next bytes, and check the page headers that are complete now.

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
        """Check the complete page headers in `data`, which begins at the next header."""
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
