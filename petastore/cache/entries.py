"""Cache entries: read them from the cache directory, or fetch and write them.

If several processes need the same missing entry, one process fetches and writes it for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from petastore.cache.entry_file import (
    HEADER,
    DamagedEntryError,
    Entry,
    Key,
    digest_of,
    map_entry,
    size_on_disk,
    write_entry,
)
from petastore.cache.folder import Folder, LockedFile, locked
from petastore.cache.ledger import Ledger
from petastore.cache.table import KEPT
from petastore.errors import CacheBypassWarning, StorageError
from petastore.forks import Lock

__all__ = [
    "FOLDER",
    "MOST_OPEN",
    "CacheMetrics",
    "Counts",
    "Disk",
    "Entries",
    "FetchSeveral",
    "Writing",
]


@dataclasses.dataclass(frozen=True)
class CacheMetrics:
    """Counters of a cache in this process since it was opened."""

    hits: int = 0
    """Number of entries found in the cache."""

    misses: int = 0
    """Number of entries that were fetched."""

    bytes_read: int = 0
    """Payload bytes of hits."""

    bytes_written: int = 0
    """Payload bytes of entries that were stored."""

    bytes_evicted: int = 0
    """Disk bytes of evicted entries."""

    damaged: int = 0
    """Number of damaged entries, which were removed and fetched again."""

    bypassed: int = 0
    """Number of misses that were not stored.

    These entries were too large, are needed later than the stored entries, or could not be written.
    """


class Counts:
    """Thread-safe counters of a cache.

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
        """Add to counters of `CacheMetrics`, given by keyword."""
        with self._lock:
            for name, number in more.items():
                self._counted[name] += number

    def told(self) -> CacheMetrics:
        """Return a snapshot of the counters."""
        with self._lock:
            return CacheMetrics(**self._counted)


FOLDER = "petastore-cache-1"
"""Name of the cache's folder inside the user's cache location."""

_REST_S = 60.0
"""Seconds for which nothing is written to the cache after a timeout.

A timeout means that other processes held the ledger's lock for too long.
"""

_Answer = TypeVar("_Answer")


class Disk:
    """Directory and ledger of a cache, and whether the cache is paused.

    All `DiskCache` objects that `counting_apart` makes of one cache share this object.

    Args:
        location: Directory of the cache.
        limit: Requested maximum size in bytes, or None.
    """

    def __init__(self, location: Path, limit: int | None) -> None:
        self.location, self.limit = location, limit
        self.folder = Folder(location / FOLDER)
        self.ledger: Ledger | None = None
        """Ledger (table of all entries) of the cache; None if it cannot be opened."""
        self.rests_until = 0.0
        """Time by `time.monotonic` until which nothing is written to the cache."""
        self._has_warned = False
        self._lock = Lock()
        try:
            self.ledger = Ledger(self.folder, limit)
        except OSError as problem:
            self.bypass(problem)

    @property
    def most(self) -> int:
        """Maximum size of one cache file, in bytes."""
        return sys.maxsize if self.ledger is None else self.ledger.most

    def asked_of_ledger(self, ask: Callable[[Ledger], _Answer]) -> _Answer:
        """Call a function with the ledger (the table of entries), and return its result.

        The ledger is opened if needed.

        Raises:
            StorageError: The ledger cannot be opened or locked.
        """
        try:
            self.ledger = self.ledger or Ledger(self.folder, self.limit)
            return ask(self.ledger)
        except OSError as problem:
            raise StorageError(
                f"the cache at {self.folder.root} cannot be used: {problem}. {_remedy(problem)}", errno=problem.errno
            ) from problem

    def bypass(self, problem: OSError) -> None:
        """Warn once that the cache is bypassed; after a timeout, also pause writing to it."""
        if isinstance(problem, TimeoutError):
            self.rests_until = time.monotonic() + _REST_S
        with self._lock:
            has_warned, self._has_warned = self._has_warned, True
        if not has_warned:
            warnings.warn(
                f"the cache at {self.folder.root} is bypassed, because its disk cannot be used: {problem}. Reading "
                f"continues, but data is fetched again each time. {_remedy(problem)}",
                CacheBypassWarning,
                stacklevel=2,
            )


def _remedy(problem: OSError) -> str:
    if isinstance(problem, TimeoutError):
        return "Choose a cache_location on a faster disk"
    return "Free disk space, or choose another cache_location or cache_size_limit"


Write: TypeAlias = Callable[[int, int], None]
"""Function (file descriptor, slot) that writes a file.

The slot is the number of the file's row in the ledger's table.
"""


