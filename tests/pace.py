"""Measure how much slower this machine is than an idle one, to extend the time limits of tests."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["LONG", "Pace", "measured", "patience"]

LONG = 300.0
"""Seconds that stand for "for ever" in a wait that succeeds at once; only a hang takes so long."""

_STEPS = 400_000
_IDLE_S = 0.025
"""What the steps take on a slow machine that does nothing else."""

_MEASURED_EVERY_S = 15.0
_MOST = 10.0


def measured() -> float:
    """How many times as long some fixed work takes as on an idle machine; 1 where it does not take longer."""
    began = time.perf_counter()
    total = 0
    for step in range(_STEPS):
        total += step
    return min(max((time.perf_counter() - began) / _IDLE_S, 1.0), _MOST)


def patience(seconds: float) -> float:
    """How long a program may take now that takes so long at most on an idle machine, which may become busier yet."""
    return seconds * max(2.0, 1.5 * measured())


class Pace:
    """The pace of a test run: what was measured last, and again every few seconds; the slowest of the last two counts.

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
        """Of now; at least 1."""
        if self._clock() - self._when > _MEASURED_EVERY_S:
            self._last = (self._last[1], self._measure())
            self._when = self._clock()
        return max(self._last)
