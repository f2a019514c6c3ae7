"""Storage requests: retries up to a deadline, and several requests at once.

A call that hangs inside a library cannot be cancelled. With this module, the thread that waits for its result stops
waiting after a timeout.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeAlias, TypeVar

from petastore.errors import InvalidArgumentError, PetastoreError
from petastore.forks import made_anew_in_children
from petastore.monitoring.activity import Request, adopted, overdue, request_by_thread, requests_of
from petastore.storage.requests.failure_kinds import is_unknown_host, kind_of, statuses_in
from petastore.threads import Daemon, is_daemon_of_ours

__all__ = [
    "DEFAULT_STORAGE_TIMEOUT_S",
    "MOST_ATTEMPTS",
    "MOST_REREADS",
    "FinalError",
    "GaveUpError",
    "SingleFlight",
    "at_once",
    "checked_timeout",
    "in_time",
    "is_transient",
    "longest_pause",
    "make",
    "read_right",
    "tried",
    "wait_for_answer",
]

DEFAULT_STORAGE_TIMEOUT_S = 300.0
"""Default timeout of a storage request in seconds: later responses are unlikely."""

_LOOK_AGAIN_S = 0.1
"""Seconds between checks of requests in flight.

The checks are needed because the start of a request does not notify waiting threads.
"""


def checked_timeout(storage_timeout: object) -> float | None:
    """Check and return the `storage_timeout` that the user passed.

    Raises:
        InvalidArgumentError: The value is 0, negative, or not a number.

    Example:
        >>> checked_timeout(30), checked_timeout(None)
        (30.0, None)
        >>> checked_timeout(0)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: storage_timeout must be seconds above 0, or None for no limit, got 0
    """
    if storage_timeout is None:
        return None
    is_number = isinstance(storage_timeout, (int, float)) and not isinstance(storage_timeout, bool)
    if not is_number or not storage_timeout > 0:  # type: ignore[operator]
        raise InvalidArgumentError(
            f"storage_timeout must be seconds above 0, or None for no limit, got {storage_timeout!r:.100}"
        )
    return float(storage_timeout)  # type: ignore[arg-type]


def wait_for_answer(made: Future[Any], requests: Callable[[], Iterable[Request]]) -> None:
    """Wait until a future is done; raise an error as soon as a request exceeds its timeout.

    Args:
        made: Future to wait for.
        requests: Function that returns the storage requests in flight on which the future depends.

    Raises:
        StorageTimeoutError: A request exceeded its timeout.
    """
    while not concurrent.futures.wait([made], _LOOK_AGAIN_S).done:
        problem = overdue(requests())
        if problem is not None:
            raise problem


_T = TypeVar("_T")


def in_time(call: Callable[[], _T], *, url: str, what: str, limit_s: float | None) -> _T:
    """Return the result of a storage call, within its timeout.

    A pool thread makes the call itself, because its consumer checks the timeout. For any other thread, a daemon thread
    makes the call, so that the caller can stop waiting at the timeout or at Ctrl-C. After a timeout or Ctrl-C, the
    daemon thread continues to wait for the storage; otherwise it has ended when this function returns.

    Args:
        call: Function that makes one storage request.
        url: URL of the dataset, for messages.
        what: Description of the request, after "to" in messages.
        limit_s: Timeout in seconds; None means no timeout.

    Raises:
        StorageTimeoutError: The call exceeded its timeout.
        BaseException: The call raised it.

    Example:
        >>> in_time(lambda: 7, url="file:///data", what="count", limit_s=10)
        7
        >>> import threading
        >>> answered = threading.Event()
        >>> in_time(answered.wait, url="file:///data", what="wait", limit_s=0.01)
        Traceback (most recent call last):
        petastore.errors.StorageTimeoutError: file:///data: storage did not respond within 0.01 s to the request to
        wait. Check that the storage can be reached, or increase storage_timeout=
        >>> answered.set()  # ends the daemon thread
    """

    def marked() -> _T:
        with Request(url, what, limit_s):
            return call()

    if is_daemon_of_ours():
        return marked()
    made: Future[_T] = Future()
    daemon = Daemon("petastore-request", adopted(functools.partial(make, marked, made)))
    daemon.start()
    wait_for_answer(made, lambda: requests_of([daemon]))
    daemon.join()
    try:
        return made.result()
    finally:
        del made  # avoids a reference cycle between the exception and this frame


def make(call: Callable[[], _T], made: Future[_T]) -> None:
    """Make a call, and set its result or exception as the result of a future."""
    try:
        made.set_result(call())
    except BaseException as problem:  # noqa: BLE001 - raised in the waiting thread
        made.set_exception(problem)
    del call, made  # avoid a reference cycle, as above


MOST_ATTEMPTS = 10
"""Maximum attempts of one request; a persistent failure is treated as permanent."""

MOST_REREADS = 5
"""Maximum attempts to read bytes of one version of a file that is being written."""

LONGEST_PAUSE_S = 5.0
"""Upper bound on the backoff between two attempts."""

_FIRST_PAUSE_S, _FIRST_PAUSE_WHEN_BUSY_S = 0.05, 0.2
_TRANSIENT_KINDS = {"timeout", "connection", "busy"}
_TRANSIENT_STATUSES = {429, 500, 502, 503, 504}


def _chance() -> float:
    """Return a random number from 0 to 1, without importing `random`.

    The numbers differ between forked processes.
    """
    return (int.from_bytes(os.urandom(7), "little") >> 3) * 2.0**-53


class FinalError(Exception):
    """Failure that a retry would repeat, such as a wrong file version.

    Caught inside `petastore.storage`.
    """


class GaveUpError(Exception):
    """A request failed and is not retried. Caught inside `petastore.storage`.

    Attributes:
        problem: Exception of the last attempt.
        attempts: Number of attempts.
        seconds: Total duration of the attempts.
    """

    def __init__(self, problem: BaseException, attempts: int, seconds: float) -> None:
        super().__init__(problem)
        self.problem = problem
        self.attempts = attempts
        self.seconds = seconds


def longest_pause(attempt: int, *, is_busy: bool = False) -> float:
    """Return the maximum pause in seconds after an attempt, counted from 1.

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
    """Make a call and return its result; retry it after each transient failure.

    The pause before the next attempt is random between zero and its maximum ("full jitter"), so that clients that
    failed together do not retry together.

    Args:
        call: Function that makes one request.
        over: Event that is set when the result is no longer needed; it ends a pause.
        deadline: Time by `clock` after which the call is not retried.
        most: Maximum attempts.
        jitter: Function that returns a number from 0 to 1.
        clock: Function that returns seconds.
        wait: Function that waits for `over` with a timeout in seconds, and returns whether it is set.

    Raises:
        GaveUpError: The last attempt failed, or the failure is not transient.

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
        except Exception as problem:  # noqa: BLE001 - clients raise any exception, and `kind_of` classifies it
            pause = jitter() * longest_pause(attempt, is_busy=kind_of(problem)[0] == "busy")
            may_pass = attempt < most and is_transient(problem) and clock() + pause < deadline
            if not may_pass or wait(over, pause):
                raise GaveUpError(problem, attempt, clock() - began) from None


def is_transient(problem: BaseException) -> bool:
    """Return whether a retry may succeed.

    True for throttling, connection resets, server errors and timeouts. An unknown host name is permanent; a temporary
    DNS failure is transient.

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


