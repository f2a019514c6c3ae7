"""What a cache did, and what it has."""

from __future__ import annotations

import dataclasses
from pathlib import Path

__all__ = ["CacheContents", "CacheMetrics"]


@dataclasses.dataclass(frozen=True)
class CacheMetrics:
    """What a cache did in this process since it was opened."""

    hits: int = 0
    """Entries that were there."""

    misses: int = 0
    """Entries that were fetched."""

    bytes_read: int = 0
    """Payload of hits."""

    bytes_written: int = 0
    """Payload of entries that were kept."""

    bytes_evicted: int = 0
    """Bytes of disk that entries gave up for others."""

    damaged: int = 0
    """Entries that were not what was written; they were removed and fetched again."""

    bypassed: int = 0
    """Misses that were not kept: too large, needed later than what is there, or the disk did not take them."""


@dataclasses.dataclass(frozen=True)
class CacheContents:
    """What a cache has on disk, of all processes."""

    location: Path
    """Its folder."""

    limit: int
    """Bytes that all of its files may have together."""

    entries: int
    """Entries that are kept."""

    entry_bytes: int
    """Bytes of disk that they count, in whole blocks of 4 KiB."""

    ledger_bytes: int
    """Bytes of the ledger."""

    readers: int
    """Living readers that have announced what they will need."""
