"""An answer in time is given as it is; who waits for none goes, and leaves no thread behind but one that hangs."""

from __future__ import annotations

import threading

import pytest

from petastore.errors import StorageTimeoutError
from petastore.storage.requests.in_time import in_time
from petastore.storage.requests.under_way import Request, request_of
from petastore.threads import Daemon


def asked(limit_s: float | None) -> Request | None:
    return in_time(
        lambda: request_of(threading.get_ident()), url="file:///data", what="look at itself", limit_s=limit_s
    )


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_while_it_runs_the_call_is_a_request_that_others_can_see(limit_s: float | None) -> None:
    found = asked(limit_s)
    assert found is not None
    assert (found.url, found.what, found.limit_s) == ("file:///data", "look at itself", limit_s)
    assert request_of(threading.get_ident()) is None


def test_what_the_call_raises_is_raised_as_it_is() -> None:
    def fail() -> None:
        raise problem

    for problem in (OSError("gone"), KeyboardInterrupt()):
        with pytest.raises(type(problem)) as caught:
            in_time(fail, url="file:///data", what="fail", limit_s=30)
        assert caught.value is problem


def test_a_thread_of_ours_makes_the_call_itself_and_any_other_has_a_daemon_make_it() -> None:
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


def test_who_waits_too_long_is_told_what_was_asked_and_for_how_long() -> None:
    answer = threading.Event()
    try:
        with pytest.raises(StorageTimeoutError, match=r"s3://b/d: storage did not answer within 0.05 s .* to count"):
            in_time(answer.wait, url="s3://b/d", what="count", limit_s=0.05)
    finally:
        answer.set()
