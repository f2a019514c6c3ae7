"""Announced futures in files, so that all processes that share a cache see them.

```text
 0  8  petaftr3
 8 24  entries, uses, positions    how many
32  8  checksum          of the 32 bytes before and of what follows the header
40  8  position          how many positions are over; written as the reader moves on
48  8  begun             how many were begun, these included; as well
56  8  zeros
64     words, uses       as `Future` has them
```

The living reader holds the lock on its file. Where nobody holds it, the reader is dead and its future is none.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from petastore.cache.checksum import SIZE, checksum
from petastore.cache.uses.next_use import Future

__all__ = ["FutureFile", "future_bytes", "note_position", "open_futures", "uses_within"]

_HEAD = struct.Struct("<8sQQQ")
_MAGIC = b"petaftr3"
_POSITION_AT = 40
_POSITIONS = struct.Struct("<QQ")
_HEADER = 64


def future_bytes(future: Future) -> memoryview:
    """The file of a future of which nothing has passed.

    Example:
        >>> len(future_bytes(Future.of(np.array([5, 6], np.uint64), np.array([0, 1, 0]))))
        104
    """
    head = _HEAD.pack(_MAGIC, len(future.words), len(future.uses), future.length)
    body = memoryview(future.words.astype("<u8").tobytes() + future.uses.astype("<u8").tobytes())
    return memoryview((head + checksum(head, body)).ljust(_HEADER, b"\0") + body)


def uses_within(size: int) -> int:
    """How many uses a file of so many bytes has room for, if each is of another entry.

    Example:
        >>> uses_within(1 << 20)
        65532
    """
    return max(size - _HEADER, 0) // 16


def note_position(fd: int, position: int, begun: int) -> None:
    """Writes down how many positions are over, and how many were begun."""
    os.pwrite(fd, _POSITIONS.pack(position, begun), _POSITION_AT)


class FutureFile:
    """The future of a reader, of this process or another.

    Args:
        path: Its file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        size = os.fstat(self._fd).st_size
        header = os.pread(self._fd, _HEADER, 0)
        if len(header) != _HEADER:
            raise ValueError("it has no header")
        magic, entries, uses, length = _HEAD.unpack(header[: _HEAD.size])
        if magic != _MAGIC or size != _HEADER + 8 * (entries + uses):
            raise ValueError("its header is another's")
        self._mapped = mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        body = memoryview(self._mapped)[_HEADER:]
        if checksum(header[: _HEAD.size], body) != header[_HEAD.size : _HEAD.size + SIZE]:
            raise ValueError("its checksum is wrong")
        words = np.frombuffer(body, np.dtype("<u8"))
        self.future = Future(words[:entries], words[entries:], length)
        self._position = np.frombuffer(self._mapped, np.dtype("<u8"), 2, _POSITION_AT)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            os.close(fd)

    @property
    def position(self) -> int:
        """Positions that are over."""
        return min(int(self._position[0]), self.future.length)

    @property
    def begun(self) -> int:
        """Positions that its reader has begun."""
        return min(int(self._position[1]), self.future.length)

    @property
    def is_living(self) -> bool:
        """Whether its reader holds the lock."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False


def open_futures(folder: Path, names: Iterable[str]) -> list[FutureFile]:
    """The futures of some names; those that are gone or damaged are left out."""
    found = []
    for name in names:
        try:
            found.append(FutureFile(folder / name))
        except (OSError, ValueError):
            continue
    return found
