"""The ledger's table: a row for each entry, in one file of a size that is known before anything is kept.

It is read through memory, which all processes share, and written by `pwrite`: a full disk is an error that way, and no
signal. Columns lie one after the other, so that what concerns all entries is one operation on vectors. A row is one of:

```text
FREE     0   nothing, and counts nothing
KEPT     1   a file under `entries`
WRITING  2   reserved by whoever holds the lock on the file of that name under `writing`
FUTURE   3   a file under `futures`
LEAVING  <0  about to be removed; the number tells who is at it
```

Rows are written by who holds the ledger's lock. The last use alone is written by anybody at any time: it says what
goes first, and nothing else follows from it. A row's size and state have a check, so that a table in which a byte is
wrong is found out when it is opened, as is one whose writer was killed halfway through a row.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from petastore.cache.entry_file import BLOCK, write_all

__all__ = ["FREE", "FUTURE", "KEPT", "WRITING", "DamagedTableError", "Rows", "Table", "slots_for", "table_bytes"]

FREE, KEPT, WRITING, FUTURE = 0, 1, 2, 3

_HEAD = struct.Struct("<8sQQ")  # magic, slots, limit
_CHECK = struct.Struct("<I")
_ROWS = struct.Struct("<Q")
_ROWS_AT = 64
_MAGIC = b"petaldg1"
_COLUMNS = (("digest", 16), ("size", 8), ("state", 8), ("check", 8), ("used", 8))
_ROW = sum(width for _, width in _COLUMNS)
_FEWEST, _MOST = 64, 1 << 20
_BYTES_OF_AN_ENTRY = 16 * 1024
_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of a table by columns, which have shape (rows,); `digest` has (rows, 2)."""

    digest: NDArray[np.uint64]
    """Under which name."""

    size: NDArray[np.int64]
    """Bytes that each counts."""

    state: NDArray[np.int64]
    """What each is."""

    used: NDArray[np.int64]
    """Nanoseconds since 1970 of the last use."""

    def __len__(self) -> int:
        return len(self.size)

    def __getitem__(self, which: NDArray[np.int64]) -> Rows:
        """Some of them."""
        return Rows(self.digest[which], self.size[which], self.state[which], self.used[which])


class DamagedTableError(Exception):
    """The table is none, or is damaged; it never leaves the cache.

    Attributes:
        limit: The limit that it has, where its header is right.
    """

    def __init__(self, problem: str, limit: int | None = None) -> None:
        super().__init__(problem)
        self.limit = limit


