"""Waiting for what tasks of a pool make, for as long as storage answers them."""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from petastore.storage.requests.under_way import overdue, seconds_left
from petastore.work.pool import Pool

__all__ = ["in_order", "result_of", "wait_for"]

_Asked = TypeVar("_Asked")
_Made = TypeVar("_Made")

_LOOK_AGAIN_S = 0.25
"""How often who waits looks what storage is asked for: requests begin without a word to anybody."""


def wait_for(done: Callable[[], bool], changed: threading.Condition, pool: Pool) -> None:
    """Waits, holding a condition, until something is done.

    Raises:
        StorageTimeoutError: A request to storage, of a task of the pool, has taken longer than it may.
    """
    while not changed.wait_for(done, seconds_left(pool.requests(), most=_LOOK_AGAIN_S)):
        _check(pool)


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
    while not concurrent.futures.wait([future], seconds_left(pool.requests(), most=_LOOK_AGAIN_S)).done:
        _check(pool)
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


def _check(pool: Pool) -> None:
    problem = overdue(pool.requests())
    if problem is not None:
        raise problem
