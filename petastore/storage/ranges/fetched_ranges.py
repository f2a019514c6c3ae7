"""Ranges of a file that were fetched, or are when they are needed, and the file that Arrow decodes Parquet from.

Arrow asks a file of Python once for each column chunk, and takes the answer as it is: a view of what was fetched. To
assemble a file in memory for it costs a copy, which takes about as long as decoding numbers does.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.requests.client import FileVersion

__all__ = ["FetchedRanges", "file_as_needed", "in_memory_file"]


class FetchedRanges:
    """Bytes of one file that lie in memory. Immutable, thread-safe.

    Args:
        size: Bytes of the file.
        version: The version that they are of.
        pieces: Where they begin and what they are, sorted; those that touch may be read as one. Where some overlap, a
            read begins in the last one that has its first byte or begins before.
        decoded: Of ranges that a cache keeps decoded: the columns that they are.
    """

    def __init__(
        self,
        size: int,
        version: FileVersion,
        pieces: Iterable[tuple[int, pa.Buffer]],
        decoded: Mapping[ByteRange, pa.Array] | None = None,
    ) -> None:
        self.size = size
        self.version = version
        self.decoded = decoded or {}
        held = list(pieces)
        self._starts = [start for start, _ in held]
        self._buffers = [buffer for _, buffer in held]

    @property
    def nbytes(self) -> int:
        """Bytes that lie in memory."""
        return sum(buffer.size for buffer in self._buffers)

    def read(self, offset: int, length: int) -> pa.Buffer:
        """Some bytes of the file: a view of what was fetched, without a copy unless a request was divided there.

        Raises:
            LookupError: They were not fetched.
        """
        data = self.read_up_to(offset, length)
        if data.size != length:
            raise LookupError(f"of the {length:,} bytes at {offset:,} only {data.size:,} were fetched")
        return data

    def read_up_to(self, offset: int, length: int) -> pa.Buffer:
        """As many of some bytes of the file as were fetched.

        Raises:
            LookupError: The first one was not fetched.
        """
        at = bisect.bisect_right(self._starts, offset) - 1
        skipped = offset - self._starts[at] if at >= 0 else -1
        if at < 0 or skipped >= self._buffers[at].size:
            raise LookupError(f"the bytes at {offset:,} were not fetched")
        if skipped + length <= self._buffers[at].size:
            return self._buffers[at].slice(skipped, length)
        pieces = [memoryview(self._buffers[at])[skipped:]]
        left = length - len(pieces[0])
        while left and at + 1 < len(self._starts) and self._starts[at + 1] == self._starts[at] + self._buffers[at].size:
            at += 1
            pieces.append(memoryview(self._buffers[at])[:left])
            left -= len(pieces[-1])
        return pa.py_buffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def in_memory_file(fetched: FetchedRanges) -> pa.PythonFile:
    """A file that has the fetched bytes where they were, and no others; for one thread, at any place.

    Reading ends where what was fetched ends, and is an `OSError` where nothing was. To be read without buffers
    (`pre_buffer`, `buffer_size`): those ask for more than the column chunks, and copy what they get.
    """

    def read(one: ByteRange) -> pa.Buffer:
        try:
            return fetched.read_up_to(*one)
        except LookupError as problem:
            raise OSError(str(problem)) from None

    return pa.PythonFile(_File(fetched.size, read), mode="r")


def file_as_needed(size: int, fetch: Callable[[ByteRange], pa.Buffer]) -> pa.PythonFile:
    """A file of which each range is fetched when it is read; for one thread, at any place.

    For who wants little of long column chunks, and cannot know how much: to be read by a buffer of the size that a
    request is to have.

    Args:
        size: Its bytes.
        fetch: Gives a range that lies in it. What it raises is raised where Arrow reads.
    """
    return pa.PythonFile(_File(size, lambda one: fetch(one) if one.length else pa.py_buffer(b"")), mode="r")


class _File:
    """What Arrow asks of a file of Python."""

    def __init__(self, size: int, read: Callable[[ByteRange], pa.Buffer]) -> None:
        self._size, self._read = size, read
        self._at = 0
        self.closed = False

    def seek(self, place: int, whence: int = 0) -> int:
        self._at = place + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> pa.Buffer:
        left = max(self._size - self._at, 0)
        data = self._read(ByteRange(self._at, min(size, left) if size >= 0 else left))
        self._at += data.size
        return data

    def close(self) -> None:
        self.closed = True
