"""Counters of the requests to a storage."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from petastore.forks import Lock

__all__ = ["RequestCounter", "RequestCounts"]


class RequestCounts(NamedTuple):
    """Numbers of requests, bytes and retries."""

    requests: int = 0
    """Requests, including those that failed."""

    bytes: int = 0
    """Bytes of all answers."""

    again: int = 0
    """Retries; each is one of the requests."""

    damaged: int = 0
    """Row groups and footers that arrived damaged and were read a second time."""


class RequestCounter:
    """Counts the requests of several fetchers. Thread-safe; a copy begins at 0.

    Example:
        >>> counter = RequestCounter()
        >>> counter.add(RequestCounts(requests=2, bytes=10))
        >>> counter.counts
        RequestCounts(requests=2, bytes=10, again=0, damaged=0)
    """

    def __init__(self) -> None:
        self._counts = RequestCounts()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return RequestCounter, ()

    @property
    def counts(self) -> RequestCounts:
        """The counts so far."""
        return self._counts

    def add(self, more: RequestCounts) -> None:
        """Add to the counts."""
        with self._lock:
            self._counts = RequestCounts(*map(operator.add, self._counts, more))
