"""Which thread waits for storage, for what, and whether it has done so for too long."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from petastore.errors import InvalidArgumentError, StorageTimeoutError
from petastore.storage.requests.under_way import (
    Request,
    checked_timeout,
    overdue,
    request_of,
    requests_of,
    seconds_left,
    wait_for_answer,
    waiting_for,
)


def begun(seconds_ago: float, limit_s: float | None) -> Request:
    return Request("file:///data", "read x", limit_s, 1000.0 - seconds_ago, clock=lambda: 1000.0)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), True, "30", object()])
def test_times_in_which_nothing_can_answer_are_refused(timeout: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"storage_timeout=.*give seconds above 0, or None"):
        checked_timeout(timeout)


def test_one_request_inside_another_stands_for_it_until_it_ends() -> None:
    here = threading.get_ident()

    def what() -> str | None:
        request = request_of(here)
        return None if request is None else request.what

    with waiting_for("u", "open", 60):
        with waiting_for("u", "read", None):
            assert what() == "read"
        assert what() == "open"
    assert what() is None


def test_of_some_threads_those_are_told_that_wait() -> None:
    begin, end = threading.Barrier(2), threading.Event()

    def wait() -> None:
        with waiting_for("u", "wait", None):
            begin.wait(30)
            end.wait(30)

    threads = [threading.Thread(target=wait), threading.Thread(target=lambda: None)]
    threads[0].start()
    begin.wait(30)
    assert [request.what for request in requests_of([*threads, threading.current_thread()])] == ["wait"]
    end.set()
    threads[0].join()
    assert requests_of(threads) == []


def test_a_request_is_overdue_from_its_limit_on_and_one_without_never_is() -> None:
    assert overdue([begun(1, 60), begun(10**6, None)]) is None
    problem = overdue([begun(1, 60), begun(61, 60), begun(99, 60)])
    assert isinstance(problem, StorageTimeoutError)
    assert str(problem).startswith("file:///data: storage did not answer within 60 s when it was asked to read x")


def test_who_waits_looks_again_when_the_first_of_them_will_be_overdue() -> None:
    assert seconds_left([], most=5) == 5
    assert seconds_left([begun(0, None)], most=5) == 5
    assert seconds_left([begun(59, 60), begun(0, 60)], most=5) == pytest.approx(1)
    assert seconds_left([begun(99, 60)], most=5) == 0.001


def test_an_answer_ends_the_wait_also_where_others_are_overdue() -> None:
    made: Future[int] = Future()
    made.set_result(7)
    wait_for_answer(made, lambda: [begun(99, 60)])
    with pytest.raises(StorageTimeoutError):
        wait_for_answer(Future(), lambda: [begun(99, 60)])


def test_a_request_says_in_one_line_what_it_is() -> None:
    assert str(begun(2.04, None)) == "file:///data, asked to read x 2.0 s ago"
