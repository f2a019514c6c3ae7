"""Calls that somebody waits for: what came of each, and which of them are late."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from petastore.storage.ranges.pacing.hedges import Hedges

__all__ = ["Calls"]

_LOOK_AGAIN_S = 0.25
"""How often who waits looks whether enough was measured to know what is late."""

_LEAST_WAIT_S = 0.01
"""How often at most who waits looks for what is late: it may be that there are too many to ask for all of it again."""


class Calls:
    """Some calls that somebody waits for, and what came of them. Thread-safe.

    Args:
        expected_s: Of each: how many seconds it is thought to take.
        deadline: Until when they are waited for, by `time.monotonic`.
    """

    def __init__(self, expected_s: Sequence[float], deadline: float) -> None:
        self.deadline = deadline
        self.expected_s = expected_s
        """Of each: how many seconds it is thought to take."""
        self.began = [float("inf")] * len(expected_s)
        """When each was made, the last time."""
        self.answers: list[Any] = [None] * len(expected_s)
        self.problem: BaseException | None = None
        self.over = threading.Event()
        self.running = 0
        """Calls that threads make now; the lock of the fetcher guards this and the next."""
        self.is_left = False
        self._left = set(range(len(expected_s)))
        self._hedged: set[int] = set()
        """Those that are made twice at a time."""
        self._ever_hedged: set[int] = set()
        self._changed = threading.Condition()

    @property
    def is_complete(self) -> bool:
        """Whether all were answered."""
        return not self._left

    def note(self, number: int, answer: Any) -> None:
        """A call was answered; of two answers the first counts."""
        with self._changed:
            if not self.over.is_set() and number in self._left:
                self.answers[number] = answer
                self._left.discard(number)
                self._changed.notify_all()

    def fail(self, number: int, problem: BaseException) -> None:
        """A call failed, so the others need not be made; unless it is made a second time, and that may be answered."""
        with self._changed:
            if number not in self._left:
                return
            if number in self._hedged:
                self._hedged.discard(number)
                return
            if not self.over.is_set():
                self.problem = problem
        self.end()

    def end(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self.over.set()
            self._changed.notify_all()

    def wait(self, hedges: Hedges | None) -> bool:
        """Waits until all were answered, one has failed, it was ended, or the deadline has come; or one is late.

        Args:
            hedges: Tells when one is late; None where that does not matter.

        Returns:
            False where one may be late.
        """
        with self._changed:
            seconds = max(self.deadline - time.monotonic(), 0.0)
            next_s = seconds if hedges is None else min(self._seconds_to_late(hedges), seconds)
            is_over = self._changed.wait_for(lambda: self.is_complete or self.over.is_set(), next_s)
        return is_over or next_s == seconds

    def _seconds_to_late(self, hedges: Hedges) -> float:
        now, seconds = time.monotonic(), float("inf")
        for number in self._left - self._ever_hedged:
            after = hedges.late_after(self.expected_s[number])
            if after is None:
                return _LOOK_AGAIN_S
            # One that was not made yet is looked at again when it could be late.
            seconds = min(seconds, max(min(self.began[number], now) + after - now, _LEAST_WAIT_S))
        return seconds

    def late(self, hedges: Hedges) -> list[int]:
        """Calls that are late now, and are made a second time from now on.

        Args:
            hedges: Tells which, and how many of them may be.
        """
        with self._changed:
            now, late = time.monotonic(), list[int]()
            for number in sorted(self._left - self._ever_hedged):
                after = hedges.late_after(self.expected_s[number])
                if after is not None and now - self.began[number] >= after and hedges.takes_one():
                    late.append(number)
            self._hedged.update(late)
            self._ever_hedged.update(late)
            return late
