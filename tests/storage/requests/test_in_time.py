"""Tests of calls with a timeout: result, exception, and the threads that remain."""

from __future__ import annotations

import threading

import pytest

from petastore.errors import StorageTimeoutError
from petastore.monitoring.activity import Request, request_by_thread
from petastore.storage.requests.retries import in_time
from petastore.threads import Daemon


def asked(limit_s: float | None) -> Request | None:
    return in_time(
        lambda: request_by_thread.get(threading.get_ident()), url="file:///data", what="look at itself", limit_s=limit_s
    )


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_call_with_a_timeout_is_registered_as_a_request_while_it_runs(limit_s: float | None) -> None:
    found = asked(limit_s)
    assert found is not None
    assert (found.url, found.what, found.limit_s) == ("file:///data", "look at itself", limit_s)
    assert threading.get_ident() not in request_by_thread


def test_exception_of_the_call_is_raised_unchanged() -> None:
    def fail() -> None:
        raise problem

    for problem in (OSError("gone"), KeyboardInterrupt()):
        with pytest.raises(type(problem)) as caught:
            in_time(fail, url="file:///data", what="fail", limit_s=30)
        assert caught.value is problem


def test_call_with_a_timeout_runs_in_a_request_thread() -> None:
    made_by: list[threading.Thread] = []

    def ask() -> None:
        in_time(lambda: made_by.append(threading.current_thread()), url="u", what="w", limit_s=30)

    ask()
    ours = Daemon("petastore-test", ask)
    ours.start()
    ours.join()
    assert made_by[0].name == "petastore-request"
    assert not made_by[0].is_alive()
    assert made_by[1] is ours


def test_timeout_error_names_the_request_and_the_duration() -> None:
    answer = threading.Event()
    try:
        with pytest.raises(StorageTimeoutError, match=r"s3://b/d: storage did not respond within 0.05 s .* to count"):
            in_time(answer.wait, url="s3://b/d", what="count", limit_s=0.05)
    finally:
        answer.set()
