"""Ledger table of the cache: one row for each cache file, memory-mapped.

The file has a fixed size. The table is read through a memory map and written by `pwrite`, so that a full disk raises an
error instead of a signal. Each column is stored contiguously, so that operations on all entries are vectorized. A row
has one of these states:

```text
FREE     0   unused; counts no bytes
KEPT     1   a file under `entries`
WRITING  2   reserved by the process that holds the lock on the file of this name under `writing`
FUTURE   3   a file under `futures`
LEAVING  <0  being removed; the number identifies this removal
```

A process may write rows only while it holds the ledger's lock. Any process may write the time of last use of an entry
at any time, because this time only affects the eviction order. A checksum covers size and state of each row. When a
process opens the table, the checksum detects damaged bytes, and rows that a killed process wrote only partly.
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

from petastore.cache.entry_file import BLOCK, blocks, write_all

__all__ = ["FREE", "FUTURE", "KEPT", "WRITING", "DamagedTableError", "Rows", "Table", "slots_for", "table_bytes"]

FREE, KEPT, WRITING, FUTURE = 0, 1, 2, 3

_HEAD = struct.Struct("<8sQQ")  # header: magic, slots, limit
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
    """Digest that names the file of each row."""

    size: NDArray[np.int64]
    """Bytes counted for each row."""

    state: NDArray[np.int64]
    """State of each row."""

    used: NDArray[np.int64]
    """Time of each entry's last use, in nanoseconds since 1970."""

    def __len__(self) -> int:
        return len(self.size)

    def __getitem__(self, which: NDArray[np.int64]) -> Rows:
        """Return a subset of the rows."""
        return Rows(self.digest[which], self.size[which], self.state[which], self.used[which])


class DamagedTableError(Exception):
    """The file is not a table, or is damaged. Caught inside the cache.

    Attributes:
        limit: Limit of the cache, if the header is valid.
    """

    def __init__(self, problem: str, limit: int | None = None) -> None:
        super().__init__(problem)
        self.limit = limit


