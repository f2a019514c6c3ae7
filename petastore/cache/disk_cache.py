"""Disk cache: a local key-value store of bytes with a hard size limit.

All processes of a host share the cache.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.byte_sizes import ByteSize, byte_size
from petastore.cache.entries import FOLDER, CacheMetrics, Counts, Disk, Entries, FetchSeveral, Writing
from petastore.cache.entry_file import Key, digest_of, write_all
from petastore.cache.folder import Folder, LockedFile, cache_location, verified_limit
from petastore.cache.ledger import CacheContents, Ledger
from petastore.cache.next_use import Future, first_words, future_bytes, note_position, uses_within
from petastore.cache.table import FUTURE
from petastore.errors import InvalidArgumentError
from petastore.forks import Lock

__all__ = ["ANNOUNCED_SHARE", "Announcement", "DiskCache", "announced", "has_cache"]

ANNOUNCED_SHARE = 64
"""Divisor of the cache's limit: an announcement file takes at most 1/64 of it."""

_MOST_USES = 1 << 22


class Announcement:
    """Announced order in which a reader will use cache entries.

    All processes that share the cache use it for eviction, until it is closed or the reader's process ends.
    Thread-safe. In a forked child, the object does nothing, because it belongs to the parent.

    Example:
        >>> nobody_knows = Announcement()
        >>> nobody_knows.move_to(1)
        >>> nobody_knows.close()
    """

    def __init__(self, ledger: Ledger | None = None, file: LockedFile | None = None, uses: int = 0) -> None:
        self._ledger = ledger
        self._file = file
        self._lock = Lock()
        self.uses = uses
        """Number of announced positions of the order.

        It is less than the length of the order if the announcement would be too large.
        """

    def move_to(self, position: int, begun: int | None = None) -> None:
        """Publish how far the reader is in the announced order.

        Args:
            position: Number of positions (uses) of the order that are finished. A reader with a single thread also
                counts the position that it requests now.
            begun: Number of begun positions, including finished ones, if several positions are requested at the same
                time; begun positions still need their entries. None means `position`.
        """
        begun = position if begun is None else begun
        with self._lock:  # so that the file is not closed meanwhile, and its descriptor number reused by another file
            if self._file is not None and self._file.fd >= 0:
                note_position(self._file.fd, *(min(max(each, 0), self.uses) for each in (position, begun)))

    def close(self) -> None:
        """Delete the announcement. May be called again."""
        with self._lock:
            file, self._file = self._file, None
        if file is None or file.fd < 0 or self._ledger is None:
            return
        try:
            with contextlib.suppress(OSError):  # if this fails, the file is removed when the cache is opened again
                file.path.unlink()
                self._ledger.release(bytes.fromhex(file.path.name))
        finally:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def announced(
    folder: Folder, ledger: Ledger, keys: Sequence[str] | NDArray[np.uint64], order: NDArray[np.int64]
) -> Announcement:
    """Write the order in which a reader will use entries to an announcement file.

    All processes that share the cache read the file. Return the announcement, which the caller must close; it has no
    effect if the file was not admitted to the cache.

    Args:
        folder: Folder of the cache.
        ledger: Table of the cache's entries and their bytes.
        keys: Distinct keys of entries, or 64-bit hashes of shape (n,) or (n, k), for k entries that are used together.
        order: Indices into `keys` in the order of use, or -1 for a position without an entry. The end of the order is
            omitted if the file would be larger than 1/64 of the cache, or have more than four million uses.

    Raises:
        OSError: The file cannot be written.
    """
    together = 1 if isinstance(keys, Sequence) or keys.ndim == 1 else max(keys.shape[1], 1)
    uses = np.cumsum(order >= 0)
    most = min(uses_within(ledger.most // ANNOUNCED_SHARE), _MOST_USES) // together
    order = order[: int(np.searchsorted(uses, most, side="right"))]
    is_used = np.zeros(len(keys), np.bool_)
    is_used[order[order >= 0]] = True
    used = np.flatnonzero(is_used)
    if isinstance(keys, Sequence):
        words = first_words([digest_of(keys[number]) for number in used.tolist()])
    else:
        words = keys[used]
    numbers = np.where(order >= 0, np.searchsorted(used, order), -1)
    data = future_bytes(Future.of(words, numbers))
    digest = secrets.token_bytes(16)
    begun = Writing.begun(folder, ledger, digest, patience=0)
    if begun is None:
        return Announcement()  # another file already has the random name
    with begun as writing:
        if not writing.write(len(data), lambda fd, _: write_all(fd, data, 0), has_to=True):
            return Announcement()
        return Announcement(ledger, writing.place(folder.futures / digest.hex(), FUTURE), len(order))


Fetch: TypeAlias = Callable[[], Any]
"""Function that returns bytes as any C-contiguous buffer."""


class DiskCache:
    """Disk cache of bytes by key, never larger than its limit. Thread-safe.

    Any number of processes of a host may open the same location and share the cache. A forked child may use the
    inherited cache, and a pickled cache opens the same location when it is unpickled. If the disk is full, read-only or
    not permitted, bytes are fetched and not cached, and one `CacheBypassWarning` names the reason.

    Args:
        location: Local directory, in which the cache creates its folder; None means the user's cache directory.
        limit: Maximum total size of all cache files in bytes, at least 65,536. All processes at a location share the
            limit that was set last. None keeps that limit; a new cache then gets a quarter of the free disk space.

    Raises:
        InvalidArgumentError: `location` is not a local directory, or `limit` is too small or not a size.

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

    def __init__(self, location: str | os.PathLike[str] | None = None, *, limit: ByteSize | None = None) -> None:
        self._begin(Disk(cache_location(location), verified_limit(limit)))

    def _begin(self, disk: Disk) -> None:
        self._disk, self._counts = disk, Counts()
        self._entries = Entries(disk, self._counts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (str(self.location), self._disk.limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the open files. Views in use stay valid.

        The next use of the cache reopens the files.
        """
        if self._disk.ledger is not None:
            self._disk.ledger.close()

    @property
    def location(self) -> Path:
        """The directory that contains the folder of the cache."""
        return self._disk.location

    @property
    def room(self) -> int:
        """Maximum total bytes of all entries.

        If the disk cannot be used, this is a number above the size of any entry.
        """
        return self._disk.most

    def counting_apart(self) -> DiskCache:
        """Return a cache object for the same directory, with its own metrics.

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
        """Counters of this cache in this process so far."""
        return self._counts.told()

    # One entry

    @contextlib.contextmanager
    def entry(self, key: str | Key, fetch: Fetch, *, size: int | None = None) -> Iterator[memoryview]:
        """Return the bytes of a key from the disk cache; fetch and cache them on a miss.

        If another thread or process fetches the same key, this call waits for the result. It fetches the key itself
        only if that fetch fails or takes longer than half a minute. No lock is held inside the `with` block.

        Args:
            key: Name of the bytes, including their version: different bytes need different keys.
            fetch: Function that returns the bytes as any C-contiguous buffer; its exceptions propagate. It must not use
                this cache.
            size: Number of bytes, if known: the call does not wait for entries that are too large for the cache.

        Returns:
            A context manager that yields a read-only view of the bytes: memory-mapped from the entry's file, or the
            result of `fetch`. The view is only valid inside the block.
        """
        with self.entries([key], lambda _: [fetch()], sizes=[size]) as (view,):
            yield view

    @contextlib.contextmanager
    def entries(
        self,
        keys: Sequence[str | Key],
        fetch: FetchSeveral,
        *,
        sizes: Sequence[int | None],
    ) -> Iterator[list[memoryview]]:
        """Return several entries, as `entry` does; one call fetches all missing entries.

        Args:
            keys: Distinct keys.
            fetch: Function that takes indices into `keys`, ascending, and returns the bytes of these keys in this
                order; called only for missing entries.
            sizes: Number of bytes of each key, or None if unknown.

        Returns:
            A context manager that yields a view for each key. It is a view of the entry's memory-mapped file, or of a
            copy if there are more than 64 keys or the entry is small.

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
        entries = self._entries.of(keys, fetch, sizes)
        try:
            yield [entry.view for entry in entries]
        finally:
            for entry in entries:
                entry.close()

    def has(self, keys: Iterable[str | Key]) -> bool:
        """Return whether every key has an entry file now; the files may be damaged.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     with cache.entry("key", lambda: b"bytes") as view:
            ...         pass
            ...     cache.has(["key"]), cache.has(["key", "other"])
            (True, False)
        """
        return all(Path(self._disk.folder.entry(digest.hex())).exists() for digest in map(digest_of, keys))

    def discard(self, keys: Iterable[str | Key]) -> None:
        """Remove entries whose bytes turned out to be unusable. Views stay valid.

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
        """Announce the order in which a reader will use keys.

        For example, the rest of this epoch and the next epoch. The cache first evicts entries that no reader has
        announced. Among announced entries, it first evicts the entry whose next use, by any reader, is farthest in the
        future. The reader calls `move_to(n + 1)` before it requests the entry at position `n` of the order.

        Args:
            keys: Distinct keys of entries. Instead of keys, an array of 64-bit hashes (`petastore.cache.Key.word`) is
                accepted: shape (n,) for n entries, or (n, k) for n groups of k entries that are used together.
            order: Indices into `keys` in the order of use, fewer than 2³²; shape (positions,). -1 is a position without
                an entry.

        Returns:
            The announcement. Close it when another replaces it or the reader ends.

        Raises:
            InvalidArgumentError: A number in `order` has no key.

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
                f"order must be a one-dimensional array of integers from -1 to {len(keys) - 1:,} for {len(keys):,} "
                f"keys, got {order!r:.100}"
            )
        if self._disk.ledger is None:
            return Announcement()
        try:
            return announced(self._disk.folder, self._disk.ledger, keys, numbers)
        except OSError as problem:
            self._disk.bypass(problem)
            return Announcement()

    def info(self) -> CacheContents:
        """Return the contents of the cache: limit, entries, bytes and running readers.

        They include the entries of all processes.

        Raises:
            StorageError: The location has no usable cache.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     with cache.entry("key", lambda: bytes(5000)) as view:
            ...         pass
            ...     (cache.info().entries, cache.info().entry_bytes), cache.prune(), cache.clear(), cache.info().entries
            ((1, 8192), 0, 8192, 0)
        """
        return self._disk.asked_of_ledger(Ledger.contents)

    def prune(self, *, most_bytes: ByteSize | None = None, unused_s: float | None = None) -> int:
        """Remove files of killed processes and foreign files, and old entries on request.

        The remaining entries are counted again.

        Args:
            most_bytes: Maximum bytes of entries afterwards; least recently used entries are evicted. None means the
                cache's limit.
            unused_s: Age in seconds after which unused entries are removed. None removes no entry for its age.

        Returns: Number of freed bytes.

        Raises:
            InvalidArgumentError: Bytes or seconds are below 0.
            StorageError: The location has no usable cache.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     for key in ("old", "new"):
            ...         with cache.entry(key, lambda: bytes(5000)) as view:
            ...             pass
            ...     cache.prune(unused_s=3600), cache.prune(most_bytes=10_000), cache.has(["new"])
            (0, 8192, True)
        """
        but_bytes = sys.maxsize if most_bytes is None else byte_size(most_bytes, name="most_bytes", least=0)
        if unused_s is not None and not unused_s >= 0:
            raise InvalidArgumentError(f"unused_s must be at least 0 seconds, got {unused_s!r}")
        freed = self._disk.asked_of_ledger(Ledger.rebuild)
        if most_bytes is None and unused_s is None:
            return freed
        but_since = 0 if unused_s is None else time.time_ns() - int(unused_s * 1e9)
        return freed + self._disk.asked_of_ledger(lambda ledger: ledger.clear(but_bytes=but_bytes, but_since=but_since))

    def clear(self) -> int:
        """Remove all entries. Views in use stay valid.

        Returns:
            Number of freed bytes on disk.

        Raises:
            StorageError: The location has no usable cache.
        """
        return self._disk.asked_of_ledger(Ledger.clear)


def has_cache(location: str | os.PathLike[str] | None = None) -> bool:
    """Return whether a location has a cache, without creating one.

    Raises:
        InvalidArgumentError: The location is not a local directory.
    """
    return (cache_location(location) / FOLDER).is_dir()


def _opened(location: str, limit: int | None) -> DiskCache:
    return DiskCache(location, limit=limit)
