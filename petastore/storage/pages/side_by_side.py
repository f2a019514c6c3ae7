"""Headers of the pages of many columns, looked at together: those of a wide table lie alike, and say other numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from petastore.storage.footers.thrift import BINARY, INTEGERS, STRUCT, read_field, read_varint
from petastore.storage.pages.headers import (
    BOOLEAN,
    CHECKSUM,
    DATA,
    DICTIONARY_PAGE,
    ENCODINGS,
    LEAST_BYTES,
    PACKED,
    RLE,
    TYPE,
    V1,
    Read,
    read_whole_header,
)
from petastore.storage.ranges.column_chunks import first_page

__all__ = ["seen_right"]

_FEWEST_ALIKE = 8
_MOST_PAGES = 4
# Where numbers stand in headers that are looked at together, by the fields that lead there; all but the first four say
# in each of those the same.
_OF_VALUES = ((PACKED,), (CHECKSUM,), (V1, 1), (V1, 2), (V1, 3), (V1, 4))
_WANTED = {DATA: _OF_VALUES, DICTIONARY_PAGE: _OF_VALUES[:2]}
_SAME = {(TYPE,), *_OF_VALUES[3:]}
_LONG = 5


def seen_right(read: Read, columns: Sequence[Any]) -> NDArray[np.bool_]:
    """Of which column chunks all pages have headers that are right, shape (columns,); of the others nothing is known.

    Args:
        read: Reads the file.
        columns: The `pyarrow.parquet.ColumnChunkMetaData` of each.
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
        heads = _Heads([read(LEAST_BYTES, place) for place in at[places].tolist()])
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
        padded = b"".join([head.ljust(LEAST_BYTES, b"\xff") for head in heads])
        self._bytes = np.frombuffer(padded, np.uint8).reshape(len(heads), LEAST_BYTES)

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
        header, length = read_whole_header(head, 0)
        mask, where = _lying(head)
    except (LookupError, ValueError):
        return None
    wanted, values, declared = _WANTED.get(header[TYPE], ()), slice(0), set[str]()
    if not wanted or any(path not in where or where[path].stop > where[path].start + _LONG for path in wanted):
        return None
    if header[TYPE] == DATA:
        page, values = header[V1], where[V1, 1]
        declared = {ENCODINGS.get(page[2], ""), *([] if page[3] == page[4] == RLE else ["BIT_PACKED"])}
    for path in _SAME & where.keys():
        mask[where[path]] = b"\xff" * (where[path].stop - where[path].start)
    same, masked = (np.frombuffer(data.ljust(LEAST_BYTES, b"\0"), np.uint64) for data in (head, bytes(mask[:length])))
    return _Layout(same, masked, length, where[(PACKED,)], values, frozenset(declared))


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
            elif kind in BOOLEAN:
                at = begin
            else:
                raise ValueError(f"headers have no type {kind}")
        return at + 1

    walk(0, ())
    return mask, where
