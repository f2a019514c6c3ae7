"""Entries that are asked for: as they lie on the disk, or fetched and kept, by one for all who want them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

from petastore.cache.disk import Disk
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
from petastore.cache.metrics import Counts
from petastore.cache.writing import Writing

__all__ = ["FETCH_PATIENCE_S", "MOST_OPEN", "Entries", "FetchSeveral", "FetchedEntry"]

FetchSeveral: TypeAlias = Callable[[Sequence[int]], Sequence[Any]]
"""Gives the bytes of several keys, by their numbers, each as any C-contiguous buffer."""

MOST_OPEN = 64
"""Files of entries that are open for what is asked for at once: a process may have a thousand or so, for everything."""

FETCH_PATIENCE_S = 30.0
"""How long one waits for others who fetch the same, before one fetches it, too."""


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
        return len(self.digests) <= MOST_OPEN


class Entries:
    """Finds and makes the entries of a disk. Thread-safe.

    Args:
        disk: Where they lie.
        counts: What is counted of it.
    """

    def __init__(self, disk: Disk, counts: Counts) -> None:
        self._disk, self._counts = disk, counts

    def of(
        self,
        keys: Sequence[str | Key],
        fetch: FetchSeveral,
        sizes: Sequence[int | None],
        into: Sequence[memoryview | None] = (),
    ) -> list[MappedEntry | FetchedEntry]:
        """As `DiskCache.entries` gives them."""
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
            for number in order[:MOST_OPEN]:
                writing = held[number] = self._begun(asked, number)
                if writing is not None:
                    names.enter_context(writing)
                    self._find_or_remove(asked, number)
            missing = asked.missing
            if not missing:
                return
            for number, data in zip(missing, fetch(missing), strict=True):
                asked.entries[number] = FetchedEntry.of(data)
            for number in order:
                if number in missing:
                    writing = held[number] if number in held else self._begun(asked, number)
                    self._take_in(asked, number, writing)

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
            return Writing.begun(disk.folder, disk.ledger, digest, patience=FETCH_PATIENCE_S)
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
        """As `DiskCache.discard`."""
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
