"""The headers of pages, one after the other.

Field numbers are those of `parquet.thrift`: PageHeader {1 type, 2 uncompressed_page_size, 3 compressed_page_size,
4 crc, 5 data_page_header, 7 dictionary_page_header, 8 data_page_header_v2}.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from petastore.storage.footers.thrift import INTEGER, STRUCT, read_integer, struct_reader
from petastore.storage.ranges.column_chunks import first_page

__all__ = [
    "BOOLEAN",
    "CHECKSUM",
    "DATA",
    "DATA_V2",
    "DICTIONARY_PAGE",
    "ENCODINGS",
    "LEAST_BYTES",
    "PACKED",
    "RLE",
    "TYPE",
    "UNPACKED",
    "V1",
    "V2",
    "Header",
    "PageWindow",
    "Read",
    "check_length",
    "headers_of",
    "is_without_checksum",
    "read_header",
    "read_whole_header",
    "values_of",
]

LEAST_BYTES = 128
"""Nearly all headers are shorter."""

_READ_BYTES = 1024
_LONGEST_HEADER = 1 << 24
_NUMBER, _ANY = rb"([\x80-\xff]*[\x00-\x7f])", rb"[\x80-\xff]*[\x00-\x7f]"
# A number that is not below 0 begins with an even byte: whoever goes from page to page by their sizes gets on.
_EVEN_WITH_MORE, _EVEN = (re.escape(bytes(range(first, first + 128, 2))) for first in (128, 0))
_SIZE = rb"([" + _EVEN_WITH_MORE + rb"]" + _ANY + rb"|[" + _EVEN + rb"])"
# As nearly all writers have them, with a checksum or without: a dictionary, and a data page of version 1.
_USUAL_DICTIONARY = re.compile(
    rb"\x15\x04\x15" + _ANY + rb"\x15" + _SIZE + rb"(?:\x15(" + _ANY + rb")\x3c|\x4c)\x15" + _ANY
    + rb"\x15.[\x11\x12]?\x00\x00",
    re.DOTALL,
)  # fmt: skip
_BYTES, _LARGE, _TRUTH = rb"[\x18\x28\x38\x48\x58\x68]", rb"[\x16\x26\x36\x46]", rb"[\x11\x12\x21\x22]"
# Statistics of numbers; those of text have other lengths.
_STATISTICS = rb"\x1c(?:" + _BYTES + rb"(?:\x04.{4}|\x08.{8}|\x01.)|" + _LARGE + _ANY + rb"|" + _TRUTH + rb")*+\x00"
_USUAL = re.compile(
    rb"\x15\x00\x15"
    + _ANY
    + rb"\x15"
    + _SIZE
    + rb"(?:\x15("
    + _ANY
    + rb")\x1c|\x2c)\x15"
    + _NUMBER
    + rb"\x15(.)\x15(.)\x15(.)"
    rb"(?:" + _STATISTICS + rb")?+\x00\x00",
    re.DOTALL,
)
_UNCHECKED_DICTIONARY = re.compile(
    rb"\x15\x04\x15" + _ANY + rb"\x15" + _NUMBER + rb"\x4c\x15" + _ANY + rb"\x15.[\x11\x12]?\x00\x00", re.DOTALL
)
_NAMES = "PLAIN, , PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY"

ENCODINGS = dict(enumerate([*_NAMES.split(", "), "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"]))
"""Names of encodings, as footers have them."""

DATA, DICTIONARY_PAGE, DATA_V2 = 0, 2, 3
"""Types of pages."""

TYPE, UNPACKED, PACKED, CHECKSUM, V1, DICTIONARY, V2 = 1, 2, 3, 4, 5, 7, 8
"""Fields of a header."""

_OF_VERSIONS = {DATA: V1, DATA_V2: V2}

BOOLEAN = {1: lambda _, at: (True, at), 2: lambda _, at: (False, at)}
"""Readers of the two types of fields that hold truth."""

RLE = 3
"""The encoding of levels."""

Read = Callable[[int, int], bytes]
"""Gives so many bytes of a file from a position on; fewer where it ends."""

Header = dict[int, Any]
"""Fields of a header by their numbers; those of the page's own header are one as well."""


