"""A request that is made again while it may help: with growing pauses, and never past the deadline or the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from petastore.errors import PetastoreError
from petastore.storage.requests.failure_kinds import is_unknown_host, kind_of, statuses_in

__all__ = ["LONGEST_PAUSE_S", "MOST_ATTEMPTS", "FinalError", "GaveUpError", "is_transient", "longest_pause", "tried"]

MOST_ATTEMPTS = 10
"""Of one request: what failed as often in as many seconds will go on failing."""

LONGEST_PAUSE_S = 5.0
"""Upper bound on the backoff between two attempts."""

_FIRST_PAUSE_S, _FIRST_PAUSE_WHEN_BUSY_S = 0.05, 0.2
_TRANSIENT_KINDS = {"timeout", "connection", "busy"}
_TRANSIENT_STATUSES = {429, 500, 502, 503, 504}
_T = TypeVar("_T")


def _chance() -> float:
    """Between 0 and 1; forked processes do not have the same. Without `random`, which no first batch waits for."""
    return (int.from_bytes(os.urandom(7), "little") >> 3) * 2.0**-53


class FinalError(Exception):
    """An answer that is none, and will be none if it is asked for again; it never leaves `petastore.storage`."""


class GaveUpError(Exception):
    """A request failed, and is not made again; it never leaves `petastore.storage`.

    Attributes:
        problem: What the last attempt raised.
        attempts: How often it was made.
        seconds: How long that took.
    """

    def __init__(self, problem: BaseException, attempts: int, seconds: float) -> None:
        super().__init__(problem)
        self.problem = problem
        self.attempts = attempts
        self.seconds = seconds


def longest_pause(attempt: int, *, is_busy: bool = False) -> float:
    """Seconds that are waited for at most after an attempt, counted from 1, before the next one.

    Example:
        >>> [longest_pause(attempt) for attempt in (1, 2, 3, 20)], longest_pause(1, is_busy=True)
        ([0.05, 0.1, 0.2, 5.0], 0.2)
    """
    first = _FIRST_PAUSE_WHEN_BUSY_S if is_busy else _FIRST_PAUSE_S
    return min(first * 2.0 ** min(attempt - 1, 30), LONGEST_PAUSE_S)


def tried(
    call: Callable[[], _T],
    *,
    over: threading.Event,
    deadline: float = float("inf"),
    most: int = MOST_ATTEMPTS,
    jitter: Callable[[], float] = _chance,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
) -> _T:
    """What a call returns, which is made again after each failure that may pass.

    The pause before the next attempt is by chance anything between nothing and its longest ("full jitter"), so that
    many who failed together do not come back together.

    Args:
        call: Makes one request.
        over: Set when nobody wants the answer any more; ends a pause.
        deadline: No attempt begins after it, by `clock`.
        most: Attempts.
        jitter: Gives a number from 0 to 1.
        clock: Returns seconds.
        wait: Waits for `over`, for some seconds at most; returns whether it is set.

    Raises:
        GaveUpError: The last attempt failed; or the call says that it is not to be made again.

    Example:
        >>> answers = iter([ConnectionResetError("reset"), 7])
        >>> def call():
        ...     answer = next(answers)
        ...     if isinstance(answer, Exception):
        ...         raise answer
        ...     return answer
        >>> tried(call, over=threading.Event())
        7
    """
    began, attempt = clock(), 0
    while True:
        attempt += 1
        try:
            return call()
        except GaveUpError:
            raise
        except Exception as problem:  # noqa: BLE001 - clients raise what they like; what it is, is looked at
            pause = jitter() * longest_pause(attempt, is_busy=kind_of(problem)[0] == "busy")
            may_pass = attempt < most and is_transient(problem) and clock() + pause < deadline
            if not may_pass or wait(over, pause):
                raise GaveUpError(problem, attempt, clock() - began) from None


def is_transient(problem: BaseException) -> bool:
    """Whether the same request may well succeed later: throttling, resets, faults of the server, answers that are late.

    A host that nobody knows will not be known in a second; but to be told nothing of a name may pass.

    Example:
        >>> is_transient(ConnectionResetError()), is_transient(PermissionError()), is_transient(FileNotFoundError())
        (True, False, False)
    """
    if isinstance(problem, (FinalError, PetastoreError)):
        return False
    kind, _ = kind_of(problem)
    if kind == "connection" and is_unknown_host(problem):
        return False
    return kind in _TRANSIENT_KINDS or (kind == "other" and not _TRANSIENT_STATUSES.isdisjoint(statuses_in(problem)))
