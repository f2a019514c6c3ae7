"""A request to storage, and an answer in time or none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

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
        >>> in_time(threading.Event().wait, url="file:///data", what="wait", limit_s=0.01)
        Traceback (most recent call last):
        petastore.errors.StorageTimeoutError: file:///data: storage did not answer within 0.01 s when it was asked to
        wait; see whether it can be reached, or give it more time by storage_timeout=
    """
    if is_daemon_of_ours():
        with waiting_for(url, what, limit_s):
            return call()
    made = _Made(call, url, what, limit_s)
    daemon = Daemon("petastore-request", made.run)
    daemon.start()
    made.wait(daemon)
    daemon.join()
    return made.result()


class _Made(Generic[_T]):
    """What a daemon made of a call."""

    def __init__(self, call: Callable[[], _T], url: str, what: str, limit_s: float | None) -> None:
        self._call: Callable[[], _T] | None = call
        self._asked = url, what, limit_s
        self._done = threading.Event()
        self._returned: list[_T] = []
        self._raised: BaseException | None = None

    def run(self) -> None:
        call, self._call = self._call, None
        try:
            with waiting_for(*self._asked):
                self._returned.append(call())  # type: ignore[misc]
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever waits
            self._raised = problem
        finally:
            self._done.set()

    def wait(self, daemon: Daemon) -> None:
        requests: list[Request] = []
        while not self._done.wait(seconds_left(requests, most=_LONG_S if requests else 0.1)):
            request: Any = None if daemon.ident is None else request_of(daemon.ident)
            requests = [] if request is None else [request]
            problem = overdue(requests)
            if problem is not None:
                raise problem

    def result(self) -> _T:
        if self._raised is not None:
            try:
                raise self._raised
            finally:
                self._raised = None  # or the error and this frame would keep each other
        return self._returned[0]
