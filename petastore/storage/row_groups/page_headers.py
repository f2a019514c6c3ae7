"""Headers of pages, which no checksum covers: held against what the footer says of their column chunk.

The checksum of a page is over its data alone. A bit that flips in its header may have fewer values read of it, or have
them read in another encoding, and give other values without any error. So what a header says twice, or what the footer
says as well, has to agree: the values of all pages are as many as those of the chunk; an encoding is one of those that
the chunk is declared to have; the levels of a page of version 2 fill the bytes that its header gives them. Pages that
have no checksum are left alone: their data may have flipped just as well.

Field numbers are those of `parquet.thrift`: PageHeader {1 type, 2 uncompressed_page_size, 3 compressed_page_size,
4 crc, 5 data_page_header, 7 dictionary_page_header, 8 data_page_header_v2}.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.footers.thrift import (
    BINARY,
    INTEGER,
    INTEGERS,
    STRUCT,
    read_field,
    read_integer,
    read_varint,
    struct_reader,
)
from petastore.storage.ranges.column_chunks import first_page

__all__ = ["DataPage", "PageWindow", "data_pages", "refuse_damaged_pages"]

_LEAST_BYTES = 128
_READ_BYTES = 1024
_SMALL_BYTES = 64 * 1024
_LONGEST_HEADER = 1 << 24
_FEWEST_TOGETHER, _FEWEST_ALIKE = 32, 8
_MOST_PAGES = 4
_NUMBER, _ANY = rb"([\x80-\xff]*[\x00-\x7f])", rb"[\x80-\xff]*[\x00-\x7f]"
# As nearly all writers have them, with a checksum: a dictionary, and a data page of version 1.
_USUAL_DICTIONARY = re.compile(
    rb"\x15\x04\x15" + _ANY + rb"\x15" + _NUMBER + rb"\x15" + _ANY + rb"\x3c\x15" + _ANY + rb"\x15.[\x11\x12]?\x00\x00",
    re.DOTALL,
)
_BYTES, _LARGE, _TRUTH = rb"[\x18\x28\x38\x48\x58\x68]", rb"[\x16\x26\x36\x46]", rb"[\x11\x12\x21\x22]"
# Statistics of numbers; those of text have other lengths.
_STATISTICS = rb"\x1c(?:" + _BYTES + rb"(?:\x04.{4}|\x08.{8}|\x01.)|" + _LARGE + _ANY + rb"|" + _TRUTH + rb")*+\x00"
_USUAL = re.compile(
    rb"\x15\x00\x15" + _ANY + rb"\x15" + _NUMBER + rb"\x15" + _ANY + rb"\x1c\x15" + _NUMBER + rb"\x15(.)\x15(.)\x15(.)"
    rb"(?:" + _STATISTICS + rb")?+\x00\x00",
    re.DOTALL,
)
# The same without a checksum.
_UNCHECKED_DICTIONARY = re.compile(
    rb"\x15\x04\x15" + _ANY + rb"\x15" + _NUMBER + rb"\x4c\x15" + _ANY + rb"\x15.[\x11\x12]?\x00\x00", re.DOTALL
)
_NAMES = "PLAIN, , PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY"
_ENCODINGS = dict(enumerate([*_NAMES.split(", "), "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"]))
_DATA, _DICTIONARY_PAGE, _DATA_V2 = 0, 2, 3
_TYPE, _UNPACKED, _PACKED, _CHECKSUM, _V1, _DICTIONARY, _V2 = 1, 2, 3, 4, 5, 7, 8
# Where numbers stand in headers that are looked at together, by the fields that lead there; all but the first four say
# in each of those the same.
_OF_VALUES = ((_PACKED,), (_CHECKSUM,), (_V1, 1), (_V1, 2), (_V1, 3), (_V1, 4))
_WANTED = {_DATA: _OF_VALUES, _DICTIONARY_PAGE: _OF_VALUES[:2]}
_SAME = {(_TYPE,), *_OF_VALUES[3:]}
_LONG = 5
_RLE = 3

Read = Callable[[int, int], bytes]
Header = dict[int, Any]


def refuse_damaged_pages(read: Read, metadata: Any, leaves: Iterable[int], *, file: DataFile, ordinal: int) -> None:
    """Refuse a row group whose page headers contradict the footer, or themselves.

    Args:
        read: Gives so many bytes of the file from a position on; fewer where it ends.
        metadata: The `pyarrow.parquet.FileMetaData` of a file whose leaf columns have been read: only then is asking
            for them safe.
        leaves: Leaf columns to look at.
        file: The file, for the message.
        ordinal: The row group.

    Raises:
        DecodeError: A header is not what it was; the message says how.
    """
    wanted, group = list(leaves), metadata.row_group(ordinal)
    if wanted and _UNCHECKED_DICTIONARY.match(read(_LEAST_BYTES, first_page(group.column(wanted[0])))):
        return  # who writes checksums writes them for all
    columns = [group.column(leaf) for leaf in wanted]
    are_right = _seen_right(read, columns) if len(wanted) >= _FEWEST_TOGETHER else [False] * len(wanted)
    window = PageWindow(read, _SMALL_BYTES if group.total_byte_size <= _SMALL_BYTES else _READ_BYTES)
    for leaf, column, is_right in zip(wanted, columns, are_right, strict=True):
        if is_right:
            continue
        levels = metadata.schema.column(leaf)
        try:
            _check_chunk(window, column, levels.max_definition_level, levels.max_repetition_level)
        except (LookupError, ValueError, OverflowError, RecursionError) as problem:
            raise DecodeError(
                f"the data is damaged: the page header of {column.path_in_schema} at byte {window.header_at:,} is "
                f"damaged: {problem}",
                file=file.path,
                row_group=ordinal,
            ) from None


def _seen_right(read: Read, columns: Sequence[Any]) -> NDArray[np.bool_]:
    """Of which column chunks all pages have headers that are right; of the others nothing is known.

    Headers of a wide table lie alike, and say other numbers: they are looked at together, page after page.
    """
    kinds: dict[tuple[str, ...], int] = {}
    kind_of = np.array([kinds.setdefault(column.encodings, len(kinds)) for column in columns])
    values, sizes = np.array([(column.num_values, column.total_compressed_size) for column in columns]).T
    at = np.array([first_page(column) for column in columns])
    stops, found, are_right = at + sizes, np.zeros_like(at), np.ones(len(at), np.bool_)
    for _ in range(_MOST_PAGES):
        places = np.flatnonzero(are_right & (found < values) & (at < stops))
        if len(places) < _FEWEST_ALIKE:
            break
        are_right[places] = False
        heads = _Heads([read(_LEAST_BYTES, place) for place in at[places].tolist()])
        for layout, numbers in heads.layouts():
            those = places[numbers]
            packed, more = heads.said(layout.packed, numbers), heads.said(layout.values, numbers)
            is_declared = np.array([layout.declared.issubset(kind) for kind in kinds])[kind_of[those]]
            at[those] += layout.length
            are_right[those] = is_declared & (packed >= 0) & (packed <= (stops - at)[those]) & (more >= 0)
            at[those] += packed
            found[those] += more
    return are_right & (found == values)


class _Heads:
    """What may be headers, side by side: so many bytes from where each begins, or fewer where the file ends."""

    def __init__(self, heads: Sequence[bytes]) -> None:
        self._heads = heads
        # Nothing ends in what is put behind the end.
        padded = b"".join([head.ljust(_LEAST_BYTES, b"\xff") for head in heads])
        self._bytes = np.frombuffer(padded, np.uint8).reshape(len(heads), _LEAST_BYTES)

    def layouts(self) -> Iterator[tuple[_Layout, NDArray[np.intp]]]:
        """Layouts that many of them have, each with the numbers of those; some may be in none."""
        words, left = self._bytes.view(np.uint64), np.arange(len(self._heads))
        while len(left) >= _FEWEST_ALIKE:
            layout, is_done = _layout_of(self._heads[left[0]]), np.arange(len(left)) == 0
            if layout is not None:
                is_done = ~((words[left] ^ layout.same) & layout.mask).any(axis=1)
                yield layout, left[is_done]
            left = left[~is_done]

    def said(self, where: slice, numbers: NDArray[np.intp]) -> NDArray[np.int64]:
        """What stands at a place of some of them, shape (numbers,): an integer, which is 0 where nothing stands."""
        digits = (self._bytes[numbers, where] & 127).astype(np.int64)
        coded = digits @ (1 << 7 * np.arange(digits.shape[1]))
        return (coded >> 1) ^ -(coded & 1)


class _Layout(NamedTuple):
    """How a header lies that is right by itself: of a dictionary, or of a page of version 1, with a checksum."""

    same: NDArray[np.uint64]
    """Its bytes, as words."""
    mask: NDArray[np.uint64]
    """Which of their bits any header has that lies so, and says the same encodings."""
    length: int
    """Bytes of the header."""
    packed: slice
    """Where it says how many bytes the page has."""
    values: slice
    """Where it says how many values that has; nowhere in that of a dictionary."""
    declared: frozenset[str]
    """Encodings that the footer has to declare then."""


def _layout_of(head: bytes) -> _Layout | None:
    """The layout of the header with which some bytes begin; None where it has to be looked at by itself."""
    try:
        header, length = _whole_header(head, 0)
        mask, where = _lying(head)
    except (LookupError, ValueError):
        return None
    wanted, values, declared = _WANTED.get(header[_TYPE], ()), slice(0), set[str]()
    if not wanted or any(path not in where or where[path].stop > where[path].start + _LONG for path in wanted):
        return None
    if header[_TYPE] == _DATA:
        page, values = header[_V1], where[_V1, 1]
        declared = {_ENCODINGS.get(page[2], ""), *([] if page[3] == page[4] == _RLE else ["BIT_PACKED"])}
    for path in _SAME & where.keys():
        mask[where[path]] = b"\xff" * (where[path].stop - where[path].start)
    same, masked = (np.frombuffer(data.ljust(_LEAST_BYTES, b"\0"), np.uint64) for data in (head, bytes(mask[:length])))
    return _Layout(same, masked, length, where[(_PACKED,)], values, frozenset(declared))


def _lying(head: bytes) -> tuple[bytearray, dict[tuple[int, ...], slice]]:
    """Of the header with which some bytes begin: the bits that lead through it, and where its numbers stand.

    Raises:
        IndexError: It does not end there.
        ValueError: It is none of those that writers write.
    """
    mask, where = bytearray(b"\xff" * len(head)), dict[tuple[int, ...], slice]()

    def walk(at: int, path: tuple[int, ...]) -> int:
        number = 0
        while head[at]:
            before, (number, kind, begin) = number, read_field(head, at, number)
            if number <= before:
                raise ValueError("a field comes twice, or too late")
            if kind in INTEGERS:
                at = read_varint(head, begin)[1]
                where[(*path, number)] = slice(begin, at)
                mask[begin:at] = b"\x80" * (at - begin)
            elif kind == BINARY:
                length, begin = read_varint(head, begin)
                at = begin + length
                mask[begin:at] = bytes(len(head[begin:at]))
            elif kind == STRUCT:
                at = walk(begin, (*path, number))
            elif kind in _BOOLEAN:
                at = begin
            else:
                raise ValueError(f"headers have no type {kind}")
        return at + 1

    walk(0, ())
    return mask, where


def _check_chunk(window: PageWindow, column: Any, max_definition: int, max_repetition: int) -> None:
    encodings, values = column.encodings, 0
    for header, after, left in _headers(window.header, column):
        if _CHECKSUM not in header:
            return
        _check_length(header, left)
        values += _values_of(header)
        if header[_TYPE] == _DATA:
            _check_v1(header[_V1], encodings, max_definition, max_repetition)
        elif header[_TYPE] == _DATA_V2:
            _check_v2(header, encodings, window, after, (max_definition, max_repetition))
    if values != column.num_values:
        raise ValueError(f"pages have {values:,} values, but the footer says {column.num_values:,}")


def _headers(header_at: Callable[[int], tuple[Header, int]], column: Any) -> Iterator[tuple[Header, int, int]]:
    """The header of each page of a column chunk, where its data begin, and how many bytes are left there."""
    at, values = first_page(column), 0
    stop = at + column.total_compressed_size
    while values < column.num_values and at < stop:
        header, after = header_at(at)
        yield header, after, max(stop - after, 0)
        values += _values_of(header)
        at = after + header[_PACKED]


def _check_length(header: Header, left: int) -> None:
    if header[_PACKED] > left:
        raise ValueError(f"a page has {header[_PACKED]:,} bytes, where {left:,} are left")


def _values_of(header: Header) -> int:
    of_version = {_DATA: _V1, _DATA_V2: _V2}.get(header[_TYPE])
    values: int = 0 if of_version is None else header[of_version][1]
    return values


class DataPage(NamedTuple):
    """A page of values, as its header says."""

    at: int
    """Where its data begin in the file."""
    packed: int
    """Bytes of the data as they lie there."""
    unpacked: int
    """Bytes of the data before they were compressed."""
    checksum: int | None
    """CRC-32 of the data as they lie there; None where there is none."""
    first: int
    """Values of the column chunk before it."""
    values: int
    encoding: str
    is_v2: bool
    is_packed: bool
    """Whether it is compressed, where the column chunk is."""
    repetition_bytes: int
    """Bytes of repetition levels, which come first; of version 2 alone, whose levels are never compressed."""
    definition_bytes: int

    @property
    def level_bytes(self) -> int:
        """Bytes of all levels of a page of version 2."""
        return self.repetition_bytes + self.definition_bytes


def data_pages(window: PageWindow, column: Any) -> Iterator[DataPage]:
    """The data pages of a column chunk, in order.

    Args:
        window: Reads the file.
        column: Its `pyarrow.parquet.ColumnChunkMetaData`.

    Raises:
        LookupError: While iterating: a header is damaged.
        ValueError: The same.
    """
    first = 0
    for header, after, left in _headers(window.whole_header, column):
        _check_length(header, left)
        if header[_TYPE] in (_DATA, _DATA_V2):
            yield _data_page(header, after, first)
        first += _values_of(header)


def _data_page(header: Header, at: int, first: int) -> DataPage:
    is_v2 = header[_TYPE] == _DATA_V2
    page, checksum = header[_V2 if is_v2 else _V1], header.get(_CHECKSUM)
    return DataPage(
        at=at,
        packed=header[_PACKED],
        unpacked=header[_UNPACKED],
        checksum=None if checksum is None else checksum & 0xFFFFFFFF,
        first=first,
        values=page[1],
        encoding=_ENCODINGS[page[4 if is_v2 else 2]],
        is_v2=is_v2,
        is_packed=not is_v2 or page.get(7, True),
        repetition_bytes=page[6] if is_v2 else 0,
        definition_bytes=page[5] if is_v2 else 0,
    )


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

    def bytes_at(self, at: int, least: int = _LEAST_BYTES) -> bytes:
        """At least so many bytes from a position on, unless the file ends."""
        first = at - self._at
        if first < 0 or first + least > len(self._data):
            self._at, self._data = at, self._read(max(self._length, least), at)
            first = 0
        return self._data[first : first + max(least, _READ_BYTES)]

    def header(self, at: int) -> tuple[Header, int]:
        """What is checked of the page header at a position, and the position after it."""
        return self._header(_page_header, at)

    def whole_header(self, at: int) -> tuple[Header, int]:
        """All fields of the page header at a position, and the position after it."""
        return self._header(_whole_header, at)

    def _header(self, read: Callable[[bytes, int], tuple[Header, int]], at: int) -> tuple[Header, int]:
        self.header_at = at
        try:
            header, after = read(self.bytes_at(at), 0)
        except IndexError:
            # Statistics in a header may be as long as the longest cells.
            header, after = read(self._read(_LONGEST_HEADER, at), 0)
        return header, at + after


def _page_header(data: bytes, at: int) -> tuple[Header, int]:
    if (usual := _USUAL_DICTIONARY.match(data, at)) is not None:
        return {_TYPE: _DICTIONARY_PAGE, _PACKED: _number(usual[1]), _CHECKSUM: 0}, usual.end()
    if (usual := _USUAL.match(data, at)) is not None:
        packed, values, encoding, definition, repetition = map(_number, usual.groups())
        page = {1: values, 2: encoding, 3: definition, 4: repetition}
        return {_TYPE: _DATA, _PACKED: packed, _CHECKSUM: 0, _V1: page}, usual.end()
    return _whole_header(data, at)


def _whole_header(data: bytes, at: int) -> tuple[Header, int]:
    header, at = _read_header(data, at)
    if _TYPE not in header or header.get(_PACKED, -1) < 0:
        raise ValueError("it says neither what page it is of nor how long that is")
    return header, at


@functools.lru_cache(maxsize=4096)  # pages of a row group have the same values, and often the same sizes
def _number(encoded: bytes) -> int:
    return read_integer(encoded, 0)[0]


_BOOLEAN = {1: lambda _, at: (True, at), 2: lambda _, at: (False, at)}
_page = struct_reader({**dict.fromkeys(range(1, 7), INTEGER), 7: _BOOLEAN})
_read_header = struct_reader(
    {
        **dict.fromkeys((_TYPE, _UNPACKED, _PACKED, _CHECKSUM), INTEGER),
        **{number: {STRUCT: _page} for number in (_V1, _DICTIONARY, _V2)},
    }
)


def _check_v1(page: Header, encodings: Sequence[str], max_definition: int, max_repetition: int) -> None:
    _check_encoding(page.get(2), encodings)
    if max_definition:
        _check_levels_encoding(page.get(3), encodings)
    if max_repetition:
        _check_levels_encoding(page.get(4), encodings)


def _check_v2(header: Header, encodings: Sequence[str], window: PageWindow, at: int, most: tuple[int, int]) -> None:
    page = header.get(_V2, {})
    _check_encoding(page.get(4), encodings)
    definition, repetition = page.get(5, -1), page.get(6, -1)
    if definition < 0 or repetition < 0 or definition + repetition > header[_PACKED]:
        raise ValueError(f"levels have {definition:,} and {repetition:,} bytes of a page of {header[_PACKED]:,}")
    if not page.get(7, True) and header[_PACKED] != header.get(_UNPACKED):
        raise ValueError("a page that is not compressed has another size than that")
    levels = window.bytes_at(at, repetition + definition)[: repetition + definition]
    _check_runs(levels[:repetition], most[1], page.get(1, 0))
    _check_runs(levels[repetition:], most[0], page.get(1, 0))


def _check_encoding(encoding: int | None, encodings: Sequence[str]) -> None:
    name = _ENCODINGS.get(-1 if encoding is None else encoding, str(encoding))
    if name not in encodings:
        raise ValueError(f"a page has the encoding {name}, but the footer says {', '.join(encodings)}")


def _check_levels_encoding(encoding: int | None, encodings: Sequence[str]) -> None:
    if encoding != 3 and "BIT_PACKED" not in encodings:
        raise ValueError(f"levels have the encoding {encoding}")


def _check_runs(levels: bytes, highest: int, values: int) -> None:
    """Refuse levels of which the runs do not fill the bytes and the values."""
    width = highest.bit_length()
    at = read = 0
    while width and at < len(levels):
        run, at = read_varint(levels, at)
        read += (run >> 1) * 8 if run & 1 else run >> 1
        at += (run >> 1) * width if run & 1 else (width + 7) // 8
    if at != len(levels) or (width and not values <= read < values + 8):
        raise ValueError(f"{read:,} levels in {len(levels):,} bytes belong to {values:,} values")
