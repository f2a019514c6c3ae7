"""Prefetched row groups: fetch bytes while earlier row groups are decoded."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from typing import TypeAlias

from petastore.forks import Lock, made_anew_in_children
from petastore.inventory import DataFile
from petastore.monitoring.activity import during
from petastore.storage.files.location import Location
from petastore.storage.ranges.fetch import ByteRange, FetchedRanges
from petastore.storage.requests.retries import make
from petastore.threads import Threads

__all__ = ["Fetch", "FetchedAhead", "Place", "place_of"]

Place: TypeAlias = tuple[int, str, int]
"""Key of a row group; see `place_of`."""

Fetch: TypeAlias = Callable[[], tuple[frozenset[ByteRange], FetchedRanges]]
"""Function that returns the requested ranges and their bytes."""

_Fetched: TypeAlias = Future[tuple[frozenset[ByteRange], FetchedRanges]]


_MOST_AT_A_TIME = 8
"""Maximum number of row groups that are fetched at a time.

Each may take several concurrent requests.
"""


def place_of(location: Location, file: DataFile, ordinal: int) -> Place:
    """Return a key of a row group that is unique over all datasets.

    It is unique even if file names and footers of two datasets are equal.
    """
    return id(location), file.path, ordinal


class FetchedAhead:
    """Prefetched row groups, complete or in flight. Thread-safe.

    A thread that reads a row group waits for its prefetch. If the prefetch has not begun or has failed, the thread
    fetches the row group itself, so that it gets the error. A forked child starts without prefetched row groups.

    Example:
        >>> from petastore.storage.stores.interface import FileVersion
        >>> import pyarrow as pa
        >>> ahead, one = FetchedAhead(), ByteRange(4, 5)
        >>> ranges = FetchedRanges(9, FileVersion(9), [(4, pa.py_buffer(b"bytes"))])
        >>> ahead.begin((0, "a.parquet", 0), lambda: (frozenset({one}), ranges))
        >>> fetched = ahead.of((0, "a.parquet", 0), [one]) or ranges  # what nobody has begun, the reader fetches
        >>> fetched.read(4, 5).to_pybytes()
        b'bytes'
        >>> ahead.close()
    """

    def __init__(self) -> None:
        self._threads = Threads("petastore-ahead")
        self._lock = Lock()
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Drop requests in flight, in a forked child."""
        self._fetched: dict[Place, tuple[_Fetched, bool]] = {}
        self._waiting: collections.deque[tuple[_Fetched, Fetch]] = collections.deque()
        self._working = 0
        self._closed = False

    def begin(self, place: Place, fetch: Fetch, *, for_cache: bool = False) -> None:
        """Queue a row group for prefetching in a daemon thread, unless it is already queued or fetched.

        Prefetches begin in the order of the calls; up to eight run at a time.

        Args:
            place: Key of the row group.
            fetch: Function that fetches the row group.
            for_cache: Whether the bytes will be stored in the disk cache when they are read. Only calls of `of` with
                the same value get the bytes.
        """
        with self._lock:
            if self._closed or place in self._fetched:
                return
            future: _Fetched = Future()
            self._fetched[place] = future, for_cache
            self._waiting.append((future, fetch))
            is_new = self._working < _MOST_AT_A_TIME
            self._working += is_new
        if is_new and not self._threads.run(self._work):
            self.close()  # the interpreter is exiting

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                future, fetch = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                make(fetch, future)
            del future, fetch  # drop references, or a waiting thread would keep the bytes in memory

    def of(self, place: Place, asked: Iterable[ByteRange], *, for_cache: bool = False) -> FetchedRanges | None:
        """Return a prefetched row group, after waiting for its prefetch.

        Return None if the caller must fetch the ranges itself.

        Args:
            place: Key of the row group.
            asked: Ranges of the row group.
            for_cache: Whether the caller stores the bytes in the disk cache. If `begin` got another value, the result
                is None.
        """
        future, is_for_cache = self._fetched.get(place, (None, False))
        if future is None or is_for_cache != for_cache or future.cancel():
            return None
        try:
            with during("storage"):
                ranges, fetched = future.result()
        except (Exception, CancelledError):  # noqa: BLE001 - the caller then fetches, and gets the error
            return None
        return fetched if ranges.issuperset(asked) else None

    def drop(self, place: Place) -> None:
        """Drop the bytes of a row group; cancel its prefetch if it has not begun."""
        future, _ = self._fetched.pop(place, (None, False))
        if future is not None:
            future.cancel()

    def close(self) -> None:
        """Drop all row groups, and start no further requests.

        Requests in flight end by themselves.
        """
        with self._lock:
            self._closed = True
            self._waiting.clear()
            fetched = list(self._fetched.values())
            self._fetched.clear()
        for future, _ in fetched:
            future.cancel()
        self._threads.end()
