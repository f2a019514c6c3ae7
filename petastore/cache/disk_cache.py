"""Bytes by key on the local disk, shared by all processes of a host, under one hard limit."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.cache.announcement import Announcement, announced
from petastore.cache.disk import FOLDER, Disk
from petastore.cache.entries import MOST_OPEN, Entries, FetchedEntry, FetchSeveral
from petastore.cache.entry_file import DamagedEntryError, Key, MappedEntry, digest_of, map_entry
from petastore.cache.ledger import Ledger
from petastore.cache.location import cache_location, verified_limit
from petastore.cache.metrics import CacheContents, CacheMetrics, Counts
from petastore.errors import InvalidArgumentError

__all__ = ["DiskCache", "has_cache"]

Fetch: TypeAlias = Callable[[], Any]
"""Gives bytes, as any C-contiguous buffer."""


class Entry:
    """A `with` block in which the bytes of an entry can be looked at."""

    __slots__ = ("_asked", "_found")

    def __init__(self, *asked: Any) -> None:
        self._asked = asked

    def __enter__(self) -> memoryview:
        find, *asked = self._asked
        self._found: MappedEntry | FetchedEntry = find(*asked)
        return self._found.view

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._found.close()


class DiskCache:
    """Bytes by key, fetched once for all processes of a host, and never more than a limit.

    Thread-safe. Any number of processes may open the same location. A forked child may go on with what it inherited,
    and a cache that is pickled is opened again where it arrives. Where the disk is full, read-only, not permitted or
    too slow, bytes are fetched and not kept, and one `CacheBypassWarning` says why.

    Args:
        location: A local directory, in which the cache has a folder of its own; None for the user's cache directory.
        limit: Bytes that all files of the cache may have together, 65,536 at least. The processes that share a location
            share a limit: that which was asked for last. None takes it as it is, or else a quarter of the free disk.

    Raises:
        InvalidArgumentError: Location or limit cannot be.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
        ...     for _ in range(2):
        ...         with cache.entry("part-0@7:3:image", lambda: b"fetched once") as view:
        ...             print(bytes(view))
        ...     cache.metrics.hits, cache.metrics.misses
        b'fetched once'
        b'fetched once'
        (1, 1)
    """

    def __init__(self, location: str | os.PathLike[str] | None = None, *, limit: int | None = None) -> None:
        self._begin(Disk(cache_location(location), verified_limit(limit)))

    def _begin(self, disk: Disk) -> None:
        self._disk, self._counts = disk, Counts()
        self._entries = Entries(disk, self._counts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (str(self.location), self._disk.limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives open files back. Views that are in use stay valid; a cache that is used again opens them again."""
        if self._disk.ledger is not None:
            self._disk.ledger.close()

    @property
    def location(self) -> Path:
        """The directory in which the cache has its folder."""
        return self._disk.location

    @property
    def room(self) -> int:
        """Bytes that entries may have together; more than any where the disk does not take part."""
        return self._disk.most

    def counting_apart(self) -> DiskCache:
        """The same cache, whose metrics count by themselves what is asked of it here.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     footers = cache.counting_apart()
            ...     with footers.entry("footer", lambda: b"bytes") as view:
            ...         pass
            ...     footers.metrics.misses, cache.metrics.misses
            (1, 0)
        """
        other = object.__new__(DiskCache)
        other._begin(self._disk)
        return other

    @property
    def metrics(self) -> CacheMetrics:
        """What this cache did in this process so far."""
        return self._counts.told()

    # One entry

    def entry(self, key: str | Key, fetch: Fetch, *, size: int | None = None) -> Entry:
        """The bytes under a key, from the disk, or else fetched and kept.

        Who wants a key that is being fetched, in any thread or process, waits for it, and fetches only where nothing
        came of that, or it takes longer than half a minute. No lock is held inside the `with` block.

        Args:
            key: Names the bytes, with their version: other bytes need another key.
            fetch: Gives the bytes as any C-contiguous buffer; what it raises is raised here. It must not ask this
                cache.
            size: How many bytes there will be, if that is known: who is too large to be kept is not waited for.

        Returns:
            A context with a read-only view of the bytes: mapped memory of the entry's file, or what `fetch` gave. The
            memory stays as long as anything refers to it, the view itself only inside the block.
        """
        return Entry(self._entry, key, fetch, size)

    def _entry(self, key: str | Key, fetch: Fetch, size: int | None) -> MappedEntry | FetchedEntry:
        (entry,) = self._entries.of([key], lambda _: [fetch()], [size])
        return entry

    @contextlib.contextmanager
    def entries(
        self,
        keys: Sequence[str | Key],
        fetch: FetchSeveral,
        *,
        sizes: Sequence[int | None],
        into: Sequence[memoryview | None] = (),
        took: Callable[[], float] | None = None,
    ) -> Iterator[list[memoryview]]:
        """Several entries, each as `entry` gives it; those that are not there are fetched by one call.

        Args:
            keys: Each once.
            fetch: Given the numbers of keys, ascending, gives their bytes in that order; not asked for none.
            sizes: Of each key: how many bytes there will be, or None.
            into: Of each key: writable memory into which an entry of just as many bytes is read, where it is there, or
                None; empty for none. Memory that was in use before is faster than mapping, if the entry is small.
            took: Asked after `fetch`, seconds that it takes to fetch all that anew, 0 where that is not known: then the
                disk is not found slow to read by these entries. None is what `fetch` took.

        Returns:
            A context with a view for each key: of that memory, or of that of the entry's file. Of more than 64 it is
            not mapped, but copied.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     for keys in ("ab", "acd"):
            ...         fetch = lambda numbers: [f"{keys[number]} of {numbers}".encode() for number in numbers]
            ...         with cache.entries(keys, fetch, sizes=[None] * len(keys)) as views:
            ...             print([bytes(view) for view in views])
            [b'a of [0, 1]', b'b of [0, 1]']
            [b'a of [0, 1]', b'c of [1, 2]', b'd of [1, 2]']
        """
        entries = self._entries.of(keys, fetch, sizes, into, took)
        try:
            yield [entry.view for entry in entries]
        finally:
            for entry in entries:
                entry.close()

    def has(self, keys: Iterable[str | Key]) -> bool:
        """Whether there is something under all of some keys now, right or not, and the disk is not too slow to give it.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     with cache.entry("key", lambda: b"bytes") as view:
            ...         pass
            ...     cache.has(["key"]), cache.has(["key", "other"])
            (True, False)
        """
        if not self._disk.is_read:
            return False
        return all(Path(self._disk.folder.entry(digest.hex())).exists() for digest in map(digest_of, keys))

    def there(self, keys: Sequence[str | Key]) -> list[memoryview | None]:
        """Entries as they lie there now, or None: nothing is fetched, waited for, or noted, also where one is damaged.

        All are None where the disk takes longer to read than they took to be fetched.

        For whoever fetches one entry and may find its bytes in another.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     with cache.entry("whole", lambda: b"bytes") as view:
            ...         pass
            ...     [None if view is None else bytes(view) for view in cache.there(["whole", "part"])]
            [b'bytes', None]
        """
        found: list[memoryview | None] = []
        for digest in map(digest_of, keys if self._disk.is_read else ()):
            entry = None
            with contextlib.suppress(DamagedEntryError, OSError):
                path = self._disk.folder.entry(digest.hex())
                entry = map_entry(path, digest, self._disk.most, mapped=len(keys) <= MOST_OPEN)
            found.append(None if entry is None else entry.view)
        return found or [None] * len(keys)

    def discard(self, keys: Iterable[str | Key]) -> None:
        """Removes entries that were kept as they were fetched, and turned out to be of no use. Views stay valid.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     for data in (b"wrong", b"right"):
            ...         with cache.entry("key", lambda: data) as view:
            ...             print(bytes(view))
            ...         cache.discard(["key"])
            b'wrong'
            b'right'
        """
        self._entries.discard(keys)

    # All entries

    def announce(
        self, keys: Sequence[str] | NDArray[np.uint64], order: Sequence[int] | NDArray[np.integer[Any]]
    ) -> Announcement:
        """Says what a reader will use, in which order: the rest of this epoch and the next, say.

        What is announced last is kept before what is needed later, by this or any other reader, and all of it before
        what nobody has announced. Before it asks for the entry at place `n` of the order, the reader moves to `n + 1`.

        Args:
            keys: Of entries, each once. Or the words of keys (`petastore.cache.Key`), shape (n,); or (n, k), of
                k that are used together.
            order: The numbers of the keys in the order of their use, fewer than 2³²; -1 where none is used. Shape
                (positions,).

        Returns:
            The announcement, to be closed when another takes its place, or the reader ends.

        Raises:
            InvalidArgumentError: A number has no key.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     keys, order = ["a", "b", "c"], [0, 1, 2, 0, 1, 2]
            ...     with cache.announce(keys, order) as announcement:
            ...         for place, number in enumerate(order):
            ...             announcement.move_to(place + 1)
            ...             with cache.entry(keys[number], lambda: b"bytes") as view:
            ...                 pass
            ...     cache.metrics.hits
            3
        """
        numbers = np.asarray(order, np.int64)
        if numbers.ndim != 1 or (len(numbers) and not -1 <= numbers.min() <= numbers.max() < len(keys)):
            raise InvalidArgumentError(
                f"an order of {len(keys):,} keys has numbers from 0 to {len(keys) - 1:,} in one dimension, or -1"
            )
        if self._disk.ledger is None:
            return Announcement()
        try:
            return announced(self._disk.folder, self._disk.ledger, keys, numbers)
        except OSError as problem:
            self._disk.bypass(problem)
            return Announcement()

    def info(self) -> CacheContents:
        """What all processes have in the cache.

        Raises:
            StorageError: There is no cache that can be used at this location.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     with cache.entry("key", lambda: bytes(5000)) as view:
            ...         pass
            ...     (cache.info().entries, cache.info().entry_bytes), cache.prune(), cache.clear(), cache.info().entries
            ((1, 8192), 0, 8192, 0)
        """
        totals = self._disk.asked_of_ledger(Ledger.totals)
        return CacheContents(
            self._disk.folder.root, totals.limit, totals.entries, totals.bytes, totals.ledger_bytes, totals.readers
        )

    def prune(self, *, most_bytes: int | None = None, unused_s: float | None = None) -> int:
        """Removes what nobody needs: what killed processes left, and what is no entry; counts again what there is.

        Args:
            most_bytes: Entries may take so many bytes afterwards; those that were used last stay. None is the limit.
            unused_s: Entries go that were not used for so many seconds. None is for ever.

        Returns:
            Bytes that count less than before.

        Raises:
            InvalidArgumentError: Bytes or seconds are below 0.
            StorageError: There is no cache that can be used at this location.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     for key in ("old", "new"):
            ...         with cache.entry(key, lambda: bytes(5000)) as view:
            ...             pass
            ...     cache.prune(unused_s=3600), cache.prune(most_bytes=10_000), cache.has(["new"])
            (0, 8192, True)
        """
        for name, asked in (("most_bytes", most_bytes), ("unused_s", unused_s)):
            if asked is not None and not asked >= 0:
                raise InvalidArgumentError(f"{name}={asked!r}, but it must be at least 0")
        freed = self._disk.asked_of_ledger(Ledger.rebuild)
        if most_bytes is None and unused_s is None:
            return freed
        but_bytes = sys.maxsize if most_bytes is None else most_bytes
        but_since = 0 if unused_s is None else time.time_ns() - int(unused_s * 1e9)
        return freed + self._disk.asked_of_ledger(lambda ledger: ledger.clear(but_bytes=but_bytes, but_since=but_since))

    def clear(self) -> int:
        """Removes all entries. Views that are in use stay valid.

        Returns:
            Bytes that they took on disk.

        Raises:
            StorageError: There is no cache that can be used at this location.
        """
        return self._disk.asked_of_ledger(Ledger.clear)


def has_cache(location: str | os.PathLike[str] | None = None) -> bool:
    """Whether there is a cache at a location; nothing is made there.

    Raises:
        InvalidArgumentError: It is no local directory.
    """
    return (cache_location(location) / FOLDER).is_dir()


def _opened(location: str, limit: int | None) -> DiskCache:
    return DiskCache(location, limit=limit)
