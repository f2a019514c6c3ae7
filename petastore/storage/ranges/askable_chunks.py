"""Column chunks that Arrow may be asked about: it ends the process where a footer says that one of them is encrypted.

`RowGroupMetaData.column` does not expect what it calls to raise. What reads a chunk makes the same of the footer, and
tells what is wrong: so it reads each chunk once, of a file without any bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import DecodeError
from petastore.inventory import DataFile

__all__ = ["refuse_unaskable_chunks"]

_SIZE = 1 << 62
"""Bytes that the file seems to have: what lies beyond the real one's end is found, and told, by who asks for it."""

_STREAM_BYTES = 1024


def refuse_unaskable_chunks(metadata: Any, ordinals: Sequence[int], leaves: Sequence[int], file: DataFile) -> None:
    """Refuse column chunks that Arrow cannot be asked about.

    Args:
        metadata: The `pyarrow.parquet.FileMetaData`.
        ordinals: Row groups, from 0.
        leaves: Numbers of leaf columns.
        file: The file, for messages.

    Raises:
        DecodeError: One is encrypted, or damaged so that Arrow makes nothing of it.
    """
    if not ordinals or not leaves or _problem(metadata, ordinals, leaves) is None:
        return
    for ordinal in ordinals:
        for leaf in leaves:
            problem = _problem(metadata, [ordinal], [leaf])
            if problem is not None:
                raise DecodeError(
                    f"the footer is damaged: {problem}",
                    column=metadata.schema.column(leaf).path.partition(".")[0],
                    file=file.path,
                    row_group=ordinal,
                )


def _problem(metadata: Any, ordinals: Sequence[int], leaves: Sequence[int]) -> Exception | None:
    """Why Arrow did not come so far as to ask for the bytes of all of them."""
    nothing = _Nothing()
    try:
        with contextlib.closing(pa.PythonFile(nothing, mode="r")) as source:
            reader = pq.ParquetReader()
            reader.open(source, metadata=metadata, pre_buffer=False, buffer_size=_STREAM_BYTES)
            reader.read_row_groups(list(ordinals), column_indices=list(leaves), use_threads=False)
    except (pa.ArrowException, OSError) as problem:
        if nothing.times < len(ordinals) * len(leaves):
            return problem
    return None


class _Nothing:
    """A file that seems to have very many bytes, and gives none."""

    def __init__(self) -> None:
        self.times = 0
        self.closed = False
        self._at = 0

    def seek(self, place: int, whence: int = 0) -> int:
        self._at = place + (0, self._at, _SIZE)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, _: int) -> bytes:
        self.times += 1
        return b""

    def close(self) -> None:
        self.closed = True
