"""The checksum of cache files: XXH3 with 64 bits. Pure."""

from __future__ import annotations

import xxhash

__all__ = ["SIZE", "checksum"]

SIZE = 8
"""Bytes of a checksum."""


def checksum(head: bytes, data: memoryview) -> bytes:
    """Return the XXH3 digest of a header and the data behind it; not cryptographic.

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
