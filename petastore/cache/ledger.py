"""Cache ledger: count the bytes of each file, admit new entries, evict entries.

All processes share the table of the ledger. A process changes the table only while it holds the lock on the file
`lock`. This usually takes much less than a millisecond; selecting entries to evict takes longer. While a process holds
the lock, it does not fetch, read, write or remove entries, except when it rebuilds the table. Bytes are counted from
before they are written until after they are removed:

* A reservation is a row of the table, and extends the reserved file to its final size. If the table is rebuilt from the
  existing files, it therefore includes files that other processes are about to write.
* An evicted entry is first marked in the table, then its file is removed without the lock, and then its bytes are
  subtracted. If a process is killed in between, the mark stays, and the next process that opens the cache finishes the
  removal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from petastore.cache.entry_file import blocks
from petastore.cache.folder import Folder, LockedFile, limit_of_free_disk, locked, names_in
from petastore.cache.next_use import (
    BATCHES,
    LATEST,
    FutureFile,
    LastRejection,
    eviction_order,
    first_words,
    open_futures,
    victims,
)
from petastore.cache.table import FREE, FUTURE, KEPT, WRITING, DamagedTableError, Rows, Table, slots_for, table_bytes
from petastore.forks import Lock, made_anew_in_children

__all__ = ["CacheContents", "Ledger"]

LOCK_PATIENCE_S = 5.0
"""Seconds to wait for the lock before the cache is bypassed."""

_ROUNDS = 8
"""Maximum attempts to evict entries; other processes may take the freed space."""

_NEEDED_NOW = -1


@dataclasses.dataclass(frozen=True)
class CacheContents:
    """Contents of a cache on disk, written by all processes."""

    location: Path
    """Folder of the cache."""

    limit: int
    """Maximum total bytes of all files of the cache."""

    entries: int
    """Number of stored entries."""

    entry_bytes: int
    """Disk bytes of the entries, in whole blocks of 4 KiB."""

    ledger_bytes: int
    """Bytes of the ledger file, which counts the entries."""

    readers: int
    """Number of running readers that announced their future uses."""


class Ledger:
    """Counts the disk usage of a cache, admits entries and evicts them. Thread-safe.

    A forked child reopens the table.

    Args:
        folder: Files of the cache; created if missing.
        limit: Maximum total bytes of the files; None means the limit set last, or else a share of the free disk space.

    Raises:
        OSError: The ledger cannot be used: missing permission, a read-only disk, or other processes hold the lock for
            too long.
    """

    def __init__(self, folder: Folder, limit: int | None) -> None:
        self._folder = folder
        self._limit = limit
        self._threads = Lock()
        self.most = 0
        """Maximum bytes of one entry."""
        folder.make()
        self.make_anew()
        made_anew_in_children(self)
        with self._section() as table:
            if limit is not None and table.limit != limit:
                self._build(limit)
        self.settle()

    def make_anew(self) -> None:
        """Forget the open table and the readers' files; the next call opens them again.

        For a forked child, for `close`, and before another table is used.
        """
        self._table: Table | None = None
        self._rejection = LastRejection()
        self._announced: list[str] = []
        self._futures: list[FutureFile] = []

    def close(self) -> None:
        """Close the open files; the next call reopens them."""
        with self._threads:
            self.make_anew()

    # Add and remove rows

    def reserve(self, file: LockedFile, size: int, *, has_to: bool = False) -> tuple[int | None, int]:
        """Reserve disk usage for a file that will be written, and evict entries if needed.

        Args:
            file: File that the caller has locked. Rows of the table that already have its name are freed, because their
                files were removed.
            size: Final size of the file in bytes.
            has_to: Whether the file must be stored, even if entries that are needed sooner are evicted.

        Returns:
            The row number (slot) of the file, and the number of evicted bytes. The slot is None if the file is not
            admitted, because the stored entries are needed sooner or cannot be evicted.

        Raises:
            OSError: The ledger cannot be used, or an evicted file cannot be removed.
        """
        digest, counts = bytes.fromhex(file.path.name), blocks(size)
        leaving: dict[int, int] = {}
        evicted = 0
        for _ in range(_ROUNDS):
            with self._section() as table:
                evicted += self._left(table, leaving)
                for slot in table.find(digest):
                    if table.state[slot] in (KEPT, WRITING):
                        table.free(slot)
                leave = self._victims(table, digest, counts, has_to=has_to)
                if not leave:
                    taken = None if leave is None else table.take(digest, counts, WRITING, 0)
                    if taken is not None:
                        self._lengthen(table, taken, file, size)
                    return taken, evicted
                leaving = self._marked(table, leave)
            self._remove(table, leaving)
        with self._section() as table:
            return None, evicted + self._left(table, leaving)

    @staticmethod
    def _lengthen(table: Table, slot: int, file: LockedFile, size: int) -> None:
        try:
            os.ftruncate(file.fd, size)
        except BaseException:
            table.free(slot)
            raise

    def _victims(self, table: Table, digest: bytes, size: int, *, has_to: bool) -> list[int] | None:
        """Return the table rows of the entries to evict for a new entry.

        The list is empty if nothing must be evicted. Return None if the new entry is not admitted.
        """
        need = table.counted + size - table.room
        rows = int(table.rows == table.slots and not (table.state == FREE).any())
        if need <= 0 and not rows:
            return []
        if size > table.room:
            return None
        readers = self._living_readers(table)
        words, latest = first_words([digest]), np.array([LATEST])
        incoming = _NEEDED_NOW if has_to else int(eviction_order(words, latest, readers, are_in_use=True)[0])
        if self._rejection.applies(readers, incoming):
            return None
        state = table.state[: table.rows]
        kept, room = np.flatnonzero(state == KEPT), table.room - int(table.size[: table.rows][state == FUTURE].sum())
        needed = eviction_order(table.digest[kept, 0], table.used[kept], readers)
        batch = room // BATCHES, table.slots // BATCHES
        found = victims(needed, table.size[kept], incoming, least=(need, rows), batch=batch)
        if found is not None:
            return kept[found].tolist()
        if len(kept) and needed.max() <= incoming:
            self._rejection.note(readers, int(needed.max()))
        return None

    def _living_readers(self, table: Table) -> list[FutureFile]:
        names = [table.name(slot) for slot in np.flatnonzero(table.state[: table.rows] == FUTURE).tolist()]
        if names != self._announced:
            self._announced = names
            self._futures = open_futures(self._folder.futures, names)
        self._futures = [future for future in self._futures if future.is_living]
        return self._futures

    @staticmethod
    def _marked(table: Table, slots: Iterable[int]) -> dict[int, int]:
        """Set rows to the state "being removed"; return a dict from row to mark.

        A mark is a random negative number, unique for each row, which is stored as the row's state.
        """
        marks = {slot: -1 - secrets.randbits(62) for slot in slots}
        for slot, mark in marks.items():
            table.set_state(slot, mark)
        return marks

    def _remove(self, table: Table, leaving: dict[int, int]) -> None:
        """Delete the files of evicted entries.

        The caller does not hold the lock of the ledger.
        """
        for slot in leaving:
            self._folder.remove_entry(table.name(slot))

    @staticmethod
    def _left(table: Table, leaving: dict[int, int]) -> int:
        """Free the table rows of deleted files; return the freed bytes.

        Rows that another process has already freed are skipped.
        """
        size = 0
        for slot, mark in leaving.items():
            if slot < table.slots and table.state[slot] == mark:
                size += int(table.size[slot])
                table.free(slot)
        leaving.clear()
        return size

    def commit(self, digest: bytes, state: int = KEPT) -> bool:
        """Record that a reserved file is written and renamed to its final path.

        Args:
            digest: Digest that names the file.
            state: New state of the file's row in the table, such as `KEPT` for an entry.

        Returns:
            False if the table has no row for the file, which the caller must then remove.
        """
        with self._section() as table:
            slots = table.find(digest)
            for slot in slots:
                if table.state[slot] == WRITING:
                    table.note_use(slot, time.time_ns())
                    table.set_state(slot, state)
            return any(table.state[slot] == state for slot in slots)

    def release(self, digest: bytes, *, is_there: bool = False) -> None:
        """Free the table rows of a removed file, so that its bytes are no longer counted.

        The caller holds the lock on the file in the directory `writing` or `futures`.

        Args:
            digest: Digest that names the file.
            is_there: Whether only a temporary file was removed, and an entry with this digest exists. One row then
                stays, and counts the entry.
        """
        with self._section() as table:
            for slot in table.find(digest):
                if is_there and table.state[slot] in (KEPT, WRITING):
                    table.set_state(slot, KEPT)
                    is_there = False
                elif table.state[slot] > 0:
                    table.free(slot)

    def note_use(self, slot: int, digest: bytes) -> None:
        """Record the time of an entry's use, without the lock."""
        table = self._table
        if table is None:
            with self._section() as table:
                pass
        if table.is_row_of(slot, digest):
            table.note_use(slot, time.time_ns())
            return
        for found in table.find(digest):  # the table was rebuilt since the entry was written
            table.note_use(found, time.time_ns())

    # Leftovers of killed processes

    def settle(self) -> None:
        """Delete temporary files and table rows that killed processes have left.

        Raises:
            OSError: A file cannot be removed.
        """
        with self._section() as table:
            state = table.state[: table.rows]
            names = {table.name(slot) for slot in np.flatnonzero(state == WRITING).tolist()}
            leaving = {slot: int(state[slot]) for slot in np.flatnonzero(state < 0).tolist()}
            futures = {table.name(slot) for slot in np.flatnonzero(state == FUTURE).tolist()}
        self._remove(table, leaving)
        for name in names | names_in(self._folder.writing):
            self._settle_file(self._folder.writing / name)
        for name in futures | names_in(self._folder.futures):
            self._settle_file(self._folder.futures / name)
        with self._section() as table:
            self._left(table, leaving)

    def _settle_file(self, path: Path) -> None:
        held = locked(path, patience=0)
        if held is None:
            return
        with held:
            if path.parent == self._folder.writing:
                # Truncate first, because all bytes on disk must be counted; delete the name last, because it is locked.
                os.ftruncate(held.fd, 0)
            else:
                path.unlink(missing_ok=True)  # not truncated, because other processes may have mapped the file
            with contextlib.suppress(ValueError):  # the name has another format
                self.release(bytes.fromhex(path.name), is_there=Path(self._folder.entry(path.name)).exists())
            path.unlink(missing_ok=True)

    # All rows

    def clear(self, *, but_bytes: int = 0, but_since: int = sys.maxsize) -> int:
        """Remove entries, and return the number of freed bytes.

        Args:
            but_bytes: Maximum bytes of the entries that stay, which are the most recently used ones.
            but_since: Time in nanoseconds since 1970; entries that were last used before it do not stay.

        Raises:
            OSError: An entry cannot be removed.
        """
        with self._section() as table:
            kept = np.flatnonzero(table.state[: table.rows] == KEPT)
            kept = kept[np.argsort(-table.used[kept], kind="stable")]
            stays = (np.cumsum(table.size[kept]) <= but_bytes) & (table.used[kept] >= but_since)
            leaving = self._marked(table, kept[~stays].tolist())
        self._remove(table, leaving)
        with self._section() as table:
            return self._left(table, leaving)

    def rebuild(self) -> int:
        """Rebuild the table from the existing files; return the number of freed bytes.

        Raises:
            OSError: Files cannot be read or removed.
        """
        self.settle()
        with self._section() as table:
            before = table.counted
            return before - self._build(table.limit).counted

    def contents(self) -> CacheContents:
        """Return the contents of the cache."""
        with self._section() as table:
            readers = self._living_readers(table)
            kept = table.state[: table.rows] == KEPT
            size = int(table.size[: table.rows][kept].sum())
            ledger_bytes, root = table_bytes(table.slots), self._folder.root
            return CacheContents(root, table.limit, int(kept.sum()), size, ledger_bytes, len(readers))

    # Creation of the table

    @contextlib.contextmanager
    def _section(self) -> Iterator[Table]:
        """Context manager that holds the lock of the ledger, and yields its table."""
        with self._threads:
            lock = locked(self._folder.lock, patience=LOCK_PATIENCE_S)
            if lock is None:
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    f"other processes have held the lock of the cache for {LOCK_PATIENCE_S:g} s",
                    str(self._folder.lock),
                )
            with lock:
                yield self._current()

    def _current(self) -> Table:
        if self._table is not None:
            with contextlib.suppress(FileNotFoundError):
                found = self._folder.ledger.stat()
                if (found.st_dev, found.st_ino) == self._table.identity:
                    return self._table
        try:
            return self._begin_with(Table.open(self._folder.ledger))
        except DamagedTableError as problem:
            return self._build(self._limit or problem.limit)

    def _begin_with(self, table: Table) -> Table:
        self.make_anew()
        self._table = table
        self.most = table.room
        return table

    def _build(self, limit: int | None) -> Table:
        """Replace the table by a new one that counts the existing files."""
        files = self._folder.files()
        if self._table is not None:
            files = _with_last_uses(files, self._table)
        limit = limit_of_free_disk(self._folder.root) + int(files.size.sum()) if limit is None else limit
        files = self._without_oldest(files, limit)
        # The old table is deleted before the new one is written, because both together might exceed the limit.
        self._folder.ledger.unlink(missing_ok=True)
        return self._begin_with(Table.create(self._folder.ledger, limit, files))

    def _without_oldest(self, files: Rows, limit: int) -> Rows:
        """Remove least recently used entries down to the limit; return the rows that stay."""
        slots = slots_for(limit)
        order = np.lexsort((-files.used, files.state == KEPT))
        fits = np.cumsum(files.size[order]) <= limit - table_bytes(slots)
        fits[slots:] = False
        for place in order[~fits].tolist():
            if files.state[place] == KEPT:
                self._folder.remove_entry(files.digest[place].tobytes().hex())
        return files[order[fits | (files.state[order] != KEPT)][:slots]]


def _with_last_uses(files: Rows, table: Table) -> Rows:
    """Return the rows with times of last use from a table; files that it lacks keep their times."""
    rows = table.rows
    order = np.argsort(table.digest[:rows, 0])
    words = table.digest[:rows, 0][order]
    places = np.minimum(np.searchsorted(words, files.digest[:, 0]), max(rows - 1, 0))
    if not rows:
        return files
    known = words[places] == files.digest[:, 0]
    return dataclasses.replace(files, used=np.where(known, table.used[:rows][order][places], files.used))