def read_right(
    read: Callable[[], _T],
    again: Callable[[], _T] | None,
    *,
    refused: type[Exception] | tuple[type[Exception], ...],
    forget: Callable[[], None] | None = None,
) -> _T:
    """Read data and return it; if the data is invalid, read it a second time.

    Args:
        read: Function that reads the data, and raises `refused` if it is invalid.
        again: Function that reads the data again; None for local data, which would not change.
        refused: Exception class for invalid data.
        forget: Function that removes the invalid data from caches; called after each invalid read.

    Raises:
        Exception: The data is invalid a second time, or `read` raises another exception.

    Example:
        >>> came = iter(["1x", "12"])
        >>> def read() -> int:
        ...     return int(next(came))
        >>> read_right(read, read, refused=ValueError)
        12
    """
    for ask, is_last in ((read, again is None), (again or read, True)):
        try:
            return ask()
        except refused:
            if forget is not None:
                forget()
            if is_last:
                raise
    raise AssertionError("internal error: the last attempt neither returned nor raised")


_THREADS = 16
_JOIN_S = 0.25

_GRACE_S = 0.5
"""Seconds to wait for requests in flight after one request has failed.

Most responses arrive within this time.
"""

_Asked = TypeVar("_Asked")
_Made = TypeVar("_Made")
_Key = TypeVar("_Key")
_Waiting: TypeAlias = collections.deque[tuple[Callable[[], Any], Future[Any]]]


