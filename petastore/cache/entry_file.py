"""Cache entry file: a header of 64 bytes, and the payload.

```text
 0  8  petacch2          format and version
 8  8  length            bytes of the payload, little-endian, as all numbers are
16 16  digest            BLAKE2b of the key
32  4  slot              row of the ledger with the last use of the entry; may be out of date
36 20  zeros
56  8  checksum          XXH3 of the 56 bytes before and of the payload
```

Every field is verified: an entry whose length, key or checksum does not match is damaged and is never returned.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import struct
from pathlib import Path
from typing import Any, NamedTuple, Self

import xxhash

__all__ = [
    "BLOCK",
    "HEADER",
    "MAPPED_BYTES",
    "SIZE",
    "DamagedEntryError",
    "Entry",
    "Key",
    "blocks",
    "checksum",
    "digest_of",
    "map_entry",
    "size_on_disk",
    "write_all",
    "write_entry",
]

SIZE = 8
"""Bytes of a checksum."""

BLOCK = 4096
"""Block size of file systems in bytes: sizes on disk are rounded up to blocks."""

_HEAD = struct.Struct("<8sQ16sI20s")
_MAGIC = b"petacch2"
_ZEROS = bytes(20)
_PAGES_AT_ONCE = mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0)
"""Flags of the memory map, so that it maps all pages at once and is private.

Single page faults and writable maps are slower.
"""

HEADER = _HEAD.size + SIZE
"""Size of the header in bytes; the payload is aligned to the same number."""

MAPPED_BYTES = 512 * 1024
"""Smallest file that is memory-mapped; smaller files are copied.

For small files, mmap is slower: it holds the GIL and the kernel's memory lock.
"""

_FOREIGN = (errno.ELOOP, errno.EISDIR, errno.ENXIO)


def checksum(head: bytes, data: memoryview) -> bytes:
    """Return the XXH3 checksum (64 bits) of a header and the data after it.

    It is not cryptographic.

    Args:
        head: The first bytes.
        data: C-contiguous bytes, of any length.

    Example:
        >>> checksum(b"ab", memoryview(b"cd")).hex() == checksum(b"a", memoryview(b"bcd")).hex()
        True
    """
    digest = xxhash.xxh3_64(head)
    digest.update(data)
    return digest.digest()


class Key(NamedTuple):
    """Key of an entry, with a 64-bit hash for announcements.

    The hash (`word`) can be announced before the complete key is known. For example, it does not depend on the file
    version. An announcement of the hash applies to each entry with this hash.
    """

    word: int
    """64-bit hash that identifies the entry in announcements."""

    name: str
    """Complete key of the entry, including the version of the bytes."""


class DamagedEntryError(Exception):
    """An entry file differs from what was written. Caught inside the cache."""


def digest_of(key: str | Key) -> bytes:
    """Return the 16-byte digest of a key, which names the entry's file.

    Announcements use the first 8 bytes.

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


def blocks(size: int) -> int:
    """Round a size in bytes up to whole disk blocks.

    Example:
        >>> blocks(1), blocks(8192)
        (4096, 8192)
    """
    return -(-size // BLOCK) * BLOCK


def size_on_disk(length: int) -> int:
    """Return the disk usage of an entry in bytes, given the size of its payload.

    Example:
        >>> size_on_disk(4000), size_on_disk(4096)
        (4096, 8192)
    """
    return blocks(length + HEADER)


class Entry:
    """Bytes of a cache entry, from its verified file or fetched by this process.

    The bytes of a file are memory-mapped or copied.

    Attributes:
        view: The payload, read-only.
        slot: Number of the entry's row in the ledger's table, from the header.
    """

    __slots__ = ("_mapped", "slot", "view")

    def __init__(self, view: memoryview, mapped: mmap.mmap | None = None, *, slot: int = 0) -> None:
        self._mapped = mapped
        self.view = view
        self.slot = slot

    @classmethod
    def of(cls, data: Any) -> Self:
        """Return an entry with the bytes of a fetched C-contiguous buffer."""
        return cls(memoryview(data).cast("B").toreadonly())

    def close(self) -> None:
        """Release the memory; if views are in use, the last one releases it."""
        try:
            self.view.release()
            if self._mapped is not None:
                self._mapped.close()
        except BufferError:
            pass


def map_entry(path: Path | str, digest: bytes, most: int, *, mapped: bool = True) -> Entry | None:
    """Read and verify an entry file; return None if it is missing.

    Args:
        path: Path of the entry file.
        digest: Digest of the key.
        most: Maximum file size in bytes; a larger file is damaged, and no memory is allocated for it.
        mapped: Whether a large entry may be memory-mapped, which keeps the file open; otherwise it is copied.

    Raises:
        DamagedEntryError: The content differs from what was written under the key.
        OSError: The file cannot be read.
    """
    try:
        # Do not follow links, nor block on a pipe without a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as problem:
        if problem.errno in _FOREIGN:
            raise DamagedEntryError(f"the cache entry {path} is not a file; its data is fetched again") from problem
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not HEADER <= found.st_size <= most:
            raise DamagedEntryError(
                f"the cache entry {path} must be a file of {HEADER:,} to {most:,} bytes, got {found.st_size:,} bytes; "
                "its data is fetched again"
            )
        is_mapped = mapped and found.st_size >= MAPPED_BYTES
        entry, head = _mapped(fd, found.st_size) if is_mapped else _copied(fd, found.st_size)
    finally:
        os.close(fd)
    magic, length, of_key, entry.slot, _ = _HEAD.unpack_from(head)
    is_meant = magic == _MAGIC and of_key == digest and length == len(entry.view)
    if is_meant and checksum(head[: _HEAD.size], entry.view) == head[_HEAD.size :]:
        return entry
    entry.close()
    raise DamagedEntryError(
        f"the content of the cache entry {path} is damaged or belongs to another key; its data is fetched again"
    )


def _mapped(fd: int, size: int) -> tuple[Entry, bytes]:
    mapped = mmap.mmap(fd, size, _PAGES_AT_ONCE, mmap.PROT_READ)
    return Entry(memoryview(mapped)[HEADER:], mapped), mapped[:HEADER]


def _copied(fd: int, size: int) -> tuple[Entry, bytes]:
    head, payload = bytearray(HEADER), memoryview(bytearray(size - HEADER))
    if os.preadv(fd, [head, payload], 0) != size:
        raise DamagedEntryError(f"the cache entry must have {size:,} bytes, got fewer; its data is fetched again")
    return Entry(payload.toreadonly()), bytes(head)


def write_entry(fd: int, digest: bytes, slot: int, payload: memoryview) -> None:
    """Write the header and the payload to the start of an open file.

    Raises:
        OSError: The disk is full, or cannot be written.
    """
    head = _HEAD.pack(_MAGIC, len(payload), digest, slot, _ZEROS)
    write_all(fd, head + checksum(head, payload), 0)
    write_all(fd, payload, HEADER)


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all bytes at an offset of an open file, in several calls if necessary."""
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, offset)
        left, offset = left[written:], offset + written
