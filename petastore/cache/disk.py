"""The disk of a cache: its files and their ledger, and whether they take part."""

from __future__ import annotations

import errno
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from petastore.cache.folder import Folder
from petastore.cache.ledger import Ledger
from petastore.errors import CacheBypassWarning, StorageError
from petastore.forks import Lock

__all__ = ["FOLDER", "Disk"]

FOLDER = "petastore-cache-1"
"""The folder of a cache, in the directory that was asked for."""

_REST_S = 60.0
"""How long a ledger that others hold for long is let alone, and a disk that is slow."""

_LONG_S = 5.0
"""A disk that took less time than this is not slow, however fast what it took it for was fetched."""

_Answer = TypeVar("_Answer")


class Disk:
    """The files of a cache, and whether they take part; shared by all who count by themselves what they ask of it.

    Args:
        location: A directory.
        limit: As asked for.
    """

    def __init__(self, location: Path, limit: int | None) -> None:
        self.location, self.limit = location, limit
        self.folder = Folder(location / FOLDER)
        self.ledger: Ledger | None = None
        """None where it cannot be opened."""
        self.rests_until = 0.0
        """Until when nothing is written to it."""
        self._reads_rest_until = 0.0
        self._read_s = self._fetch_s = 0.0
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

    @property
    def is_read(self) -> bool:
        """Whether entries are looked for: not for a while where to fetch them takes less time."""
        return not self._reads_rest_until or time.monotonic() >= self._reads_rest_until

    def read(self, *, fetch_s: float, read_s: float) -> None:
        """Says how long it took to fetch an entry once, and to look at it now: a disk that is slower is let alone.

        What it took to fetch them, entries say themselves: so the storage is asked for nothing to find that out.
        """
        with self._lock:
            self._fetch_s, self._read_s = self._fetch_s + fetch_s, self._read_s + read_s
            if self._read_s <= _LONG_S:
                return
            fetch_s, read_s = self._fetch_s, self._read_s
            self._fetch_s = self._read_s = 0.0
        if read_s > fetch_s:
            slow = f"it took {read_s:.1f} s to read what was fetched in {fetch_s:.1f}"
            self._reads_rest_until = time.monotonic() + _REST_S
            self.bypass(TimeoutError(errno.ETIMEDOUT, slow, str(self.folder.root)))

    def read_after_all(self) -> None:
        """Entries are looked for again: the storage does not give them."""
        self._reads_rest_until = 0.0

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
