"""The row groups that were used last, up to a number of bytes, for whoever reads rows here and there.

Cells are kept as they are stored: JPEG bytes, not pixels.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pyarrow as pa

from petastore.forks import made_anew_in_children

__all__ = ["CacheInfo", "RecentRowGroups"]


@dataclasses.dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache has done so far, and what it holds."""

    hits: int
    """Times that a row group was at hand, or was being read by another thread already."""

    reads: int
    """Row groups that were read. Many more than the dataset has: they come and go, and `max_bytes` is too small for
    the order in which rows are asked for."""

    row_groups: int
    """Row groups that are held now."""

    held_bytes: int
    """Bytes that they take in memory."""

    max_bytes: int
    """Bytes that they may take."""


class RecentRowGroups:
    """Reads row groups and keeps the ones that were used last.

    Thread-safe. No lock is held while reading, and threads that ask for one row group at once share one read. The row
    group that was read last is kept whatever its size, so memory is bounded by `max_bytes`, or by that one, and by what
    threads have in hand.

    Args:
        read: Reads a row group, given by its number in the dataset.
        max_bytes: Bytes to keep.

    Example:
        >>> recent = RecentRowGroups(lambda group: pa.table({"x": [group]}), max_bytes=16)
        >>> [recent.get(group).column("x").to_pylist() for group in (0, 1, 1, 2, 0)]
        [[0], [1], [1], [2], [0]]
        >>> recent.info()
        CacheInfo(hits=1, reads=4, row_groups=2, held_bytes=16, max_bytes=16)
    """

    def __init__(self, read: Callable[[int], pa.Table], max_bytes: int) -> None:
        self._read = read
        self._max_bytes = max_bytes
        self._tables: collections.OrderedDict[int, pa.Table] = collections.OrderedDict()
        self._hits = self._reads = 0
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Forget reads that are under way: a forked child does not have the threads that were at them."""
        self._lock = threading.Lock()
        self._under_way: dict[int, Future[pa.Table]] = {}
        self._bytes = sum(table.get_total_buffer_size() for table in self._tables.values())

    def get(self, group: int) -> pa.Table:
        """The row group; its memory is shared, so nobody writes into it.

        Raises:
            Whatever `read` raises, in each thread that waited for it; the next call tries again.
        """
        mine: Future[pa.Table] | None = None
        try:
            with self._lock:
                table = self._tables.get(group)
                if table is not None:
                    self._tables.move_to_end(group)
                    self._hits += 1
                    return table
                first = self._under_way.get(group)
                if first is None:
                    mine = self._under_way[group] = Future()
                    self._reads += 1
                else:
                    self._hits += 1
            return self._filled(group, mine) if mine is not None else first.result()  # type: ignore[union-attr]
        except BaseException as problem:
            if mine is not None and not mine.done():
                with self._lock:
                    self._under_way.pop(group, None)
                mine.set_exception(problem)
            raise

    def _filled(self, group: int, mine: Future[pa.Table]) -> pa.Table:
        table = self._read(group)
        with self._lock:
            if self._under_way.get(group) is mine:  # not in a child that was forked meanwhile
                self._tables[group] = table
                self._bytes += table.get_total_buffer_size()
                self._drop_oldest(keep=group)
                del self._under_way[group]
        mine.set_result(table)
        return table

    def _drop_oldest(self, *, keep: int) -> None:
        for old in [known for known in self._tables if known != keep]:
            if self._bytes <= self._max_bytes:
                return
            self._bytes -= self._tables.pop(old).get_total_buffer_size()

    def info(self) -> CacheInfo:
        """What was done so far."""
        with self._lock:
            return CacheInfo(self._hits, self._reads, len(self._tables), self._bytes, self._max_bytes)
