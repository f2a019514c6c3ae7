"""Many archives inflated by one call, without the interpreter lock.

zlib's own calls inflate one cell each, let go of the interpreter lock, and queue for it again: two threads then spend a
third of their time on that. So whole gzip files are inflated. A gzip file is members end to end, and a member is a
deflate stream between a header and a checksum, of which the header may have an extra field of any content. So archives
end to end become a gzip file where 20 bytes after each stream are overwritten:

```text
zip   local header            | stream | directory, end records, local header            | stream | …
gzip  header, extra field ····| stream | checksum, size · header, extra field ···········| stream | …
```

The sizes that archives declare are checked before memory is taken, and each stream is checked to be as long and have
the checksum that its archive says. Whatever differs from what NumPy writes, or is damaged, is left to
`petastore.codecs.arrays.npz`, which knows all of the format and says what is wrong.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrays.gzip_content import GzipError, gzip_content_by
from petastore.codecs.arrays.npz import MOST_EXPANSION, NpzError, first_member, head_dtype
from petastore.codecs.arrow.arrow_views import ByteCells

__all__ = ["inflated_together"]

_STORED_BYTES = 2 * 1024 * 1024
"""Bytes of archives that are laid end to end."""

_INFLATED_BYTES = 512 * 1024
"""Bytes that are inflated by one call: many cells, and few enough to be copied on while they are in the cache."""

_LARGE_CELL = 1024 * 1024
"""Larger cells are inflated one by one: the calls are long then, and memory for several of them is a lot."""

_HEADER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff"
"""Of a gzip member with an extra field, up to the size of that."""

_BETWEEN = np.dtype([("checksum", "<u4"), ("size", "<u4"), ("header", f"V{len(_HEADER)}"), ("extra_size", "<u2")])
"""What stands between two streams, before the content of the extra field."""

_VARYING = ("time", "checksum", "stored_size", "size")
"""What is different from archive to archive in a local header."""

_EXTRA_AT = len(_HEADER) + 2
"""Where the content of the extra field begins in a member."""


class _Scratch(threading.local):
    """Memory of each thread that is inflated into again and again: fresh memory costs as much as a copy of it."""

    memory: NDArray[np.uint8] = np.empty(0, np.uint8)

    def of(self, size: int) -> NDArray[np.uint8]:
        if len(self.memory) < size:
            self.memory = np.empty(size, np.uint8)
        return self.memory[:size]


_archives, _contents = _Scratch(), _Scratch()


def inflated_together(cells: Sequence[NDArray[np.uint8]], most: int | None) -> Iterator[tuple[slice, ByteCells | None]]:
    """The `.npy` bytes in archives, some at a time; thread-safe.

    Args:
        cells: The archives.
        most: As in `petastore.codecs.arrays.npz.member_of`.

    Yields:
        Which cells, and their content in memory that is valid until the next ones are asked for; None where they have
        to be inflated one by one, for what they are or because one of them is damaged.
    """
    if len(cells) == 0:
        return
    for where in _pieces(np.fromiter(map(len, cells), np.int64, len(cells)), _STORED_BYTES):
        members = _gzip_members(cells[where], most)
        if members is None:
            yield where, None
            continue
        for part in _pieces(members.sizes, _INFLATED_BYTES):
            yield slice(where.start + part.start, where.start + part.stop), members.inflated(part)


def _pieces(sizes: NDArray[np.int64], size: int) -> list[slice]:
    """Pieces of less than `size` bytes and another cell."""
    numbers = (np.cumsum(sizes) - sizes) // size
    borders = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(sizes)]
    return [slice(first, stop) for first, stop in itertools.pairwise(borders)]


class _GzipMembers:
    """Gzip members end to end.

    Args:
        memory: All of them.
        ends: Where each ends, shape (cells,).
        sizes: Bytes of the content of each, shape (cells,).
    """

    def __init__(self, memory: Any, ends: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self._memory = pa.py_buffer(memory)
        self._borders = [0, *ends.tolist()]
        self.sizes = sizes

    def inflated(self, where: slice) -> ByteCells | None:
        """The content of some of them in memory of this thread; None where a stream is not what its archive says."""
        sizes = self.sizes[where]
        ends = np.cumsum(sizes)
        size = int(ends[-1])
        first, stop = self._borders[where.start], self._borders[where.stop]
        # The last checksum is looked at when somebody asks for what comes after it.
        content = _contents.of(size + 1)
        try:
            found = gzip_content_by()(self._memory[first:stop], content)
        except GzipError:
            return None
        return ByteCells(content[:size], ends - sizes, sizes) if found == size else None


def _gzip_members(cells: Sequence[NDArray[np.uint8]], most: int | None) -> _GzipMembers | None:
    """The archives as gzip members; None where they are not alike, or not as NumPy writes them."""
    try:
        first = first_member(cells[0])
    except NpzError:
        return None
    if first is None or not first.is_deflated or first.size > _LARGE_CELL:
        return None
    stored = np.fromiter(map(len, cells), np.int64, len(cells))
    if int(stored.min()) < first.start or int(stored.max()) > _LARGE_CELL:
        return None
    ends = np.cumsum(stored)
    starts, memory = ends - stored, _archives.of(int(ends[-1]))
    _lay(cells, ends, memory)
    heads = _items(memory, f"V{first.start}")[starts].view(
        head_dtype(first.start, in_zip64=first.in_zip64, names=_VARYING)
    )
    checksums, sizes, in_stream = (heads[name].copy() for name in ("checksum", "size", "stored_size"))
    for name in heads.dtype.names or ():
        heads[name] = 0
    if heads.tobytes() != heads[0].tobytes() * len(heads):
        return None
    if int(sizes.max()) > (_LARGE_CELL if most is None else min(_LARGE_CELL, most)) or (in_stream > stored).any():
        return None
    sizes, in_stream = sizes.astype(np.int64), in_stream.astype(np.int64)
    after = stored - first.start - in_stream
    is_between = (after >= _BETWEEN.itemsize) & (after + first.start < 2**16)
    if not (is_between & (sizes <= (in_stream + 1) * MOST_EXPANSION)).all():
        return None
    between = np.empty(len(cells), _BETWEEN)
    between["checksum"], between["size"] = checksums, sizes
    between["header"] = np.void(_HEADER)
    between["extra_size"] = after + first.start - _BETWEEN.itemsize
    stream_ends = starts + first.start + in_stream
    _items(memory, f"V{_BETWEEN.itemsize}")[stream_ends] = between.view(f"V{_BETWEEN.itemsize}")
    memory[:_EXTRA_AT] = np.frombuffer(_HEADER + (first.start - _EXTRA_AT).to_bytes(2, "little"), np.uint8)
    return _GzipMembers(memory, stream_ends + 8, sizes)


def _lay(cells: Sequence[NDArray[np.uint8]], ends: NDArray[np.int64], memory: NDArray[np.uint8]) -> None:
    # numpy.concatenate would let go of the interpreter lock, and queue for it, for each cell.
    out, first = memory.data, 0
    for cell, end in zip(cells, ends.tolist(), strict=True):
        out[first:end] = cell.data
        first = end


def _items(memory: NDArray[np.uint8], dtype: str) -> NDArray[Any]:
    """The memory as items of several bytes, of which one begins at each byte."""
    kind = np.dtype(dtype)
    return np.ndarray((len(memory) - kind.itemsize + 1,), kind, memory.data, 0, (1,))
