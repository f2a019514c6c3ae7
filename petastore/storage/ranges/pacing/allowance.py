"""How many requests may be under way: half as many after each that storage had no time for, slowly more again.

Each process goes back by its own requests, as connections do that share a line. How many requests a second all of
them make together is another matter (`petastore.storage.ranges.pacing.host_pace`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from petastore.forks import made_anew_in_children

__all__ = ["Allowance"]

_ONCE_IN_S = 0.25
"""Requests that were throttled together count as one."""


class Allowance:
    """A number of requests. Thread-safe.

    Args:
        most: At most, and to begin with; at least 1.
        clock: Tells seconds.

    Example:
        >>> allowance = Allowance(16)
        >>> allowance.throttled(), allowance.throttled(), allowance.now
        (None, None, 8)
        >>> for _ in range(9):
        ...     allowance.answered()
        >>> allowance.now
        9
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._allowed, self._clock = most, float(most), clock
        self._halved_at = float("-inf")
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Has a lock that nobody holds."""
        self._lock = threading.Lock()

    @property
    def now(self) -> int:
        """How many may be under way now; at least 1."""
        return int(self._allowed)

    def throttled(self) -> None:
        """Storage had no time for a request."""
        with self._lock:
            if self._clock() - self._halved_at >= _ONCE_IN_S:
                self._halved_at = self._clock()
                self._allowed = max(self._allowed / 2, 1.0)

    def answered(self) -> None:
        """Storage answered a request: when all that are allowed were answered, one more is."""
        if self._allowed < self._most:
            with self._lock:
                self._allowed = min(self._allowed + 1 / self._allowed, float(self._most))
