"""The ledger: what each file of a cache counts, what may come in, and what has to go.

All processes share its table. Who changes it holds the lock on the file `lock`, for well under a millisecond unless a
batch of entries has to be found for eviction, and neither fetches, reads, writes nor removes entries meanwhile, but
where the table is made anew. Bytes are counted before they are written and until they are removed:

* A reservation is a row, and makes the file that it is for as long as it will be. So a table that has to be made anew,
  from the files that are there, counts what others are about to write.
* What goes is marked first, then removed without the lock, and then counts no more. Who is killed in between leaves a
  mark, on which the next one to open the cache acts.
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

from petastore.cache.folder import Folder, blocks, names_in
from petastore.cache.location import limit_of_free_disk
from petastore.cache.locks import LockedFile, locked
from petastore.cache.table import FREE, FUTURE, KEPT, WRITING, DamagedTableError, Rows, Table, slots_for, table_bytes
from petastore.cache.uses.futures import FutureFile, open_futures
from petastore.cache.uses.next_use import BATCHES, LATEST, LastRejection, eviction_order, first_words, victims
from petastore.forks import Lock, made_anew_in_children

__all__ = ["LOCK_PATIENCE_S", "Ledger", "Totals"]

LOCK_PATIENCE_S = 5.0
"""How long others may hold the lock before the cache is done without."""

_ROUNDS = 8
"""How often others may take the room that was made before one gives up."""

_NEEDED_NOW = -1


@dataclasses.dataclass(frozen=True)
class Totals:
    """What a ledger counts."""

    limit: int
    """Bytes that may be."""

    ledger_bytes: int
    """Bytes of its own file."""

    entries: int
    """Entries that are kept."""

    bytes: int
    """Bytes of these."""

    readers: int
    """Living readers."""


class Ledger:
    """The bookkeeping of one cache. Thread-safe; a forked child opens the table anew.

    Args:
        folder: The files of the cache; made where there are none.
        limit: Bytes that all of them may have together; None for what was asked last, else a share of the disk.

    Raises:
        OSError: There can be none: no permission, read-only, or others hold the lock for long.
    """

    def __init__(self, folder: Folder, limit: int | None) -> None:
        self._folder = folder
        self._limit = limit
        self._threads = Lock()
        self.most = 0
        """Bytes that one entry may have."""
        folder.make()
        self.make_anew()
        made_anew_in_children(self)
        with self._section() as table:
            if limit is not None and table.limit != limit:
                self._build(limit)
        self.settle()

    def make_anew(self) -> None:
        """Knows nothing of the table yet."""
        self._table: Table | None = None
        self._rejection = LastRejection()
        self._announced: list[str] = []
        self._futures: list[FutureFile] = []

    def close(self) -> None:
        """Gives open files back; the next call opens them again."""
        with self._threads:
            self.make_anew()

    # Rows come and go

    def reserve(self, file: LockedFile, size: int, *, has_to: bool = False) -> tuple[int | None, int]:
        """Counts a file that is about to be written under `writing`, and makes it that long.

        Args:
            file: Held by the caller: whatever rows its name had are of files that are gone.
            size: Bytes that it will have.
            has_to: It is needed sooner than any entry.

        Returns:
            Its slot, or None where it is not to come in: what is there is needed sooner, or cannot go. And how many
            bytes went for it.

        Raises:
            OSError: The ledger cannot be used, or what has to go cannot be removed.
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
        """The rows that go for another one; None where it is not to come in."""
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
        """Marks rows as leaving; their marks by slot, which nobody else has."""
        marks = {slot: -1 - secrets.randbits(62) for slot in slots}
        for slot, mark in marks.items():
            table.set_state(slot, mark)
        return marks

    def _remove(self, table: Table, leaving: dict[int, int]) -> None:
        """Removes the files of rows that are marked; the lock is not held."""
        for slot in leaving:
            self._folder.remove_entry(table.name(slot))

    @staticmethod
    def _left(table: Table, leaving: dict[int, int]) -> int:
        """Frees rows whose files were removed, unless somebody else did; the bytes that they counted."""
        size = 0
        for slot, mark in leaving.items():
            if slot < table.slots and table.state[slot] == mark:
                size += int(table.size[slot])
                table.free(slot)
        leaving.clear()
        return size

    def commit(self, digest: bytes, state: int = KEPT) -> bool:
        """Notes that a file which was reserved is written, and has its place.

        Returns:
            False where nothing counts it: it has to be removed.
        """
        with self._section() as table:
            slots = table.find(digest)
            for slot in slots:
                if table.state[slot] == WRITING:
                    table.note_use(slot, time.time_ns())
                    table.set_state(slot, state)
            return any(table.state[slot] == state for slot in slots)

    def release(self, digest: bytes, *, is_there: bool = False) -> None:
        """Counts a file no more that is gone; the caller holds the file of that name under `writing`, or of the future.

        Args:
            digest: Whose.
            is_there: There is an entry, after all: it goes on being counted.
        """
        with self._section() as table:
            for slot in table.find(digest):
                if is_there and table.state[slot] in (KEPT, WRITING):
                    table.set_state(slot, KEPT)
                    is_there = False
                elif table.state[slot] > 0:
                    table.free(slot)

    def note_use(self, slot: int, digest: bytes) -> None:
        """Notes that an entry is used now; takes no lock."""
        table = self._table
        if table is None:
            with self._section() as table:
                pass
        if table.is_row_of(slot, digest):
            table.note_use(slot, time.time_ns())
            return
        for found in table.find(digest):  # the table was made anew since the entry was written
            table.note_use(found, time.time_ns())

    # What killed processes left

    def settle(self) -> None:
        """Cleans up what killed processes left, and touches nothing of those that live.

        Raises:
            OSError: It cannot be removed.
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
                os.ftruncate(held.fd, 0)  # its bytes go before what counts them, and its name, which is held, last
            else:
                path.unlink(missing_ok=True)  # never shorter: others may look at it in memory
            with contextlib.suppress(ValueError):  # a name that is none of ours
                self.release(bytes.fromhex(path.name), is_there=Path(self._folder.entry(path.name)).exists())
            path.unlink(missing_ok=True)

    # All rows

    def clear(self, *, but_bytes: int = 0, but_since: int = sys.maxsize) -> int:
        """Removes entries; the bytes that they counted.

        Args:
            but_bytes: So many stay of those that were used last.
            but_since: Of these, those stay that were used since then, in nanoseconds since 1970.

        Raises:
            OSError: They cannot be removed.
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
        """Makes the table anew of the files that are there; the bytes that count less than before.

        Raises:
            OSError: Files cannot be read or removed.
        """
        self.settle()
        with self._section() as table:
            before = table.counted
            return before - self._build(table.limit).counted

    def totals(self) -> Totals:
        """What is counted now."""
        with self._section() as table:
            readers = self._living_readers(table)
            kept = table.state[: table.rows] == KEPT
            size = int(table.size[: table.rows][kept].sum())
            return Totals(table.limit, table_bytes(table.slots), int(kept.sum()), size, len(readers))

    # The table, and how it is made

    @contextlib.contextmanager
    def _section(self) -> Iterator[Table]:
        """Hold the lock of the table, so that no other thread or process changes it."""
        with self._threads:
            lock = locked(self._folder.lock, patience=LOCK_PATIENCE_S)
            if lock is None:
                raise TimeoutError(errno.ETIMEDOUT, "others hold its lock", str(self._folder.lock))
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
        """A new table of the files that are there, in the place of what there is."""
        files = self._folder.files()
        if self._table is not None:
            files = _with_last_uses(files, self._table)
        limit = limit_of_free_disk(self._folder.root) + int(files.size.sum()) if limit is None else limit
        files = self._without_oldest(files, limit)
        self._folder.ledger.unlink(missing_ok=True)  # before there is another: both might be above the limit
        return self._begin_with(Table.create(self._folder.ledger, limit, files))

    def _without_oldest(self, files: Rows, limit: int) -> Rows:
        """Removes the entries that were used longest ago, until the rest is within the limit."""
        slots = slots_for(limit)
        order = np.lexsort((-files.used, files.state == KEPT))
        fits = np.cumsum(files.size[order]) <= limit - table_bytes(slots)
        fits[slots:] = False
        for place in order[~fits].tolist():
            if files.state[place] == KEPT:
                self._folder.remove_entry(files.digest[place].tobytes().hex())
        return files[order[fits | (files.state[order] != KEPT)][:slots]]


def _with_last_uses(files: Rows, table: Table) -> Rows:
    """The same rows, with the last uses that a table knows."""
    rows = table.rows
    order = np.argsort(table.digest[:rows, 0])
    words = table.digest[:rows, 0][order]
    places = np.minimum(np.searchsorted(words, files.digest[:, 0]), max(rows - 1, 0))
    if not rows:
        return files
    known = words[places] == files.digest[:, 0]
    return dataclasses.replace(files, used=np.where(known, table.used[:rows][order][places], files.used))
