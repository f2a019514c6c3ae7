"""Tests of pending storage requests: which threads wait, for what, and since when."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from petastore.errors import InvalidArgumentError, StorageTimeoutError
from petastore.monitoring.activity import Request, overdue, request_by_thread, requests_of
from petastore.storage.requests.retries import checked_timeout, wait_for_answer


def begun(seconds_ago: float, limit_s: float | None) -> Request:
    return Request("file:///data", "read x", limit_s, 1000.0 - seconds_ago, clock=lambda: 1000.0)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), True, "30", object()])
def test_invalid_storage_timeout_raises(timeout: object) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"storage_timeout must be seconds above 0, or None for no limit, got "
    ):
        checked_timeout(timeout)


def test_nested_request_replaces_the_outer_one_until_it_ends() -> None:
    here = threading.get_ident()

    def what() -> str | None:
        request = request_by_thread.get(here)
        return None if request is None else request.what

    with Request("u", "open", 60):
        with Request("u", "read", None):
            assert what() == "read"
        assert what() == "open"
    assert what() is None


def test_waiting_threads_are_reported() -> None:
    begin, end = threading.Barrier(2), threading.Event()

    def wait() -> None:
        with Request("u", "wait", None):
            begin.wait(30)
            end.wait(30)

    threads = [threading.Thread(target=wait), threading.Thread(target=lambda: None)]
    threads[0].start()
    begin.wait(30)
    assert [request.what for request in requests_of([*threads, threading.current_thread()])] == ["wait"]
    end.set()
    threads[0].join()
    assert requests_of(threads) == []


def test_request_is_overdue_after_its_timeout() -> None:
    assert overdue([begun(1, 60), begun(10**6, None)]) is None
    problem = overdue([begun(1, 60), begun(61, 60), begun(99, 60)])
    assert isinstance(problem, StorageTimeoutError)
    assert str(problem).startswith("file:///data: storage did not respond within 60 s to the request to read x")


def test_finished_future_returns_although_other_requests_are_overdue() -> None:
    made: Future[int] = Future()
    made.set_result(7)
    wait_for_answer(made, lambda: [begun(99, 60)])
    with pytest.raises(StorageTimeoutError):
        wait_for_answer(Future(), lambda: [begun(99, 60)])


def test_repr_of_a_storage_request_describes_it_in_one_line() -> None:
    assert str(begun(2.04, None)) == "file:///data, asked to read x 2.0 s ago"
