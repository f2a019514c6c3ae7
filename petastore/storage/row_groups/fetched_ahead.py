"""Row groups whose bytes are fetched before anybody reads them: while others are decoded, the line is not idle."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from typing import NamedTuple, TypeAlias

from petastore.forks import Lock, made_anew_in_children
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.fetched_ranges import FetchedRanges
from petastore.threads import Threads

__all__ = ["Fetch", "FetchedAhead", "KeptIn", "Place", "place_of"]

Place: TypeAlias = tuple[int, str, int]
"""A row group; see `place_of`."""

Fetch: TypeAlias = Callable[[], tuple[frozenset[ByteRange], FetchedRanges]]
"""Gives what was asked for, and the bytes."""

_Fetched: TypeAlias = Future[tuple[frozenset[ByteRange], FetchedRanges]]


class KeptIn(enum.Enum):
    """Where what is fetched ahead is kept until it is read."""

    MEMORY = enum.auto()
    """In memory alone: there is no cache."""

    CACHE = enum.auto()
    """The cache has it at once, besides."""

    CACHE_WHEN_READ = enum.auto()
    """In memory; the cache is given it when it is read, as if it came only then, and decides what to keep."""


class _Ahead(NamedTuple):
    """A row group that was fetched, or is on its way."""

    future: _Fetched
    kept_in: KeptIn


_MOST_AT_A_TIME = 8
"""Row groups; each may take several requests at a time."""


def place_of(location: Location, file: DataFile, ordinal: int) -> Place:
    """By what a row group is known, among those of several datasets: names and footers of files may be the same."""
    return id(location), file.path, ordinal


class FetchedAhead:
    """Row groups that were fetched, or are on their way. Thread-safe; a forked child has none.

    Who reads one that is on its way waits for it. One that nobody has begun yet, or that failed, the reader fetches for
    itself: what is raised for it is raised to whoever reads it.

    Example:
        >>> from petastore.storage.requests.client import FileVersion
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
        """Nothing is on its way."""
        self._fetched: dict[Place, _Ahead] = {}
        self._waiting: collections.deque[tuple[_Fetched, Fetch]] = collections.deque()
        self._working = 0
        self._closed = False

    def begin(self, place: Place, fetch: Fetch, kept_in: KeptIn = KeptIn.MEMORY) -> None:
        """Has a row group fetched, in the order of calls, by a thread of its own; not again while it is there.

        Args:
            place: The row group.
            fetch: Fetches it.
            kept_in: Where it is kept until it is read.
        """
        with self._lock:
            if self._closed or place in self._fetched:
                return
            future: _Fetched = Future()
            self._fetched[place] = _Ahead(future, kept_in)
            self._waiting.append((future, fetch))
            is_new = self._working < _MOST_AT_A_TIME
            self._working += is_new
        if is_new and not self._threads.run(self._work):
            self.close()  # the interpreter ends

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                future, fetch = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                _settle(future, fetch)
            del future, fetch  # or a thread that waits would keep what came

    def of(self, place: Place, asked: Iterable[ByteRange], *, for_cache: bool = False) -> FetchedRanges | None:
        """A row group; None where the reader has to fetch it, or ranges of it that nobody has thought of.

        Args:
            place: The row group.
            asked: Ranges of it.
            for_cache: Whether a cache asks, which decides what to keep; else whoever reads it.
        """
        there = self._fetched.get(place)
        if there is None or (there.kept_in is KeptIn.CACHE_WHEN_READ) != for_cache or there.future.cancel():
            return None
        try:
            ranges, fetched = there.future.result()
        except (Exception, CancelledError):  # noqa: BLE001 - the reader asks again, and is told
            return None
        return fetched if ranges.issuperset(asked) else None

    def drop(self, place: Place) -> None:
        """Keeps a row group no longer."""
        there = self._fetched.pop(place, None)
        if there is not None:
            there.future.cancel()

    def close(self) -> None:
        """Keeps nothing, and fetches nothing more; what is on its way ends as its requests do."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            fetched = list(self._fetched.values())
            self._fetched.clear()
        for there in fetched:
            there.future.cancel()
        self._threads.end()


def _settle(future: _Fetched, fetch: Fetch) -> None:
    try:
        fetched = fetch()
    except BaseException as problem:  # noqa: BLE001 - who reads the row group asks again, and is told
        future.set_exception(problem)
    else:
        future.set_result(fetched)