class Writing:
    """Exclusive lock on the name of a cache entry while the entry is written.

    Other writers of the same name wait for the lock. At the end of the `with` block, the temporary file is removed,
    unless `place` has renamed it.

    Args:
        folder: Folder of the cache.
        ledger: Table of the cache's entries and their bytes.
        digest: Digest that names the entry.
        file: Locked file of that name in the directory `writing`; this object takes ownership of it.

    Raises:
        OSError: The leftover file of a killed writer cannot be removed.
    """

    def __init__(self, folder: Folder, ledger: Ledger, digest: bytes, file: LockedFile) -> None:
        self._folder = folder
        self._ledger = ledger
        self._digest = digest
        self.file: LockedFile | None = file
        self.evicted = 0
        """Number of bytes that were evicted to store this entry."""
        try:
            if os.fstat(file.fd).st_size:
                self._forget(file)  # leftover of a killed writer
        except BaseException:
            file.close()
            raise

    @classmethod
    def begun(cls, folder: Folder, ledger: Ledger, digest: bytes, *, patience: float) -> Self | None:
        """Lock the name of an entry for writing.

        Return None if another writer holds the lock until the timeout.

        Args:
            folder: Folder of the cache.
            ledger: Table of the cache's entries and their bytes.
            digest: Digest that names the entry.
            patience: Seconds to wait for another writer; 0 does not wait.

        Raises:
            OSError: The lock file cannot be opened or locked.
        """
        file = locked(folder.writing / digest.hex(), patience=patience)
        return None if file is None else cls(folder, ledger, digest, file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        file, self.file = self.file, None
        if file is None or file.fd < 0:
            return
        try:
            with contextlib.suppress(OSError):  # if this fails, the file is removed when the cache is opened again
                if os.fstat(file.fd).st_size:
                    self._forget(file)
                file.path.unlink()
        finally:
            file.close()

    def write(self, size: int, write: Write, *, has_to: bool = False) -> bool:
        """Write an entry to a temporary file; if the cache is full, evict entries first.

        Args:
            size: Final size of the file in bytes.
            write: Function that writes the file.
            has_to: Whether the entry must be stored, even if entries that are needed sooner are evicted.

        Returns: Whether the entry was admitted.

        Raises:
            OSError: The file cannot be written.
        """
        assert self.file is not None, "the block has ended"  # noqa: S101 - for type checkers
        slot, self.evicted = self._ledger.reserve(self.file, size, has_to=has_to)
        if slot is None:
            return False
        write(self.file.fd, slot)
        return True

    def place(self, target: Path, state: int = KEPT) -> LockedFile:
        """Rename the written file to its final path, and record its state in the ledger.

        Args:
            target: Final path.
            state: State of the file's row in the table, such as `KEPT` for an entry.

        Returns:
            The locked file, which the caller must close.

        Raises:
            OSError: The file cannot be renamed, or the ledger cannot be used. The next process that opens the cache
                repairs this.
        """
        file = self.file
        assert file is not None, "the block has ended"  # noqa: S101 - for type checkers
        self._folder.rename(file.path, target)
        self.file, file.path = None, target  # from now on, another writer may use this name under `writing`
        try:
            if not self._ledger.commit(self._digest, state):
                target.unlink(missing_ok=True)
        except BaseException:
            file.close()
            raise
        return file

    def _forget(self, file: LockedFile) -> None:
        os.ftruncate(file.fd, 0)  # truncate before the bytes are subtracted, because all bytes on disk must be counted
        self._ledger.release(self._digest)


FetchSeveral: TypeAlias = Callable[[Sequence[int]], Sequence[Any]]
"""Function from indices into a list of keys to the bytes of each key, as buffers.

The buffers are C-contiguous.
"""

MOST_OPEN = 64
"""Maximum number of entry files that one call opens.

A process may have only about a thousand open files in total.
"""

FETCH_PATIENCE_S = 30.0
"""Seconds to wait for another process that fetches the same entry.

After this time, this process fetches the entry as well.
"""


@dataclasses.dataclass(slots=True)
class _Asked:
    """State of one call of `Entries.of`: the requested entries, and the entries found so far.

    Methods of `Entries` identify an entry by its number, which is its index in `digests`.
    """

    digests: list[bytes]
    sizes: Sequence[int | None]
    entries: dict[int, Entry] = dataclasses.field(default_factory=dict)
    damaged: set[int] = dataclasses.field(default_factory=set)

    @property
    def missing(self) -> list[int]:
        return [number for number in range(len(self.digests)) if number not in self.entries]

    @property
    def are_mapped(self) -> bool:
        """Whether to memory-map the entry files, instead of copying their bytes.

        This is done only for a few entries, because a mapped file stays open.
        """
        return len(self.digests) <= MOST_OPEN


class Entries:
    """Finds, fetches and writes the entries of a cache directory. Thread-safe.

    Args:
        disk: Directory of the entries.
        counts: Counters of hits, misses and bytes.
    """

    def __init__(self, disk: Disk, counts: Counts) -> None:
        self._disk, self._counts = disk, counts

    def of(
        self,
        keys: Sequence[str | Key],
        fetch: FetchSeveral,
        sizes: Sequence[int | None],
    ) -> list[Entry]:
        """Return the entries of several keys, in order; fetch and write missing entries.

        Args:
            keys: Distinct keys.
            fetch: Function that takes indices into `keys` and returns the bytes of these keys; called only for missing
                entries.
            sizes: Number of bytes of each key, or None if unknown.
        """
        asked = _Asked([digest_of(key) for key in keys], sizes)
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

    def _found(self, asked: _Asked, number: int) -> tuple[Entry | None, bool]:
        """Read an entry file; return (entry or None, whether the file exists but is damaged)."""
        digest, disk = asked.digests[number], self._disk
        try:
            path = disk.folder.entry(digest.hex())
            entry = map_entry(path, digest, disk.most, mapped=asked.are_mapped)
        except DamagedEntryError:
            return None, True
        except OSError as problem:
            disk.bypass(problem)
            return None, False
        if entry is not None:
            self._note_hit(entry, digest)
        return entry, False

    def _note_hit(self, entry: Entry, digest: bytes) -> None:
        self._counts.add(hits=1, bytes_read=len(entry.view))
        try:
            if self._disk.ledger is not None:
                self._disk.ledger.note_use(entry.slot, digest)
        except OSError as problem:
            self._disk.bypass(problem)

    def _make(self, asked: _Asked, fetch: FetchSeveral) -> None:
        """Fetch the missing entries, unless another process has fetched them meanwhile."""
        # Names are locked in a fixed order, so that two processes that want the same entries do not deadlock.
        order = sorted(asked.missing, key=asked.digests.__getitem__)
        held: dict[int, Writing | None] = {}
        with contextlib.ExitStack() as names:
            for number in order[:MOST_OPEN]:
                writing = held[number] = self._begun(asked, number)
                if writing is not None:
                    names.enter_context(writing)
                    self._find_or_remove(asked, number)
            missing = asked.missing
            if not missing:
                return
            for number, data in zip(missing, fetch(missing), strict=True):
                asked.entries[number] = Entry.of(data)
            for number in order:
                if number in missing:
                    writing = held[number] if number in held else self._begun(asked, number)
                    self._take_in(asked, number, writing)

    def _take_in(self, asked: _Asked, number: int, writing: Writing | None) -> None:
        """Count a miss, and write the fetched entry to the cache.

        The entry is not written if it is needed later than the entries that would be evicted.
        """
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
        """Lock the name of an entry for writing, after waiting for other writers.

        Return None if the entry is too large for the cache, after the timeout, or while the cache is paused.
        """
        ledger, size = self._disk.ledger, asked.sizes[number]
        if ledger is None or (size is not None and size_on_disk(size) > ledger.most):
            return None
        return self._held(asked.digests[number])

    def _held(self, digest: bytes) -> Writing | None:
        """Lock the name of an entry; return None after the timeout or while paused."""
        disk = self._disk
        if disk.ledger is None or time.monotonic() < disk.rests_until:
            return None
        try:
            return Writing.begun(disk.folder, disk.ledger, digest, patience=FETCH_PATIENCE_S)
        except OSError as problem:
            self._disk.bypass(problem)
            return None

    def _find_or_remove(self, asked: _Asked, number: int) -> None:
        """Use an entry that another process wrote meanwhile; if it is damaged, remove it.

        The caller holds the lock on the entry's name.
        """
        digest = asked.digests[number]
        entry, is_damaged = self._found(asked, number)
        asked.damaged.discard(number)
        if entry is not None:
            asked.entries[number] = entry
        elif is_damaged:
            self._counts.add(damaged=1)
            self._remove(digest)

    def _remove(self, digest: bytes) -> None:
        """Delete the file of an entry, and free its row in the ledger.

        The caller holds the lock on the entry's name.
        """
        try:
            self._disk.folder.remove_entry(digest.hex())
            if self._disk.ledger is not None:
                self._disk.ledger.release(digest)
        except OSError as problem:
            self._disk.bypass(problem)

    def discard(self, keys: Iterable[str | Key]) -> None:
        """Remove entries whose bytes turned out to be unusable. Views of their bytes stay valid."""
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
