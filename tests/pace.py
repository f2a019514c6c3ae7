"""Measure how much slower this machine is than an idle one, to extend the time limits of tests."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["LONG", "Pace", "measured", "patience"]

LONG = 300.0
"""Timeout in seconds of a wait that normally returns at once; only a hang takes so long."""

_STEPS = 400_000
_IDLE_S = 0.025
"""Seconds that the steps take on a slow machine without other load."""

_MEASURED_EVERY_S = 15.0
_MOST = 10.0


def measured() -> float:
    """Return how many times longer a fixed amount of work takes than on an idle machine; at least 1."""
    began = time.perf_counter()
    total = 0
    for step in range(_STEPS):
        total += step
    return min(max((time.perf_counter() - began) / _IDLE_S, 1.0), _MOST)


def patience(seconds: float) -> float:
    """Return a timeout for a program that takes at most `seconds` on an idle machine, with a margin for more load."""
    return seconds * max(4.0, 2 * measured())


class Pace:
    """Slowness of the machine during a test run, measured every few seconds; the slower of the last two counts.

    Example:
        >>> 1 <= Pace().slowness <= 10
        True
    """

    def __init__(self, measure: Callable[[], float] = measured, clock: Callable[[], float] = time.monotonic) -> None:
        self._measure, self._clock = measure, clock
        self._last = (1.0, 1.0)
        self._when = float("-inf")

    @property
    def slowness(self) -> float:
        """Current slowness, at least 1."""
        if self._clock() - self._when > _MEASURED_EVERY_S:
            self._last = (self._last[1], self._measure())
            self._when = self._clock()
        return max(self._last)
