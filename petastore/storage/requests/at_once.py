"""Many requests to storage at a time, by threads that live as long as these requests."""

from __future__ import annotations

import collections
import concurrent.futures
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from petastore.storage.requests.under_way import request_of, requests_of, wait_for_answer
from petastore.threads import Daemon

__all__ = ["at_once"]

_THREADS = 16
_MOST_IN_A_GO = 64
_LOOK_AGAIN_S = 0.25

_GRACE_S = 0.5
"""How long requests under way are waited for when one has failed: those that are answered at all mostly are by then."""

_AT_ONCE_S = 0.005
"""What takes no longer comes from the system's cache: one thread is faster there than many that hinder each other."""

_Asked = TypeVar("_Asked")
_Made = TypeVar("_Made")
_Outcome: TypeAlias = tuple[list[Any], BaseException | None]


def at_once(task: Callable[[_Asked], _Made], asked: Sequence[_Asked]) -> Iterator[_Made]:
    """What a task makes of each thing, in order, by up to 16 threads; the first in order that fails ends them.

    Raises:
        StorageTimeoutError: A request of a task has taken longer than it may; its thread is left behind.
        BaseException: What the task raised.

    Example:
        >>> list(at_once(abs, [-3, -2, -1]))
        [3, 2, 1]
    """
    if len(asked) < 2:
        yield from map(task, asked)
        return
    # Handing something to a thread takes longer than reading a footer from the system's cache.
    in_a_go = max(min(len(asked) // (4 * _THREADS), _MOST_IN_A_GO), 1)
    work = _Work(task, [asked[first : first + in_a_go] for first in range(0, len(asked), in_a_go)])
    try:
        for number in range(len(work.runs)):
            made, problem = work.outcome(number)
            yield from made
            if problem is not None:
                raise problem
    finally:
        work.end()


class _Work:
    """Runs of things that threads take one after the other."""

    def __init__(self, task: Callable[[Any], Any], runs: Sequence[Sequence[Any]]) -> None:
        self.runs = runs
        self._task = task
        self._left = collections.deque(range(len(runs)))
        self._outcomes: dict[int, Future[_Outcome]] = {number: Future() for number in range(len(runs))}
        self._threads: list[Daemon] = []
        self._have(1)

    def _have(self, threads: int) -> None:
        while len(self._threads) < min(threads, len(self.runs)):
            self._threads.append(Daemon("petastore-request", self._work))
            self._threads[-1].start()

    def _work(self) -> None:
        while True:
            try:
                number = self._left.popleft()
            except IndexError:
                return
            made: list[Any] = []
            problem: BaseException | None = None
            try:
                made.extend(map(self._task, self.runs[number]))
            except BaseException as raised:  # noqa: BLE001 - it belongs to whoever asks for the result
                problem = raised
            self._outcomes[number].set_result((made, problem))
            del made, problem

    def outcome(self, number: int) -> _Outcome:
        """What was made of a run, once it is there, and what ended it early; given once."""
        outcome = self._outcomes[number]
        if not concurrent.futures.wait([outcome], _AT_ONCE_S).done:
            self._have(_THREADS)
        wait_for_answer(outcome, lambda: requests_of(self._threads))
        return self._outcomes.pop(number).result()

    def end(self) -> None:
        """Waits for the threads, but not for those whose request may never be answered."""
        is_complete = not self._outcomes
        self._left.clear()
        patience = time.monotonic() + _GRACE_S
        for thread in self._threads:
            while thread.is_alive() and (
                is_complete or request_of(thread.ident or 0) is None or time.monotonic() < patience
            ):
                thread.join(_LOOK_AGAIN_S)