def headers_of(header_at: Callable[[int], tuple[Header, int]], column: Any) -> Iterator[tuple[Header, int, int]]:
    """The header of each page of a column chunk, where its data begin, and how many bytes are left there."""
    at, left = first_page(column), column.num_values
    stop = at + column.total_compressed_size
    while left > 0 and at < stop:
        header, after = header_at(at)
        yield header, after, max(stop - after, 0)
        left -= values_of(header)
        at = after + header[PACKED]


def is_without_checksum(data: bytes) -> bool:
    """Whether some bytes begin with the usual header of a dictionary, and it has no checksum."""
    return _UNCHECKED_DICTIONARY.match(data) is not None


def check_length(header: Header, left: int) -> None:
    """Refuse a page that is longer than what is left of its column chunk.

    Raises:
        ValueError: It is.
    """
    if header[PACKED] > left:
        raise ValueError(f"a page has {header[PACKED]:,} bytes, where {left:,} are left")


def values_of(header: Header) -> int:
    """How many values a page has, nulls included; a dictionary has none of the column's."""
    of_version = _OF_VERSIONS.get(header[TYPE])
    values: int = 0 if of_version is None else header[of_version][1]
    return values


class PageWindow:
    """Some bytes of a file, those asked for last, and some behind them.

    Args:
        read: Gives so many bytes from a position on; fewer where the file ends.
        length: Bytes that are read at a time.
    """

    def __init__(self, read: Read, length: int = _READ_BYTES) -> None:
        self._read, self._length = read, length
        self._at, self._data = 0, b""
        self.header_at = 0
        """Where the page header lies that was read last."""

    def bytes_at(self, at: int, least: int = LEAST_BYTES) -> bytes:
        """At least so many bytes from a position on, unless the file ends."""
        first = at - self._at
        if first < 0 or first + least > len(self._data):
            self._at, self._data = at, self._read(max(self._length, least), at)
            first = 0
        return self._data[first : first + max(least, _READ_BYTES)]

    def header(self, at: int) -> tuple[Header, int]:
        """What is checked of the page header at a position, and the position after it."""
        return self._header(read_header, at)

    def whole_header(self, at: int) -> tuple[Header, int]:
        """All fields of the page header at a position, and the position after it."""
        return self._header(read_whole_header, at)

    def _header(self, read: Callable[[bytes, int], tuple[Header, int]], at: int) -> tuple[Header, int]:
        self.header_at = at
        try:
            header, after = read(self.bytes_at(at), 0)
        except IndexError:
            # Statistics in a header may be as long as the longest cells.
            header, after = read(self._read(_LONGEST_HEADER, at), 0)
        return header, at + after


def read_header(data: bytes, at: int) -> tuple[Header, int]:
    """What is checked of the header that begins at a place, and the place after it; quickly where it is a usual one.

    Raises:
        IndexError: It does not end there.
        ValueError: It is none.
    """
    if (usual := _USUAL_DICTIONARY.match(data, at)) is not None:
        return {TYPE: DICTIONARY_PAGE, PACKED: _number(usual[1]), **_checksum(usual[2])}, usual.end()
    if (usual := _USUAL.match(data, at)) is not None:
        packed, checksum, *of_page = usual.groups()
        page = dict(enumerate(map(_number, of_page), start=1))
        return {TYPE: DATA, PACKED: _number(packed), **_checksum(checksum), V1: page}, usual.end()
    return read_whole_header(data, at)


def read_whole_header(data: bytes, at: int) -> tuple[Header, int]:
    """As `read_header`, with all fields."""
    header, at = _read_header(data, at)
    if TYPE not in header or header.get(PACKED, -1) < 0:
        raise ValueError("it says neither what page it is of nor how long that is")
    return header, at


def _checksum(encoded: bytes | None) -> Header:
    """The field of a checksum that is there; its value is Arrow's to verify."""
    return {} if encoded is None else {CHECKSUM: 0}


@functools.lru_cache(maxsize=4096)  # pages of a row group have the same values, and often the same sizes
def _number(encoded: bytes) -> int:
    return read_integer(encoded, 0)[0]


_page = struct_reader({**dict.fromkeys(range(1, 7), INTEGER), 7: BOOLEAN})
_read_header = struct_reader(
    {
        **dict.fromkeys((TYPE, UNPACKED, PACKED, CHECKSUM), INTEGER),
        **{number: {STRUCT: _page} for number in (V1, DICTIONARY, V2)},
    }
)
