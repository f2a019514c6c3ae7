"""A request to storage, and an answer in time or none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from petastore.storage.requests.under_way import requests_of, wait_for_answer, waiting_for
from petastore.threads import Daemon, is_daemon_of_ours

__all__ = ["in_time"]

_T = TypeVar("_T")


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
    wait_for_answer(made, lambda: requests_of([daemon]))
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
