"""Storage request counters: requests, bytes and retries."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from petastore.forks import Lock

__all__ = ["RequestCounter", "RequestCounts"]


class RequestCounts(NamedTuple):
    """Numbers of requests, bytes and retries."""

    requests: int = 0
    """Number of requests, including failed ones and retries."""

    bytes: int = 0
    """Bytes of all responses."""

    again: int = 0
    """Number of retries, which are also counted in `requests`."""

    damaged: int = 0
    """Number of row groups and footers that arrived damaged and were fetched again."""


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
        """Return the current counts."""
        return self._counts

    def add(self, more: RequestCounts) -> None:
        """Add to the counts."""
        with self._lock:
            self._counts = RequestCounts(*map(operator.add, self._counts, more))
