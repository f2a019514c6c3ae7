"""The disk of a cache: its files and their ledger, and whether they take part."""

from __future__ import annotations

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
"""Seconds without writes after other processes held the lock of the ledger for too long."""

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
