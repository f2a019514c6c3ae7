"""Long lists of numbers, each as long as the others and none missing: plain pages hold just the numbers, end to end.

Arrow decodes two levels for each number, which say where lists begin and what is missing. That takes longer than all
the rest. Here the runs of the levels are looked at, few a page, and the numbers are read as they lie. What is not plain
(numbers in a dictionary, a value that is missing, another encoding, damage) is left to Arrow, and to its messages.

The levels are in the hybrid of runs and packed bits of https://parquet.apache.org/docs/file-format/data-pages/encodings
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.once import once
from petastore.storage.footers.thrift import read_varint
from petastore.storage.pages.data_pages import DataPage, data_pages
from petastore.storage.pages.headers import PageWindow

__all__ = ["LongLists", "NotPlainError"]

_LEAST_ROW_BYTES: Final = 32 * 1024
"""Where lists are shorter, a page has so many runs that Arrow is as fast."""

_REMEMBERED_BYTES: Final = 1024
"""Levels of a page that are remembered; long lists have some dozens, and those of many pages are kept at a time."""

_MOST_LEVEL_BYTES: Final = 64 * 1024
"""Levels of a page that take more than this are no few runs."""

_PHYSICAL: Final = {
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.int32(): "INT32",
    pa.int64(): "INT64",
    pa.uint32(): "INT32",
    pa.uint64(): "INT64",
}
"""Numbers that lie in a file as they lie in memory."""

_CODECS: Final = {"UNCOMPRESSED": None, "SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "BROTLI": "brotli"}


class NotPlainError(Exception):
    """Somebody else has to read this."""


class _Values(NamedTuple):
    """The numbers of a page, from some number of the column chunk on."""

    first: int
    nbytes: int
    copy: Callable[[int, memoryview], None]
    """Given a position in their bytes and memory, fills that with what begins there."""


@dataclasses.dataclass(frozen=True)
class LongLists:
    """A column chunk of long lists in a file that is open. For one thread.

    Args:
        source: The file, an Arrow `NativeFile`.
        column: The `ColumnChunkMetaData` of their numbers.
        highest: The definition level of a number that is there.
        kind: Arrow's type of the column.
        verify: Whether checksums of pages are verified, where they have some.
    """

    source: Any
    column: Any
    highest: int
    kind: Any
    verify: bool

    @staticmethod
    def of(source: Any, metadata: Any, ordinal: int, leaf: int, kind: Any, *, verify: bool) -> LongLists | None:
        """Those of a leaf column of a row group; None where it is of something else."""
        stored = _stored(kind)
        if not pa.types.is_fixed_size_list(stored) or stored.value_type not in _PHYSICAL:
            return None
        group, levels = metadata.row_group(ordinal), metadata.schema.column(leaf)
        column, row_bytes = group.column(leaf), stored.list_size * stored.value_type.bit_width // 8
        is_one = (
            row_bytes >= _LEAST_ROW_BYTES
            and levels.max_repetition_level == 1
            and column.physical_type == _PHYSICAL[stored.value_type]
            and column.compression in _CODECS
            and column.num_values == group.num_rows * stored.list_size
            # No lie about how long a list is gets memory for it.
            and column.total_uncompressed_size >= row_bytes
        )
        return LongLists(source, column, levels.max_definition_level, kind, verify) if is_one else None

    @once
    def _width(self) -> int:
        """Bytes of a number."""
        return int(_stored(self.kind).value_type.bit_width // 8)

    @once
    def _size(self) -> int:
        """Numbers of a row."""
        return int(_stored(self.kind).list_size)

    @once
    def first_row(self) -> int:
        """The first row from which on no number lies in a dictionary.

        Raises:
            NotPlainError: The pages cannot be read.
        """
        with _arrow_tells():
            for page in data_pages(PageWindow(self.source.read_at), self.column):
                if page.encoding == "PLAIN":
                    return -(-page.first // self._size)
        return int(self.column.num_values // self._size)

    def arrays(self, first: int, at_once: int) -> Iterator[pa.Array]:
        """The rows from one on, so many at a time, each in memory of its own.

        Raises:
            NotPlainError: While iterating: the rows that come next are not plain.
        """
        size, rows = self._size, self.column.num_values // self._size
        pages, stored = self._values_from(first * size), _stored(self.kind)
        values, taken = _Values(first * size, 0, lambda *_: None), 0
        for begin in range(first, rows, at_once):
            count = min(at_once, rows - begin)
            buffer = pa.allocate_buffer(count * size * self._width)
            out, filled = memoryview(buffer), 0
            while filled < buffer.size:
                if taken == values.nbytes:
                    values = next(pages)
                    taken = max(first * size - values.first, 0) * self._width
                length = min(buffer.size - filled, values.nbytes - taken)
                with _arrow_tells():
                    values.copy(taken, out[filled : filled + length])
                filled, taken = filled + length, taken + length
            numbers = pa.Array.from_buffers(stored.value_type, count * size, [None, buffer])
            lists = pa.Array.from_buffers(stored, count, [None], children=[numbers])
            yield lists if stored is self.kind else pa.ExtensionArray.from_storage(self.kind, lists)

    def _values_from(self, first: int) -> Iterator[_Values]:
        """The numbers of each page that has one from `first` on; never ends without an error."""
        with _arrow_tells():
            window = PageWindow(self.source.read_at)
            for page in data_pages(window, self.column):
                if page.first + page.values > first:
                    yield self._values(window, page)
        raise NotPlainError("there are less numbers than the footer says")

    def _values(self, window: PageWindow, page: DataPage) -> _Values:
        if page.encoding != "PLAIN" or page.first + page.values > self.column.num_values:
            raise NotPlainError(f"a page of {page.values:,} numbers, {page.encoding}")
        if page.at + page.packed > self.source.size():
            raise NotPlainError(f"a page of {page.packed:,} bytes is cut off")
        is_packed = page.is_packed and self.column.compression != "UNCOMPRESSED"
        if not is_packed and not (self.verify and page.checksum is not None):
            begin = self._check_levels(page, lambda at, length: window.bytes_at(page.at + at, length)[:length])
            place = page.at + begin
            self._check_length(page, page.packed - begin)
            return _Values(page.first, page.values * self._width, lambda at, out: self._read_into(place + at, out))
        data = memoryview(self.source.read_at(page.packed, page.at))
        if self.verify and page.checksum not in (None, zlib.crc32(data)):
            raise NotPlainError("a page is not what its checksum says")
        if is_packed and not page.is_v2:
            data = self._unpacked(page, data, page.unpacked)
        begin = self._check_levels(page, lambda at, length: bytes(data[at : at + length]))
        numbers = data[begin:]
        if is_packed and page.is_v2:  # its levels are never compressed
            numbers = self._unpacked(page, numbers, page.unpacked - begin)
        self._check_length(page, len(numbers))

        def copy(at: int, out: memoryview) -> None:
            np.copyto(np.frombuffer(out, np.uint8), np.frombuffer(numbers[at : at + len(out)], np.uint8))

        return _Values(page.first, page.values * self._width, copy)

    def _read_into(self, place: int, out: memoryview) -> None:
        self.source.seek(place)
        if self.source.readinto(out) != len(out):
            raise NotPlainError("the file ends inside a page")

    def _unpacked(self, page: DataPage, data: memoryview, size: int) -> memoryview:
        """Data as they were before they were compressed; not more than numbers and few levels can have."""
        if not 0 <= size <= page.values * self._width + 2 * (_MOST_LEVEL_BYTES + 4):
            raise NotPlainError(f"a page is said to have {page.unpacked:,} bytes")
        codec = pa.Codec(_CODECS[self.column.compression])
        return memoryview(codec.decompress(pa.py_buffer(data), size, asbytes=False))

    def _check_levels(self, page: DataPage, read: Callable[[int, int], bytes]) -> int:
        """Where the numbers begin, once the levels say that lists begin where they have to, and nothing is missing.

        Args:
            page: The page.
            read: Gives so many bytes of it from a position on.
        """
        if page.is_v2:
            repetition = read(0, _few(page.repetition_bytes))
            definition = read(len(repetition), _few(page.definition_bytes))
            end = page.level_bytes
        else:
            repetition = read(4, _few(int.from_bytes(read(0, 4), "little")))
            at = 4 + len(repetition)
            definition = read(at + 4, _few(int.from_bytes(read(at, 4), "little"))) if self.highest else b""
            end = at + 4 + len(definition) if self.highest else at
        is_short = len(repetition) + len(definition) <= _REMEMBERED_BYTES
        refuse = _refuse_levels if is_short else _refuse_levels.__wrapped__
        refuse(repetition, definition, self.highest, page.values, -page.first % self._size, self._size)
        return end

    def _check_length(self, page: DataPage, length: int) -> None:
        if length != page.values * self._width:
            raise NotPlainError(f"{page.values:,} numbers in {length:,} bytes")


def _stored(kind: Any) -> Any:
    """The type as which a column is stored: that of its lists, where it is one of tensors."""
    return kind.storage_type if isinstance(kind, pa.FixedShapeTensorType) else kind


@functools.lru_cache(512)
def _refuse_levels(repetition: bytes, definition: bytes, highest: int, values: int, first: int, size: int) -> None:
    """Remembers levels that are as they have to be: those of one row group are often those of the next.

    Args:
        repetition: Says where lists begin.
        definition: Says which numbers are there.
        highest: The definition level of those that are.
        values: How many numbers there are.
        first: How many come before the first list that begins among them.
        size: Numbers of a list.

    Raises:
        NotPlainError: Lists begin elsewhere, or a number is missing.
    """
    begins = [begin + np.flatnonzero(levels == 0) for begin, levels in _runs(repetition, 1, values)]
    if not np.array_equal(np.concatenate(begins), np.arange(first, values, size)):
        raise NotPlainError("lists begin elsewhere")
    if highest and not all((levels == highest).all() for _, levels in _runs(definition, highest.bit_length(), values)):
        raise NotPlainError("a value is missing")


def _few(length: int) -> int:
    if not 0 <= length <= _MOST_LEVEL_BYTES:
        raise NotPlainError(f"levels take {length:,} bytes")
    return length


def _runs(encoded: bytes, width: int, values: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Levels of so many values, run after run: where each begins, and the levels, which are one in a plain run.

    Example:
        >>> [(begin, levels.tolist()) for begin, levels in _runs(bytes([6, 1, 3, 0b10]), 1, 6)]
        [(0, [1, 1, 1]), (3, [0, 1, 0])]
    """
    at = begin = 0
    while begin < values:
        head, at = read_varint(encoded, at)
        length = (head >> 1) * (8 if head & 1 else 1)
        stop = at + ((head >> 1) * width if head & 1 else 1)
        if stop > len(encoded) or width > 8 or not length:
            raise NotPlainError("levels are cut off")
        count = min(length, values - begin)
        if head & 1:
            bits = np.unpackbits(np.frombuffer(encoded, np.uint8, stop - at, at), bitorder="little")
            levels = np.packbits(bits.reshape(-1, width), axis=1, bitorder="little")[:count, 0]
        else:
            levels = np.broadcast_to(np.uint8(encoded[at]), count)
        yield begin, levels
        at, begin = stop, begin + count


@contextlib.contextmanager
def _arrow_tells() -> Iterator[None]:
    """What cannot be read here is read by Arrow, which says what is wrong with it."""
    try:
        yield
    except (LookupError, ValueError, OverflowError, RecursionError) as problem:
        raise NotPlainError(str(problem)) from problem
