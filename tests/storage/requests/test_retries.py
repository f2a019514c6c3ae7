"""Tests of retries: transient and permanent errors, exponential backoff, deadline, cancellation."""

from __future__ import annotations

import socket
import threading
from typing import Any

import aiohttp
import botocore.exceptions
import pytest

from petastore.storage.requests.retries import MOST_ATTEMPTS, GaveUpError, is_transient, longest_pause, tried
from petastore.storage.stores.interface import NotTheVersionError

TRANSIENT = [
    ConnectionResetError(104, "reset"),
    TimeoutError("late"),
    OSError("HTTP status 503 (SlowDown)"),
    OSError("HTTP status 429"),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
]
FINAL = [
    PermissionError("403"),
    FileNotFoundError("404"),
    NotTheVersionError(None),
    ValueError("a fault"),
    OSError("?"),
    socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    ConnectionError("error sending request (failed to lookup address information: Name or service not known)"),
]


pytestmark = pytest.mark.usefixtures("real_backoff")


class Clock:
    """A clock that advances only while a caller waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, over: threading.Event, seconds: float) -> bool:
        if not over.is_set():
            self.now += seconds
        return over.is_set()


def give_up(problem: Exception, over: threading.Event | None = None, **options: Any) -> tuple[GaveUpError, list[float]]:
    """Return the final error, and the times at which the attempts began."""
    clock, began = Clock(), list[float]()

    def call() -> None:
        began.append(clock.now)
        raise problem

    with pytest.raises(GaveUpError) as raised:
        tried(call, over=over or threading.Event(), jitter=lambda: 1.0, clock=clock, wait=clock.wait, **options)
    return raised.value, began


@pytest.mark.parametrize("problem", TRANSIENT, ids=repr)
def test_transient_error_is_retried_up_to_the_limit(problem: Exception) -> None:
    gave_up, made = give_up(problem)
    assert gave_up.attempts == len(made) == MOST_ATTEMPTS
    assert gave_up.problem is problem


@pytest.mark.parametrize("problem", FINAL, ids=repr)
def test_permanent_error_raises_at_once(problem: Exception) -> None:
    gave_up, made = give_up(problem)
    assert gave_up.attempts == len(made) == 1


def test_retry_ends_at_the_deadline() -> None:
    gave_up, began = give_up(ConnectionResetError(), deadline=0.3, most=1000)
    assert began == pytest.approx([0, 0.05, 0.15])
    assert gave_up.seconds == pytest.approx(0.15)  # the next pause would end after the deadline, so it is skipped


def test_retry_pause_ends_when_cancelled() -> None:
    over = threading.Event()
    over.set()
    gave_up, began = give_up(ConnectionResetError(), over)
    assert (gave_up.attempts, began) == (1, [0])


def test_retry_backoff_is_exponential_and_bounded() -> None:
    pauses = [longest_pause(attempt) for attempt in range(1, 50)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5
    assert longest_pause(3, is_busy=True) > longest_pause(3)


def boto(status: int, code: str) -> Exception:
    return botocore.exceptions.ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "GetObject",
    )


def web(status: int) -> Exception:
    request: Any = None
    return aiohttp.ClientResponseError(request, (), status=status)


@pytest.mark.parametrize(
    "problem", [boto(500, "InternalError"), boto(503, "SlowDown"), web(500), web(502), web(429), web(504)], ids=repr
)
def test_server_errors_are_retried(problem: Exception) -> None:
    assert is_transient(problem)


@pytest.mark.parametrize("problem", [boto(403, "AccessDenied"), boto(404, "NoSuchKey"), web(403), web(412)], ids=repr)
def test_client_errors_are_not_retried(problem: Exception) -> None:
    assert not is_transient(problem)