def at_once(task: Callable[[_Asked], _Made], asked: Sequence[_Asked]) -> Iterator[_Made]:
    """Apply a function to each item with up to 16 threads; yield the results in order.

    Raises:
        StorageTimeoutError: A request of a task exceeded its timeout; its thread is abandoned.
        BaseException: The task raised it.

    Example:
        >>> list(at_once(abs, [-3, -2, -1]))
        [3, 2, 1]
    """
    if len(asked) < 2:
        yield from map(task, asked)
        return
    waiting: _Waiting = collections.deque((functools.partial(task, one), Future()) for one in asked)
    results = collections.deque(result for _, result in waiting)
    threads = [Daemon("petastore-request", functools.partial(_work, waiting)) for _ in range(min(len(asked), _THREADS))]
    try:
        for thread in threads:
            thread.start()
        while results:
            wait_for_answer(results[0], lambda: requests_of(threads))
            yield results.popleft().result()
    finally:
        waiting.clear()
        patience = float("inf") if not results else time.monotonic() + _GRACE_S
        for thread in threads:
            # A hanging request may never return: its thread is abandoned.
            while thread.is_alive() and (thread.ident not in request_by_thread or time.monotonic() < patience):
                thread.join(_JOIN_S)


def _work(waiting: _Waiting) -> None:
    while True:
        try:
            call, result = waiting.popleft()
        except IndexError:
            return
        make(call, result)
        del call, result  # drop the reference, because a waiting thread would keep its last result in memory


class SingleFlight(Generic[_Key, _Made]):
    """Makes one call for all threads that request the same key at the same time.

    Thread-safe. A forked child starts without calls, because the threads that make them do not exist in the child.

    Example:
        >>> flights: SingleFlight[str, int] = SingleFlight()
        >>> flights.result("answer", lambda: 42)
        42
    """

    def __init__(self) -> None:
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Create a new lock, and drop all calls, in a forked child."""
        self._lock = threading.Lock()
        self._running: dict[_Key, Future[_Made]] = {}

    def result(self, key: _Key, call: Callable[[], _Made]) -> _Made:
        """Return the result of a call, which threads that request the same key share.

        The first thread makes the call; other threads wait for its result.

        Raises:
            BaseException: The call raised it.
        """
        own: Future[_Made] = Future()
        running = own
        try:
            running = self._running_call(key, own)
            if running is own:
                make(call, own)
            return running.result()
        except BaseException as problem:
            if running is own and not own.done():  # Ctrl-C before the call
                own.set_exception(problem)
            raise
        finally:
            self._remove(key, own)
            del own, running  # avoids a reference cycle between the exception and this frame

    def _running_call(self, key: _Key, own: Future[_Made]) -> Future[_Made]:
        """Return the future of the running call for a key; without such a call, add `own`."""
        with self._lock:
            running = self._running.get(key)
            if running is None or running.done():  # done if Ctrl-C kept its thread from removing it
                running = self._running[key] = own
        return running

    def _remove(self, key: _Key, own: Future[_Made]) -> None:
        with self._lock:
            if self._running.get(key) is own:
                del self._running[key]
