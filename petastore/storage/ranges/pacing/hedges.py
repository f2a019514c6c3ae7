"""When an answer is so late that it is worth to ask a second time, and how often that may be done.

A few answers of any storage take a hundred times as long as the others, and whoever waits for many waits for these. The
second request mostly comes to another server of it. What is late is told by what was measured; so many are made at most
that a storage which is slow as a whole is not asked twice as much.
"""

from __future__ import annotations

import collections

from petastore.forks import Lock

__all__ = ["Hedges"]

_QUANTILE = 0.95
_LEAST_FACTOR = 2.0
"""What takes less than twice as long as it is thought to take is not late, however alike all others are."""

_REMEMBERED = 256
_FEWEST = 20
_SORTED_EACH = 16
_MOST_SHARE = 0.05


class Hedges:
    """Second requests. Thread-safe.

    Example:
        >>> hedges = Hedges()
        >>> hedges.late_after(0.01) is None  # nothing was measured yet
        True
        >>> for _ in range(40):
        ...     hedges.answered(expected_s=0.01, took_s=0.03)
        >>> round(hedges.late_after(0.01), 3), hedges.takes_one(), hedges.takes_one(), hedges.takes_one()
        (0.03, True, True, False)
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._factors: collections.deque[float] = collections.deque(maxlen=_REMEMBERED)
        self._factor = _LEAST_FACTOR
        self._answered = self._taken = 0

    def answered(self, expected_s: float, took_s: float) -> None:
        """A request was answered.

        Args:
            expected_s: Seconds that it was thought to take, above 0.
            took_s: Seconds that it took.
        """
        with self._lock:
            self._answered += 1
            self._factors.append(took_s / expected_s)
            if self._answered % _SORTED_EACH == 0 or len(self._factors) == _FEWEST:
                ordered = sorted(self._factors)
                self._factor = max(ordered[int(len(ordered) * _QUANTILE)], _LEAST_FACTOR)

    def late_after(self, expected_s: float) -> float | None:
        """Seconds after which an answer is late: 95 % come sooner. None where too little is known.

        Args:
            expected_s: Seconds that it is thought to take.
        """
        return None if self._answered < _FEWEST else self._factor * expected_s

    def takes_one(self) -> bool:
        """Whether a second request may be made, which then is one of the 5 % that may."""
        with self._lock:
            if self._taken + 1 > _MOST_SHARE * self._answered:
                return False
            self._taken += 1
            return True
