"""Row groups decoded from ranges of bytes that lie in memory.

Arrow asks a file of Python once for each column chunk, and takes the answer as it is: a view of what was fetched. To
assemble a file in memory for it costs a copy, which takes about as long as decoding numbers does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.storage.ranges.fetch import FetchedRanges

__all__ = ["reader_of"]


def reader_of(fetched: FetchedRanges, metadata: Any, *, dictionaries: tuple[str, ...] = (), verify: bool = True) -> Any:
    """A `pyarrow.parquet.ParquetReader` of column chunks that were fetched; for one thread.

    What it reads does not keep the fetched bytes alive, but where Arrow's columns are views of uncompressed pages.

    Args:
        fetched: All bytes of the column chunks that are going to be read.
        metadata: The `pyarrow.parquet.FileMetaData` of the file.
        dictionaries: Paths of leaves that come as Arrow's dictionaries.
        verify: Whether checksums of pages are verified, where they have any.

    Raises:
        pa.ArrowException: The footer cannot be used; reading may raise the same, and `LookupError` for what was not
            fetched.
    """
    reader = pq.ParquetReader()
    reader.open(
        pa.PythonFile(_InMemory(fetched), mode="r"),
        metadata=metadata,
        read_dictionary=list(dictionaries),
        pre_buffer=False,
        page_checksum_verification=verify,
    )
    return reader


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
        length = min(size if size >= 0 else self._fetched.size, self._fetched.size - self._at)
        found = self._fetched.read(self._at, length)
        self._at += length
        return found

    def close(self) -> None:
        self.closed = True
