"""What a cache did, and what it has."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from petastore.forks import Lock

__all__ = ["CacheContents", "CacheMetrics", "Counts"]


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


class Counts:
    """Counts what a cache does. Thread-safe.

    Example:
        >>> counts = Counts()
        >>> counts.add(hits=2, bytes_read=7)
        >>> counts.told().hits, counts.told().misses
        (2, 0)
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counted = dataclasses.asdict(CacheMetrics())

    def add(self, **more: int) -> None:
        """Counts so much more of what `CacheMetrics` names."""
        with self._lock:
            for name, number in more.items():
                self._counted[name] += number

    def told(self) -> CacheMetrics:
        """All that was counted."""
        with self._lock:
            return CacheMetrics(**self._counted)


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
