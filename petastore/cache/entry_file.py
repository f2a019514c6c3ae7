"""The file of an entry: 64 bytes of header, and the payload.

```text
 0  8  petacch2          format and version
 8  8  length            bytes of the payload, little-endian, as all numbers are
16 16  digest            BLAKE2b of the key
32  4  slot              where the ledger notes its last use; a hint
36 20  zeros
56  8  checksum          XXH3 of the 56 bytes before and of the payload
```

None of it is believed: what does not fit its length, its key or its checksum is damaged, and is never served.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import struct
from pathlib import Path
from typing import NamedTuple

from petastore.cache.checksum import SIZE, checksum

__all__ = [
    "BLOCK",
    "HEADER",
    "DamagedEntryError",
    "Key",
    "MappedEntry",
    "digest_of",
    "map_entry",
    "size_on_disk",
    "write_all",
    "write_entry",
]

BLOCK = 4096
"""Disks are filled by blocks of so many bytes, so sizes are counted in them."""

_HEAD = struct.Struct("<8sQ16sI20s")
_MAGIC = b"petacch2"
_ZEROS = bytes(20)
_PAGES_AT_ONCE = mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0)
"""One by one, as they are touched, takes longer, and so does a mapping for writers; the memory is the page cache."""

HEADER = _HEAD.size + SIZE
"""Bytes before the payload, which is aligned to as many."""

_FOREIGN = (errno.ELOOP, errno.EISDIR, errno.ENXIO)


class Key(NamedTuple):
    """A key whose word is chosen: who announces a use may know the word before the rest, such as a version, is known.

    Any number of entries may have one word. They are needed when it is announced.
    """

    word: int
    """By what announcements know the entry: 64 bits, unlike those of other entries."""

    name: str
    """What the bytes are, with their version."""


class DamagedEntryError(Exception):
    """What lies there is not what was written under the key; it never leaves the cache."""


def digest_of(key: str | Key) -> bytes:
    """The 16 bytes by which a key is known on disk; announcements know it by the first eight.

    Example:
        >>> digest_of("part-0.parquet@7:3:image").hex()
        '7ec576680b1ee25df966f329bc028b61'
        >>> digest_of(Key(1, "part-0.parquet@7:3:image")).hex()
        '0100000000000000be8231110913ee6a'
    """
    if isinstance(key, Key):
        name = hashlib.blake2b(key.name.encode("utf-8", "surrogatepass"), digest_size=8)
        return key.word.to_bytes(8, "little") + name.digest()
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def size_on_disk(length: int) -> int:
    """What an entry with a payload of so many bytes counts: whole blocks.

    Example:
        >>> size_on_disk(4000), size_on_disk(4096)
        (4096, 8192)
    """
    return -(-(length + HEADER) // BLOCK) * BLOCK


class MappedEntry:
    """An entry that was found right, in memory that its file lends, or in a copy.

    Attributes:
        view: The payload, read-only.
        slot: As the header says.
    """

    __slots__ = ("_mapped", "slot", "view")

    def __init__(self, view: memoryview, mapped: mmap.mmap | None = None, *, slot: int = 0) -> None:
        self._mapped = mapped
        self.view = view
        self.slot = slot

    def close(self) -> None:
        """Gives the memory back, or leaves that to whoever still has a view of it."""
        try:
            self.view.release()
            if self._mapped is not None:
                self._mapped.close()
        except BufferError:
            pass


def map_entry(
    path: Path | str, digest: bytes, most: int, *, mapped: bool = True, into: memoryview | None = None
) -> MappedEntry | None:
    """The entry of that name, verified; None where there is no file.

    Args:
        path: Where.
        digest: That of the key.
        most: Bytes that a file may have; larger ones are damaged, and no memory is taken for them.
        mapped: Memory may be mapped, which keeps the file open; or else it is a copy.
        into: Memory into which a payload of just as many bytes is read, which the entry lends then; it is written to
            even where that turns out to be damaged.

    Raises:
        DamagedEntryError: It is not what was written under the key.
        OSError: It cannot be read.
    """
    try:
        # Not to follow links, nor to wait for the other end of what may be a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as problem:
        if problem.errno in _FOREIGN:
            raise DamagedEntryError("it is no file") from problem
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not HEADER <= found.st_size <= most:
            raise DamagedEntryError(f"it has {found.st_size:,} bytes")
        fits = into is not None and found.st_size == HEADER + len(into)
        if fits or not mapped:
            entry, head = _copied(fd, found.st_size, into if fits else None)
        else:
            entry, head = _mapped(fd, found.st_size)
    finally:
        os.close(fd)
    magic, length, of_key, entry.slot, _ = _HEAD.unpack_from(head)
    is_meant = magic == _MAGIC and of_key == digest and length == len(entry.view)
    if is_meant and checksum(head[: _HEAD.size], entry.view) == head[_HEAD.size :]:
        return entry
    entry.close()
    raise DamagedEntryError("it is not what was written under the key")


def _mapped(fd: int, size: int) -> tuple[MappedEntry, bytes]:
    mapped = mmap.mmap(fd, size, _PAGES_AT_ONCE, mmap.PROT_READ)
    return MappedEntry(memoryview(mapped)[HEADER:], mapped), mapped[:HEADER]


def _copied(fd: int, size: int, into: memoryview | None) -> tuple[MappedEntry, bytes]:
    head, payload = bytearray(HEADER), memoryview(bytearray(size - HEADER)) if into is None else into
    if os.preadv(fd, [head, payload], 0) != size:
        raise DamagedEntryError(f"it had {size:,} bytes, and has fewer by now")
    return MappedEntry(payload.toreadonly()), bytes(head)


def write_entry(fd: int, digest: bytes, slot: int, payload: memoryview) -> None:
    """Writes header and payload from the begin of an open file.

    Raises:
        OSError: The disk is full, or cannot be written.
    """
    head = _HEAD.pack(_MAGIC, len(payload), digest, slot, _ZEROS)
    write_all(fd, head + checksum(head, payload), 0)
    write_all(fd, payload, HEADER)


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Writes all of some bytes at a place of an open file, however many the system takes at a time."""
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, offset)
        left, offset = left[written:], offset + written
