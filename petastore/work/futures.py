"""Futures of what tasks of a pool make: several as one, what follows them, and waiting as long as storage answers."""

from __future__ import annotations

import collections
import functools
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from petastore.storage.requests.under_way import overdue, seconds_left, wait_for_answer
from petastore.work.pool import Pool, Task

__all__ = ["after", "in_order", "result_of", "settle", "together", "wait_for"]

_Asked = TypeVar("_Asked")
_Made = TypeVar("_Made")

_LOOK_AGAIN_S = 0.25
"""How often who waits looks what storage is asked for: requests begin without a word to anybody."""


def settle(future: Future[Any], task: Task) -> None:
    """Runs a task, and settles a future with what it gives or raises; where that is a future itself, with its result.

    Example:
        >>> outer, inner = Future(), Future()
        >>> settle(outer, lambda: inner)
        >>> inner.set_result(7)
        >>> outer.result()
        7
    """
    try:
        made = task()
    except BaseException as problem:  # noqa: BLE001 - whatever it is, it belongs to whoever asks for the result
        future.set_exception(problem)
    else:
        _pass_on(future, made)


def _pass_on(future: Future[Any], made: Any) -> None:
    if not isinstance(made, Future):
        future.set_result(made)
    else:
        made.add_done_callback(functools.partial(_settle_with, future))


def _settle_with(future: Future[Any], made: Future[Any]) -> None:
    if made.cancelled():
        future.cancel()
        return
    problem = made.exception()
    if problem is None:
        _pass_on(future, made.result())
    else:
        future.set_exception(problem)


def together(tasks: Sequence[Task], finish: Callable[[], Any], submit: Callable[[Task], Any]) -> Future[Any]:
    """Runs the first task in the calling thread, once the others are submitted; nobody waits for anybody.

    Args:
        tasks: Let go of before `finish` is called.
        finish: Called by the thread that ends the last task, if none failed.
        submit: Has a task run by another thread, some time. Where it never does, the future stays as it is.

    Returns:
        A future of what `finish` gives, or of the first of the tasks that failed, in their order; those that come
        after one that failed are not begun. Where `finish` gives a future, it is of the result of that.

    Example:
        >>> together([lambda: print("first"), lambda: print("second")], lambda: 7, lambda task: task()).result()
        second
        first
        7
    """
    job = _Job(len(tasks), finish)
    future, job.tasks = job.future, list(tasks)
    for number in range(1, len(tasks)):
        submit(functools.partial(job.run, number))
    if tasks:
        job.run(0)
    else:
        job.settle()
    return future


def after(futures: Collection[Future[Any]], finish: Callable[[], Any]) -> Future[Any]:
    """Once all futures are there, what comes next; nobody waits for anybody.

    Args:
        futures: Each of what is needed; they keep nothing of what comes next.
        finish: Called by the thread that settles the last one, if none failed.

    Returns:
        A future of what `finish` gives, or of the first of the futures that failed, in their order. Where `finish`
        gives a future, it is of the result of that. Cancelled with any of the futures.

    Example:
        >>> one, other = Future(), Future()
        >>> both = after([one, other], lambda: one.result() + other.result())
        >>> other.set_result(4); one.set_result(3)
        >>> both.result()
        7
    """
    job = _Job(len(futures), finish)
    made = job.future
    for number, future in enumerate(futures):
        future.add_done_callback(functools.partial(job.arrived, number))
    if not futures:
        job.settle()
    return made


class _Job:
    """Several as one. Once settled it holds nothing: futures know for ever who waited for them."""

    def __init__(self, parts: int, finish: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self.tasks: list[Task] = []
        self._finish = finish
        self._lock = threading.Lock()
        self._left = parts
        self._first_failed: float = math.inf
        self._problem: BaseException | None = None

    def run(self, number: int) -> None:
        try:
            if number < self._first_failed:
                self.tasks[number]()
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the result
            self._fail(number, problem)
        self._count_down()

    def arrived(self, number: int, future: Future[Any]) -> None:
        if future.cancelled():
            self.future.cancel()
            return
        problem = future.exception()
        if problem is not None:
            self._fail(number, problem)
        self._count_down()

    def _fail(self, number: int, problem: BaseException) -> None:
        with self._lock:
            if number < self._first_failed:
                self._first_failed, self._problem = number, problem

    def _count_down(self) -> None:
        with self._lock:
            self._left -= 1
            complete = self._left == 0
        if complete:
            self.settle()

    def settle(self) -> None:
        future, finish, problem = self.future, self._finish, self._problem
        self.tasks.clear()
        del self.future, self._finish, self._problem
        if problem is None:
            settle(future, finish)
        else:
            future.set_exception(problem)


def wait_for(done: Callable[[], bool], changed: threading.Condition, pool: Pool) -> None:
    """Waits, holding a condition, until something is done.

    Raises:
        StorageTimeoutError: A request to storage, of a task of the pool, has taken longer than it may.
    """
    while not changed.wait_for(done, seconds_left(pool.requests(), most=_LOOK_AGAIN_S)):
        problem = overdue(pool.requests())
        if problem is not None:
            raise problem


def result_of(future: Future[_Made], pool: Pool) -> _Made:
    """The result of a task of a pool, once it is there.

    Raises:
        StorageTimeoutError: A request to storage, of a task of the pool, has taken longer than it may.
        BaseException: What the task raised.

    Example:
        >>> from petastore.work import ThreadPool
        >>> pool = ThreadPool(1)
        >>> result_of(pool.submit(lambda: 7, priority=0), pool)
        7
        >>> pool.close(); pool.join()
    """
    wait_for_answer(future, pool.requests)
    return future.result()


def in_order(
    function: Callable[[_Asked], _Made], items: Iterable[_Asked], pool: Pool
) -> Iterator[tuple[_Asked, _Made]]:
    """Each of some items with what a function makes of it, in their order.

    The pool is at as many at a time as it has workers, and at one more.

    Raises:
        StorageTimeoutError: A request to storage, of a task of the pool, has taken longer than it may.
        BaseException: What the function raised.

    Example:
        >>> from petastore.work import ThreadPool
        >>> pool = ThreadPool(2)
        >>> list(in_order(abs, [-3, -2, -1], pool))
        [(-3, 3), (-2, 2), (-1, 1)]
        >>> pool.close(); pool.join()
    """
    waiting: collections.deque[tuple[_Asked, Future[_Made]]] = collections.deque()
    for place, item in enumerate(items):
        waiting.append((item, pool.submit(functools.partial(function, item), priority=place)))
        if len(waiting) > pool.workers:
            first, made = waiting.popleft()
            yield first, result_of(made, pool)
    for item, made in waiting:
        yield item, result_of(made, pool)