def slots_for(limit: int) -> int:
    """Entries that a cache of so many bytes may have: one for each 16 KiB, 64 at least and 1,048,576 at most.

    Example:
        >>> slots_for(1 << 30), slots_for(1 << 60)
        (65536, 1048576)
    """
    return min(max(limit // _BYTES_OF_AN_ENTRY, _FEWEST), _MOST)


def table_bytes(slots: int) -> int:
    """The size of the table's file: 48 bytes a slot.

    Example:
        >>> table_bytes(65536)
        3149824
    """
    return -(-(BLOCK + _ROW * slots) // BLOCK) * BLOCK


class Table:
    """A table that is open. Reading is safe from any thread; the ledger says who may write.

    Attributes:
        slots: Rows at most.
        limit: Bytes that all files of the cache may have.
        identity: Device and number of its file.
    """

    digest: NDArray[np.uint64]
    """Shape (slots, 2), read-only and shared, as are the others of shape (slots,)."""

    size: NDArray[np.int64]
    """Bytes that each row counts."""

    state: NDArray[np.int64]
    """What each row is."""

    check: NDArray[np.uint64]
    """Over digest, size and state."""

    used: NDArray[np.int64]
    """Nanoseconds since 1970 of the last use."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        found = os.fstat(fd)
        self.identity = (found.st_dev, found.st_ino)
        head = os.pread(fd, _HEAD.size + _CHECK.size, 0)
        if len(head) < _HEAD.size + _CHECK.size or _CHECK.unpack(head[_HEAD.size :])[0] != zlib.crc32(
            head[: _HEAD.size]
        ):
            raise DamagedTableError("it has no header")
        magic, self.slots, self.limit = _HEAD.unpack(head[: _HEAD.size])
        if magic != _MAGIC or not 0 < self.slots <= _MOST or found.st_size != table_bytes(self.slots):
            raise DamagedTableError("its header is another's")
        self._mapped = mmap.mmap(fd, found.st_size, mmap.MAP_SHARED, mmap.PROT_READ)
        self._offsets: dict[str, int] = {}
        offset = BLOCK
        for name, width in _COLUMNS:
            kind = np.dtype("<u8" if name in ("digest", "check") else "<i8")
            column = np.frombuffer(self._mapped, kind, self.slots * width // 8, offset)
            setattr(self, name, column.reshape(self.slots, 2) if name == "digest" else column)
            self._offsets[name] = offset
            offset += width * self.slots
        self._rows = np.frombuffer(self._mapped, np.dtype("<u8"), 1, _ROWS_AT)

    @classmethod
    def open(cls, path: Path) -> Self:
        """The table of that name; the caller holds the ledger's lock.

        Raises:
            DamagedTableError: There is none that can be trusted.
            OSError: It cannot be opened.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError as problem:
            raise DamagedTableError("there is none") from problem
        table = cls(fd)
        table._verify()
        return table

    @classmethod
    def create(cls, path: Path, limit: int, rows: Rows) -> Self:
        """A table of some rows, in the place of none; its disk space is taken now.

        Raises:
            OSError: It cannot be written; nothing is left of it.
        """
        slots = slots_for(limit)
        head = _HEAD.pack(_MAGIC, slots, limit)
        columns = (rows.digest, rows.size, rows.state, check_of(rows.digest, rows.size, rows.state), rows.used)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, table_bytes(slots))
            offset = BLOCK
            for (_, width), column in zip(_COLUMNS, columns, strict=True):
                write_all(fd, column.tobytes(), offset)
                offset += width * slots
            write_all(fd, _ROWS.pack(len(rows)), _ROWS_AT)
            write_all(fd, head + _CHECK.pack(zlib.crc32(head)), 0)
        except BaseException:
            path.unlink()
            os.close(fd)
            raise
        return cls(fd)

    def __del__(self) -> None:
        # Never sooner: a thread may be about to note a use, and the number of a closed file is soon another file's.
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    @property
    def rows(self) -> int:
        """All rows from here on are free."""
        return min(int(self._rows[0]), self.slots)

    @property
    def room(self) -> int:
        """Bytes that rows may count together."""
        return self.limit - table_bytes(self.slots)

    @property
    def counted(self) -> int:
        """Bytes that rows count together."""
        return int(self.size[: self.rows].sum())

    def find(self, digest: bytes) -> list[int]:
        """The rows under a digest, free ones left out."""
        first, second = words_of(digest)
        rows = self.rows
        found = np.flatnonzero(self.digest[:rows, 0] == np.uint64(first)).tolist()
        return [slot for slot in found if int(self.digest[slot, 1]) == second and self.state[slot] != FREE]

    def name(self, slot: int) -> str:
        """The name of a row's file."""
        return self.digest[slot].tobytes().hex()

    def take(self, digest: bytes, size: int, state: int, used: int) -> int | None:
        """Makes a row of a free one; None where none is free."""
        rows = self.rows
        free = self.state[:rows] == FREE
        slot = int(free.argmax()) if free.any() else rows
        if slot >= self.slots:
            return None
        if slot == rows:
            write_all(self._fd, _ROWS.pack(rows + 1), _ROWS_AT)
        self._put("size", slot, size)  # before all others: what is counted may be too much, and never too little
        write_all(self._fd, digest, self._offsets["digest"] + 16 * slot)
        self._put("used", slot, used)
        self.set_state(slot, state)
        return slot

    def set_state(self, slot: int, state: int) -> None:
        """Makes another thing of a row."""
        sign = check_of(self.digest[slot : slot + 1], self.size[slot : slot + 1], np.array([state]))
        write_all(self._fd, sign.tobytes(), self._offsets["check"] + 8 * slot)
        self._put("state", slot, state)

    def free(self, slot: int) -> None:
        """Makes a row count nothing; its file is gone."""
        self._put("state", slot, FREE)
        self._put("size", slot, 0)

    def note_use(self, slot: int, used: int) -> None:
        """Notes when an entry was last used; without the lock."""
        self._put("used", slot, used)

    def is_row_of(self, slot: int, digest: bytes) -> bool:
        """Whether a row is, or was, that of a digest."""
        at = self._offsets["digest"] + 16 * slot
        return slot < self.slots and self._mapped[at : at + 16] == digest

    def _put(self, column: str, slot: int, value: int) -> None:
        os.pwrite(self._fd, value.to_bytes(8, "little", signed=True), self._offsets[column] + 8 * slot)

    def _verify(self) -> None:
        rows = int(self._rows[0])
        if rows > self.slots or self.state[rows:].any() or self.size[rows:].any():
            raise DamagedTableError("it has more rows than it says", self.limit)
        size, state = self.size[:rows], self.state[:rows]
        wrong = (check_of(self.digest[:rows], size, state) != self.check[:rows]) & (state != FREE)
        if wrong.any() or size[state == FREE].any() or ((size < 0) | (size > self.limit)).any():
            raise DamagedTableError("a row is wrong", self.limit)


def words_of(digest: bytes) -> tuple[int, int]:
    """A digest as two words."""
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def check_of(digest: NDArray[np.uint64], size: NDArray[np.int64], state: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The check of each row: any change of one of its words changes it."""
    check = digest[:, 0] * np.uint64(_MIX[0]) + digest[:, 1] * np.uint64(_MIX[1])
    check += size.astype(np.uint64) * np.uint64(_MIX[2])
    check += state.astype(np.uint64) * np.uint64(_MIX[3])
    return check