def slots_for(limit: int) -> int:
    """Return the maximum number of entries of a cache with this limit.

    This is one entry per 16 KiB of the limit, but at least 64 and at most 1,048,576 entries.

    Example:
        >>> slots_for(1 << 30), slots_for(1 << 60)
        (65536, 1048576)
    """
    return min(max(limit // _BYTES_OF_AN_ENTRY, _FEWEST), _MOST)


def table_bytes(slots: int) -> int:
    """Return the size of the table's file in bytes, for at most `slots` entries.

    Example:
        >>> table_bytes(65536)
        3149824
    """
    return blocks(BLOCK + _ROW * slots)


class Table:
    """Open table of the ledger, with one row (slot) for each cache file.

    All processes share it. Any thread may read it; only a thread that holds the ledger's lock may write.

    Attributes:
        slots: Maximum number of rows.
        limit: Maximum total bytes of all cache files.
        identity: Device and inode number of its file.
    """

    digest: NDArray[np.uint64]
    """Digest of each row, shape (slots, 2); all other columns have shape (slots,).

    All columns are read-only shared memory.
    """

    size: NDArray[np.int64]
    """Bytes counted for each row."""

    state: NDArray[np.int64]
    """State of each row."""

    check: NDArray[np.uint64]
    """Checksum of digest, size and state of each row."""

    used: NDArray[np.int64]
    """Time of each entry's last use, in nanoseconds since 1970."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        found = os.fstat(fd)
        self.identity = (found.st_dev, found.st_ino)
        head = os.pread(fd, _HEAD.size + _CHECK.size, 0)
        if len(head) < _HEAD.size + _CHECK.size or _CHECK.unpack(head[_HEAD.size :])[0] != zlib.crc32(
            head[: _HEAD.size]
        ):
            raise DamagedTableError("the ledger file of the cache has no valid header; petastore builds it again")
        magic, self.slots, self.limit = _HEAD.unpack(head[: _HEAD.size])
        if magic != _MAGIC or not 0 < self.slots <= _MOST or found.st_size != table_bytes(self.slots):
            raise DamagedTableError(
                "the header of the cache's ledger file has another format; petastore builds the file again"
            )
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
        """Open the table at a path; the caller holds the ledger's lock.

        Raises:
            DamagedTableError: The file is missing, is not a table or is damaged.
            OSError: The file cannot be opened.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError as problem:
            raise DamagedTableError(f"the cache has no ledger file {path}; petastore creates it") from problem
        table = cls(fd)
        table._verify()
        return table

    @classmethod
    def create(cls, path: Path, limit: int, rows: Rows) -> Self:
        """Create a table with these rows, and allocate its disk space.

        Raises:
            OSError: The file cannot be written; it is removed again.
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
        # The file is closed only here: a thread may still record a use, and another file may reuse the descriptor.
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    @property
    def rows(self) -> int:
        """Number of rows that were ever used; all later rows are free."""
        return min(int(self._rows[0]), self.slots)

    @property
    def room(self) -> int:
        """Maximum total bytes of all entries.

        This is the limit of the cache, minus the size of the table itself.
        """
        return self.limit - table_bytes(self.slots)

    @property
    def counted(self) -> int:
        """Total bytes of all cache files, as recorded in the rows."""
        return int(self.size[: self.rows].sum())

    def find(self, digest: bytes) -> list[int]:
        """Return the numbers of the rows with this digest that are in use."""
        first, second = words_of(digest)
        rows = self.rows
        found = np.flatnonzero(self.digest[:rows, 0] == np.uint64(first)).tolist()
        return [slot for slot in found if int(self.digest[slot, 1]) == second and self.state[slot] != FREE]

    def name(self, slot: int) -> str:
        """Return the file name of a row."""
        return self.digest[slot].tobytes().hex()

    def take(self, digest: bytes, size: int, state: int, used: int) -> int | None:
        """Fill a free row and return its number; None if all rows are in use."""
        rows = self.rows
        free = self.state[:rows] == FREE
        slot = int(free.argmax()) if free.any() else rows
        if slot >= self.slots:
            return None
        if slot == rows:
            write_all(self._fd, _ROWS.pack(rows + 1), _ROWS_AT)
        # Write the size first, so that a crash in between cannot make the number of counted bytes too small.
        self._put("size", slot, size)
        write_all(self._fd, digest, self._offsets["digest"] + 16 * slot)
        self._put("used", slot, used)
        self.set_state(slot, state)
        return slot

    def set_state(self, slot: int, state: int) -> None:
        """Set the state of a row."""
        sign = check_of(self.digest[slot : slot + 1], self.size[slot : slot + 1], np.array([state]))
        write_all(self._fd, sign.tobytes(), self._offsets["check"] + 8 * slot)
        self._put("state", slot, state)

    def free(self, slot: int) -> None:
        """Free a row whose file was removed."""
        self._put("state", slot, FREE)
        self._put("size", slot, 0)

    def note_use(self, slot: int, used: int) -> None:
        """Record when an entry was last used, without the lock."""
        self._put("used", slot, used)

    def is_row_of(self, slot: int, digest: bytes) -> bool:
        """Return whether a row has this digest, or had it before the row was freed."""
        at = self._offsets["digest"] + 16 * slot
        return slot < self.slots and self._mapped[at : at + 16] == digest

    def _put(self, column: str, slot: int, value: int) -> None:
        os.pwrite(self._fd, value.to_bytes(8, "little", signed=True), self._offsets[column] + 8 * slot)

    def _verify(self) -> None:
        rows = int(self._rows[0])
        if rows > self.slots or self.state[rows:].any() or self.size[rows:].any():
            raise DamagedTableError(
                "the ledger file of the cache has more rows than its header declares; petastore builds it again",
                self.limit,
            )
        size, state = self.size[:rows], self.state[:rows]
        wrong = (check_of(self.digest[:rows], size, state) != self.check[:rows]) & (state != FREE)
        if wrong.any() or size[state == FREE].any() or ((size < 0) | (size > self.limit)).any():
            raise DamagedTableError(
                "the checksum of a row in the cache's ledger file does not match; petastore builds the file again",
                self.limit,
            )


def words_of(digest: bytes) -> tuple[int, int]:
    """Split a 128-bit digest into two 64-bit integers."""
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def check_of(digest: NDArray[np.uint64], size: NDArray[np.int64], state: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the checksum of each row."""
    check = digest[:, 0] * np.uint64(_MIX[0]) + digest[:, 1] * np.uint64(_MIX[1])
    check += size.astype(np.uint64) * np.uint64(_MIX[2])
    check += state.astype(np.uint64) * np.uint64(_MIX[3])
    return check
