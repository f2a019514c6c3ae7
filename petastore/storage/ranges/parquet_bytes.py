"""Fetched ranges as the file that Arrow decodes Parquet from.

Arrow asks a file of Python once for each column chunk, and takes the answer as it is: a view of what was fetched. To
assemble a file in memory for it costs a copy, which takes about as long as decoding numbers does.
"""

from __future__ import annotations

import pyarrow as pa

from petastore.storage.ranges.fetch import FetchedRanges

__all__ = ["in_memory_file"]


def in_memory_file(fetched: FetchedRanges) -> pa.PythonFile:
    """A file that has the fetched bytes where they were, and no others; for one thread, at any place.

    Reading ends where what was fetched ends, and is an `OSError` where nothing was. To be read without buffers
    (`pre_buffer`, `buffer_size`): those ask for more than the column chunks, and copy what they get.
    """
    return pa.PythonFile(_InMemory(fetched), mode="r")


class _InMemory:
    """What Arrow asks of a file of Python."""

    def __init__(self, fetched: FetchedRanges) -> None:
        self._fetched = fetched
        self._at = 0
        self.closed = False

    def seek(self, place: int, whence: int = 0) -> int:
        self._at = place + (0, self._at, self._fetched.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> pa.Buffer:
        try:
            found = self._fetched.read_up_to(self._at, size if size >= 0 else self._fetched.size)
        except LookupError as problem:
            raise OSError(str(problem)) from None
        self._at += found.size
        return found

    def close(self) -> None:
        self.closed = True
