"""A checksum as fast as memory, of entries that are read again and again. Pure.

Bytes are taken as 64-bit words in rows of 1,031 (a prime), 128 rows to a block. What counts of a block are the sums of
its columns: one pass, in vectors. The sums go through CRC-32, and through a sum with odd weights modulo 2⁶⁴.

It finds with certainty: any change within one word, so every wrong byte; and what was cut off or added, as the length
counts. Pages that changed places, within a block or between blocks, and bytes that were shifted, bring other words into
the columns, since 1,031 is no multiple of anything that disks know. That is found unless sums agree by chance, as any
other damage: fewer than one in 2⁶⁰.

It does not find two wrong words in one column of one block, so at a distance that is a multiple of 8,248 bytes, whose
differences cancel each other: words that changed places, or one bit that is wrong in both, once up and once down. Of
two wrong bits in a block that is about one pair in 130,000. Nor does it find what somebody makes on purpose: it is no
signature.
"""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["SIZE", "checksum"]

SIZE = 12
"""Bytes of a checksum."""

_WORDS = 1031
_BLOCK = 128 * _WORDS * 8
_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
_WEIGHTS = np.cumprod(np.full(_WORDS, _ODD, np.uint64))


def checksum(head: bytes, data: memoryview) -> bytes:
    """Twelve bytes that depend on all bytes of both, and on their places.

    Args:
        head: A few bytes that count as well.
        data: C-contiguous bytes, of any length.

    Returns:
        `SIZE` bytes.

    Example:
        >>> checksum(b"", memoryview(b"abcdefgh")) == checksum(b"", memoryview(b"abcdefgi"))
        False
    """
    length = len(data)
    crc = zlib.crc32(head + length.to_bytes(8, "little"))
    weighed = 0
    for start in range(0, length, _BLOCK):
        sums = _column_sums(data[start : start + _BLOCK])
        crc = zlib.crc32(sums.data, crc)
        weighed = (weighed * _ODD + int(np.dot(sums, _WEIGHTS))) & _MASK
    return crc.to_bytes(4, "little") + weighed.to_bytes(8, "little")


def _column_sums(block: memoryview) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Shape (1031,): the sums of the words of a block, column by column, as if zeros followed it."""
    words = len(block) // 8
    rows = words // _WORDS
    whole = np.frombuffer(block, np.dtype("<u8"), words)
    sums = np.add.reduce(whole[: rows * _WORDS].reshape(rows, _WORDS), axis=0, dtype=np.uint64)
    rest = words - rows * _WORDS
    if rest:
        sums[:rest] += whole[rows * _WORDS :]
    if len(block) % 8:
        sums[rest] += np.uint64(int.from_bytes(block[words * 8 :], "little"))
    return sums
