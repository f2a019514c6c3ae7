"""A request to storage, and an answer in time or none."""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from petastore.storage.requests.under_way import Request, overdue, request_of, seconds_left, waiting_for
from petastore.threads import Daemon, is_daemon_of_ours

__all__ = ["in_time"]

_T = TypeVar("_T")
_LONG_S = 3600.0


def in_time(call: Callable[[], _T], *, url: str, what: str, limit_s: float | None) -> _T:
    """What a call that asks storage returns.

    A thread of ours makes the call itself: somebody waits for it who looks at the clock. For any other thread a daemon
    makes it, so that the caller can leave it: when time is up, or at Ctrl-C. The daemon is gone when this returns,
    unless storage did not answer.

    Args:
        call: Asks storage once.
        url: Of the dataset, for people.
        what: What is asked, after "to".
        limit_s: Seconds that it may take; None is without end.

    Raises:
        StorageTimeoutError: There was no answer in time.
        BaseException: What the call raised.

    Example:
        >>> in_time(lambda: 7, url="file:///data", what="count", limit_s=10)
        7
        >>> import threading
        >>> in_time(threading.Event().wait, url="file:///data", what="wait", limit_s=0.01)
        Traceback (most recent call last):
        petastore.errors.StorageTimeoutError: file:///data: storage did not answer within 0.01 s when it was asked to
        wait; see whether it can be reached, or give it more time by storage_timeout=
    """
    if is_daemon_of_ours():
        with waiting_for(url, what, limit_s):
            return call()
    made: Future[_T] = Future()
    daemon = Daemon("petastore-request", functools.partial(_make, call, made, url, what, limit_s))
    daemon.start()
    _wait(made, daemon)
    daemon.join()
    try:
        return made.result()
    finally:
        del made  # or an error and this frame would keep each other


def _make(call: Callable[[], _T], made: Future[_T], url: str, what: str, limit_s: float | None) -> None:
    try:
        with waiting_for(url, what, limit_s):
            made.set_result(call())
    except BaseException as problem:  # noqa: BLE001 - it belongs to whoever waits
        made.set_exception(problem)
    del call, made  # as above


def _wait(made: Future[Any], daemon: Daemon) -> None:
    requests: list[Request] = []
    while not concurrent.futures.wait([made], seconds_left(requests, most=_LONG_S if requests else 0.1)).done:
        request = None if daemon.ident is None else request_of(daemon.ident)
        requests = [] if request is None else [request]
        problem = overdue(requests)
        if problem is not None:
            raise problem
