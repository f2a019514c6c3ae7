"""Several tasks of a pool as one: a future of what is made of them when the last one is done."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["flat", "together"]

_Made = TypeVar("_Made")
Task = Callable[[], None]


def together(tasks: Sequence[Task], finish: Callable[[], _Made], submit: Callable[[Task], Any]) -> Future[_Made]:
    """Runs the first task in the calling thread, once the others are submitted; nobody waits for anybody.

    Args:
        tasks: At least one.
        finish: Called by the thread that ends the last task, if none failed.
        submit: Has a task run by another thread, some time. Where it never does, the future stays as it is.

    Returns:
        A future of what `finish` gives, or of the first of the tasks that failed, in their order.

    Example:
        >>> together([lambda: print("first"), lambda: print("second")], lambda: 7, lambda task: task()).result()
        second
        first
        7
    """
    job = _Job(len(tasks), finish)
    for number in range(1, len(tasks)):
        submit(functools.partial(job.run, number, tasks[number]))
    job.run(0, tasks[0])
    return job.future


class _Job:
    def __init__(self, tasks: int, finish: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self._lock = threading.Lock()
        self._left = tasks
        self._finish = finish
        self._failed: dict[int, BaseException] = {}

    def run(self, number: int, task: Task) -> None:
        try:
            if not self._failed:
                task()
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the result
            self._failed[number] = problem
        with self._lock:
            self._left -= 1
            complete = self._left == 0
        if complete:
            self._settle()

    def _settle(self) -> None:
        if self._failed:
            self.future.set_exception(self._failed[min(self._failed)])
            return
        try:
            made = self._finish()
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the result
            self.future.set_exception(problem)
        else:
            self.future.set_result(made)


def flat(future: Future[Any], made: Future[Any] | None = None) -> Future[Any]:
    """The future of what a future gives, which may itself be a future.

    Args:
        future: Gives something, or a future of it, and so on.
        made: What is settled in the end; None makes a new one.

    Example:
        >>> outer, inner = Future(), Future()
        >>> outer.set_result(inner); inner.set_result(7)
        >>> flat(outer).result()
        7
    """
    flattening = _Flattening(Future() if made is None else made)
    future.add_done_callback(flattening)
    return flattening.made


class _Flattening:
    # Not a function that knows itself: only the collector could free that, and all that hangs on it.

    def __init__(self, made: Future[Any]) -> None:
        self.made = made

    def __call__(self, done: Future[Any]) -> None:
        if done.cancelled():
            self.made.cancel()
            return
        problem = done.exception()
        if problem is not None:
            self.made.set_exception(problem)
        elif isinstance(done.result(), Future):
            done.result().add_done_callback(self)
        else:
            self.made.set_result(done.result())
