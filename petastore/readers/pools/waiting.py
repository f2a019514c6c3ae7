"""Waiting for what tasks of a pool make, for as long as storage answers them."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from petastore.readers.pools.pool import Pool
from petastore.storage.under_way import overdue, seconds_left

__all__ = ["result_of", "wait_for"]

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
        >>> from petastore.readers.pools import ThreadPool
        >>> pool = ThreadPool(1)
        >>> result_of(pool.submit(lambda: 7, priority=0), pool)
        7
        >>> pool.close(); pool.join()
    """
    while not concurrent.futures.wait([future], seconds_left(pool.requests(), most=_LOOK_AGAIN_S)).done:
        _check(pool)
    return future.result()


def _check(pool: Pool) -> None:
    problem = overdue(pool.requests())
    if problem is not None:
        raise problem
