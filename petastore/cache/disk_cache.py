"""Bytes by key on the local disk, shared by all processes of a host, under one hard limit."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from petastore.cache.announcement import Announcement, announced
from petastore.cache.entry_file import (
    HEADER,
    DamagedEntryError,
    Key,
    MappedEntry,
    digest_of,
    map_entry,
    size_on_disk,
    write_entry,
)
from petastore.cache.folder import Folder
from petastore.cache.ledger import Ledger
from petastore.cache.location import cache_location, verified_limit
from petastore.cache.metrics import CacheContents, CacheMetrics, Counts
from petastore.cache.writing import Writing
from petastore.errors import CacheBypassWarning, RequestError, StorageError
from petastore.forks import Lock

__all__ = ["DiskCache", "has_cache"]

Fetch: TypeAlias = Callable[[], Any]
"""Gives bytes, as any C-contiguous buffer."""

FetchSeveral: TypeAlias = Callable[[Sequence[int]], Sequence[Any]]
"""Gives the bytes of several keys, by their numbers, each as any C-contiguous buffer."""

_Answer = TypeVar("_Answer")

_FOLDER = "petastore-cache-1"
_REST_S = 60.0
"""How long a ledger that others hold for long is let alone, and a disk that is slow."""

_PATIENCE_S = 30.0
"""How long one waits for others who fetch the same, before one fetches it, too."""

_LONG_S = 5.0
"""A disk that took less time than this to write what was fetched is not slow, however fast that was fetched."""

_MOST_OPEN = 64
"""Files of entries that are open for what is asked for at once: a process may have a thousand or so, for everything."""


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


class _Disk:
    """The files of a cache, and whether they take part; shared by all who count by themselves what they ask of it.

    Args:
        location: A directory.
        limit: As asked for.
    """

    def __init__(self, location: Path, limit: int | None) -> None:
        self.location, self.limit = location, limit
        self.folder = Folder(location / _FOLDER)
        self.ledger: Ledger | None = None
        """None where it cannot be opened."""
        self.rests_until = 0.0
        """Until when it is left alone."""
        self._has_warned = False
        self._lock = Lock()
        try:
            self.ledger = Ledger(self.folder, limit)
        except OSError as problem:
            self.bypass(problem)

    @property
    def most(self) -> int:
        """Bytes that one file may have."""
        return sys.maxsize if self.ledger is None else self.ledger.most

    def asked_of_ledger(self, ask: Callable[[Ledger], _Answer]) -> _Answer:
        """What the ledger answers; it is opened, if it could not be before.

        Raises:
            StorageError: It cannot be opened, or does not answer.
        """
        try:
            self.ledger = self.ledger or Ledger(self.folder, self.limit)
            return ask(self.ledger)
        except OSError as problem:
            raise StorageError(
                f"the cache at {self.folder.root} cannot be used: {problem}", errno=problem.errno
            ) from problem

    def wrote(self, *, fetch_s: float, write_s: float) -> None:
        """Says how long it took to fetch entries, and to keep them: a disk that is slower is let alone for a while."""
        if write_s > max(fetch_s, _LONG_S):
            slow = f"it took {write_s:.1f} s to write what was fetched in {fetch_s:.1f}"
            self.bypass(TimeoutError(errno.ETIMEDOUT, slow, str(self.folder.root)))

    def bypass(self, problem: OSError) -> None:
        """Goes on without the disk, and says so once."""
        if isinstance(problem, TimeoutError):
            self.rests_until = time.monotonic() + _REST_S
        with self._lock:
            has_warned, self._has_warned = self._has_warned, True
        if not has_warned:
            warnings.warn(
                f"the cache at {self.folder.root} is bypassed where its disk does not take part: {problem}. What is "
                "read is right, and is fetched again each time; free disk space, or choose another location or limit",
                CacheBypassWarning,
                stacklevel=2,
            )


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
        RequestError: Location or limit cannot be.

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
        self._disk = _Disk(cache_location(location), verified_limit(limit))
        self._counts = Counts()

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
        other._disk, other._counts = self._disk, Counts()
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
        (entry,) = self._several([key], lambda _: [fetch()], [size])
        return entry

    @contextlib.contextmanager
    def entries(
        self,
        keys: Sequence[str | Key],
        fetch: FetchSeveral,
        *,
        sizes: Sequence[int | None],
        into: Sequence[memoryview | None] = (),
    ) -> Iterator[list[memoryview]]:
        """Several entries, each as `entry` gives it; those that are not there are fetched by one call.

        Args:
            keys: Each once.
            fetch: Given the numbers of keys, ascending, gives their bytes in that order; not asked for none.
            sizes: Of each key: how many bytes there will be, or None.
            into: Of each key: writable memory into which an entry of just as many bytes is read, where it is there, or
                None; empty for none. Memory that was in use before is faster than mapping, if the entry is small.

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
        entries = self._several(keys, fetch, sizes, into)
        try:
            yield [entry.view for entry in entries]
        finally:
            for entry in entries:
                entry.close()

    def has(self, keys: Iterable[str | Key]) -> bool:
        """Whether there is something under all of some keys now, right or not.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=1 << 20) as cache:
            ...     with cache.entry("key", lambda: b"bytes") as view:
            ...         pass
            ...     cache.has(["key"]), cache.has(["key", "other"])
            (True, False)
        """
        return all(Path(self._disk.folder.entry(digest.hex())).exists() for digest in map(digest_of, keys))

    def there(self, keys: Sequence[str | Key]) -> list[memoryview | None]:
        """Entries as they lie there now, or None: nothing is fetched, waited for, or noted, also where one is damaged.

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
        for digest in map(digest_of, keys):
            entry = None
            with contextlib.suppress(DamagedEntryError, OSError):
                path = self._disk.folder.entry(digest.hex())
                entry = map_entry(path, digest, self._disk.most, mapped=len(keys) <= _MOST_OPEN)
            found.append(None if entry is None else entry.view)
        return found

    def _several(
        self,
        keys: Sequence[str | Key],
        fetch: FetchSeveral,
        sizes: Sequence[int | None],
        into: Sequence[memoryview | None] = (),
    ) -> list[MappedEntry | FetchedEntry]:
        asked = _Asked([digest_of(key) for key in keys], sizes, into or [None] * len(keys))
        for number in range(len(keys)):
            found, is_damaged = self._found(asked, number)
            if found is not None:
                asked.entries[number] = found
            elif is_damaged:
                asked.damaged.add(number)
        if len(asked.entries) < len(asked.digests):
            try:
                self._make(asked, fetch)
            except BaseException:
                for entry in asked.entries.values():
                    entry.close()
                raise
        return [asked.entries[number] for number in range(len(asked.digests))]

    def _found(self, asked: _Asked, number: int) -> tuple[MappedEntry | None, bool]:
        """An entry, if it is there and right; and whether it is there and damaged."""
        digest, disk = asked.digests[number], self._disk
        try:
            path = disk.folder.entry(digest.hex())
            entry = map_entry(path, digest, disk.most, mapped=asked.are_mapped, into=asked.into[number])
        except DamagedEntryError:
            return None, True
        except OSError as problem:
            disk.bypass(problem)
            return None, False
        if entry is not None:
            self._note_hit(entry, digest)
        return entry, False

    def _note_hit(self, entry: MappedEntry, digest: bytes) -> None:
        self._counts.add(hits=1, bytes_read=len(entry.view))
        try:
            if self._disk.ledger is not None:
                self._disk.ledger.note_use(entry.slot, digest)
        except OSError as problem:
            self._disk.bypass(problem)

    def _make(self, asked: _Asked, fetch: FetchSeveral) -> None:
        """Has the missing entries as they were fetched: by us, or by who did it while we waited."""
        # All take names in one order, or two who want the same would wait for each other.
        order = sorted(asked.missing, key=asked.digests.__getitem__)
        held: dict[int, Writing | None] = {}
        with contextlib.ExitStack() as names:
            for number in order[:_MOST_OPEN]:
                writing = held[number] = self._begun(asked, number)
                if writing is not None:
                    names.enter_context(writing)
                    self._find_or_remove(asked, number)
            missing = asked.missing
            if not missing:
                return
            began = time.monotonic()
            for number, data in zip(missing, fetch(missing), strict=True):
                asked.entries[number] = FetchedEntry.of(data)
            fetched = time.monotonic()
            for number in order:
                if number in missing:
                    self._take_in(asked, number, held[number] if number in held else self._begun(asked, number))
            self._disk.wrote(fetch_s=fetched - began, write_s=time.monotonic() - fetched)

    def _take_in(self, asked: _Asked, number: int, writing: Writing | None) -> None:
        """Keeps an entry that was fetched, if it can be."""
        digest, view, is_kept, evicted = asked.digests[number], asked.entries[number].view, False, 0
        if writing is not None:
            with writing:
                is_kept = self._keep(writing, digest, view)
            evicted = writing.evicted
        self._counts.add(
            misses=1,
            bytes_written=len(view) if is_kept else 0,
            bytes_evicted=evicted,
            bypassed=0 if is_kept else 1,
            damaged=int(number in asked.damaged),
        )

    def _begun(self, asked: _Asked, number: int) -> Writing | None:
        """The right to make an entry, once nobody else has it; None where it cannot be kept."""
        ledger, size = self._disk.ledger, asked.sizes[number]
        if ledger is None or (size is not None and size_on_disk(size) > ledger.most):
            return None
        return self._held(asked.digests[number])

    def _held(self, digest: bytes) -> Writing | None:
        """A name, once nobody else holds it; None where it cannot be held, or others hold it for long."""
        disk = self._disk
        if disk.ledger is None or time.monotonic() < disk.rests_until:
            return None
        try:
            return Writing.begun(disk.folder, disk.ledger, digest, patience=_PATIENCE_S)
        except OSError as problem:
            self._disk.bypass(problem)
            return None

    def _find_or_remove(self, asked: _Asked, number: int) -> None:
        """Takes the entry that somebody made meanwhile; one that is damaged is removed. The caller holds its name."""
        digest = asked.digests[number]
        entry, is_damaged = self._found(asked, number)
        asked.damaged.discard(number)
        if entry is not None:
            asked.entries[number] = entry
        elif is_damaged:
            self._counts.add(damaged=1)
            self._remove(digest)

    def _remove(self, digest: bytes) -> None:
        """Removes an entry; the caller holds its name."""
        try:
            self._disk.folder.remove_entry(digest.hex())
            if self._disk.ledger is not None:
                self._disk.ledger.release(digest)
        except OSError as problem:
            self._disk.bypass(problem)

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
        for digest in map(digest_of, keys):
            writing = self._held(digest)
            if writing is not None:
                with writing:
                    self._remove(digest)

    def _keep(self, writing: Writing, digest: bytes, payload: memoryview) -> bool:
        def write(fd: int, slot: int) -> None:
            write_entry(fd, digest, slot, payload)

        try:
            if not writing.write(HEADER + len(payload), write):
                return False
            writing.place(Path(self._disk.folder.entry(digest.hex()))).close()
        except OSError as problem:
            self._disk.bypass(problem)
            return False
        return True

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
            RequestError: A number has no key.

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
            raise RequestError(
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
            RequestError: Bytes or seconds are below 0.
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
                raise RequestError(f"{name}={asked!r}, but it must be at least 0")
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
        RequestError: It is no local directory.
    """
    return (cache_location(location) / _FOLDER).is_dir()


def _opened(location: str, limit: int | None) -> DiskCache:
    return DiskCache(location, limit=limit)


@dataclasses.dataclass(slots=True)
class _Asked:
    """Entries that are asked for at once, by number, and those that are there already."""

    digests: list[bytes]
    sizes: Sequence[int | None]
    into: Sequence[memoryview | None]
    entries: dict[int, MappedEntry | FetchedEntry] = dataclasses.field(default_factory=dict)
    damaged: set[int] = dataclasses.field(default_factory=set)

    @property
    def missing(self) -> list[int]:
        return [number for number in range(len(self.digests)) if number not in self.entries]

    @property
    def are_mapped(self) -> bool:
        """Whether each may have a file open."""
        return len(self.digests) <= _MOST_OPEN


@dataclasses.dataclass(frozen=True)
class FetchedEntry:
    """An entry as it was fetched."""

    view: memoryview
    """Its bytes."""

    @classmethod
    def of(cls, data: Any) -> Self:
        """An entry of what `fetch` gave."""
        return cls(memoryview(data).cast("B").toreadonly())

    def close(self) -> None:
        """Ends the view, unless somebody still uses it."""
        with contextlib.suppress(BufferError):
            self.view.release()
