"""Requests to storage that are under way: which thread waits for which, and since when.

A call that hangs inside a library cannot be ended from outside. Who waits for its answer in another thread can look
here, though, and go without it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Thread
from types import TracebackType
from typing import Any, Self

from petastore.errors import InvalidArgumentError, StorageTimeoutError

__all__ = [
    "DEFAULT_STORAGE_TIMEOUT_S",
    "Request",
    "checked_timeout",
    "overdue",
    "request_of",
    "requests_of",
    "seconds_left",
    "wait_for_answer",
    "waiting_for",
]

DEFAULT_STORAGE_TIMEOUT_S = 300.0
"""How long storage may take for an answer, unless asked otherwise: what takes longer is not going to come."""

_LOOK_AGAIN_S = 0.1
"""How often who waits looks what storage is asked for: requests begin without a word to anybody."""


def checked_timeout(storage_timeout: object) -> float | None:
    """What a user gave as `storage_timeout`.

    Raises:
        InvalidArgumentError: It is neither seconds above 0 nor None.

    Example:
        >>> checked_timeout(30), checked_timeout(None)
        (30.0, None)
        >>> checked_timeout(0)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: storage_timeout=0 is no time that storage could answer in; give seconds
        above 0, or None to wait without end
    """
    if storage_timeout is None:
        return None
    is_number = isinstance(storage_timeout, (int, float)) and not isinstance(storage_timeout, bool)
    if not is_number or not storage_timeout > 0:  # type: ignore[operator]
        raise InvalidArgumentError(
            f"storage_timeout={storage_timeout!r:.100} is no time that storage could answer in; give seconds above 0, "
            "or None to wait without end"
        )
    return float(storage_timeout)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What a thread waits for."""

    url: str
    """Of the dataset, for people."""

    what: str
    """What is asked for there."""

    limit_s: float | None
    """Seconds that it may take; None is without end."""

    began: float
    """When it began, by `clock`."""

    clock: Callable[[], float] = dataclasses.field(default=time.monotonic, repr=False, compare=False)
    """Returns seconds."""

    @property
    def seconds(self) -> float:
        """For how long it has been under way."""
        return self.clock() - self.began

    def __str__(self) -> str:
        return f"{self.url}, asked to {self.what} {self.seconds:.1f} s ago"


_under_way: dict[int, Request] = {}  # by thread; each thread writes its own entry only


class waiting_for:  # noqa: N801 - it is written after `with`
    """Says, while a `with` block runs, that the calling thread waits for storage.

    Costs about a microsecond. Inside another one it stands for it until it ends.

    Args:
        url: Of the dataset, for people.
        what: What is asked for.
        limit_s: Seconds that the answer may take; None is without end.

    Example:
        >>> with waiting_for("file:///data/frames", "read part-0.parquet", 60):
        ...     request_of(threading.get_ident()).what
        'read part-0.parquet'
        >>> request_of(threading.get_ident()) is None
        True
    """

    __slots__ = ("_before", "_request", "_thread")

    def __init__(self, url: str, what: str, limit_s: float | None) -> None:
        self._request = Request(url, what, limit_s, time.monotonic())

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        self._before = _under_way.get(self._thread)
        _under_way[self._thread] = self._request
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            del _under_way[self._thread]
        else:
            _under_way[self._thread] = self._before


def request_of(thread: int) -> Request | None:
    """What a thread, given by its identifier, waits for; None where it does not wait for storage."""
    return _under_way.get(thread)


def requests_of(threads: Iterable[Thread]) -> list[Request]:
    """What some threads wait for, those of them that wait for storage."""
    requests = (request_of(thread.ident or 0) for thread in threads)
    return [request for request in requests if request is not None]


def overdue(requests: Iterable[Request]) -> StorageTimeoutError | None:
    """What to raise where one of some requests has taken longer than it may; None where none has."""
    for request in requests:
        if request.limit_s is not None and request.seconds >= request.limit_s:
            return StorageTimeoutError(
                f"{request.url}: storage did not answer within {request.limit_s:g} s when it was asked to "
                f"{request.what}; see whether it can be reached, or give it more time by storage_timeout="
            )
    return None


def seconds_left(requests: Iterable[Request], *, most: float) -> float:
    """How long none of some requests will be overdue; at most `most`, and at least a millisecond."""
    left = [request.limit_s - request.seconds for request in requests if request.limit_s is not None]
    return max(min([most, *left]), 0.001)


def wait_for_answer(made: Future[Any], requests: Callable[[], Iterable[Request]]) -> None:
    """Waits until a future is done, for as long as storage answers the requests of those who are at it.

    Raises:
        StorageTimeoutError: One of them has taken longer than it may.
    """
    while not concurrent.futures.wait([made], seconds_left(requests(), most=_LOOK_AGAIN_S)).done:
        problem = overdue(requests())
        if problem is not None:
            raise problem
