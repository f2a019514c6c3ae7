"""What is asked of a storage, counted."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from petastore.forks import Lock

__all__ = ["Counts", "Tally"]


class Counts(NamedTuple):
    """What was asked of a storage so far."""

    requests: int = 0
    """Requests, those that failed too."""

    bytes: int = 0
    """Bytes of the answers that were taken."""

    again: int = 0
    """Requests that had to be made again."""

    hedged: int = 0
    """Requests that were made a second time, while the first was late."""

    damaged: int = 0
    """Row groups and footers that came damaged, and were asked for once more."""


class Tally:
    """Counts what several fetchers ask of a storage, one after the other or at once. Thread-safe; a copy begins at 0.

    Example:
        >>> tally = Tally()
        >>> tally.add(Counts(requests=2, bytes=10))
        >>> tally.counts
        Counts(requests=2, bytes=10, again=0, hedged=0, damaged=0)
    """

    def __init__(self) -> None:
        self._counts = Counts()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tally, ()

    @property
    def counts(self) -> Counts:
        """What was asked so far."""
        return self._counts

    def add(self, more: Counts) -> None:
        """Counts more."""
        with self._lock:
            self._counts = Counts(*map(operator.add, self._counts, more))
