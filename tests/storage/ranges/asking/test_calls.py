"""Who waits for calls goes when all are answered, when one has failed for good, or when one is late."""

from __future__ import annotations

import threading
import time

import pytest

from petastore.storage.ranges.asking.calls import Calls
from petastore.storage.ranges.pacing.hedges import Hedges

LONG_S = 60.0


def calls(*expected_s: float, seconds: float = LONG_S) -> Calls:
    return Calls(expected_s, time.monotonic() + seconds)


def measured(answers: int = 40) -> Hedges:
    """What is late after twice the time that it is thought to take."""
    hedges = Hedges()
    for _ in range(answers):
        hedges.answered(expected_s=1.0, took_s=1.0)
    return hedges


def test_the_first_of_two_answers_counts() -> None:
    some = calls(1, 1)
    some.note(0, "first")
    some.note(0, "second")
    assert (some.answers, some.is_complete) == (["first", None], False)
    some.note(1, "other")
    assert some.is_complete
    assert some.wait(None)


def test_a_failure_ends_all_and_what_comes_later_is_nobodys() -> None:
    some, problem = calls(1, 1), OSError("gone")
    some.fail(1, problem)
    some.note(0, "late")
    assert (some.problem, some.answers, some.over.is_set()) == (problem, [None, None], True)
    assert some.wait(None)


def test_a_call_that_is_made_twice_fails_when_both_have() -> None:
    some, hedges = calls(0.001), measured()
    some.began[0] = time.monotonic() - 1
    assert some.late(hedges) == [0]
    some.fail(0, OSError("one"))
    assert not some.over.is_set()
    some.fail(0, OSError("both"))
    assert str(some.problem) == "both"


def test_a_failure_of_what_was_answered_meanwhile_is_no_failure() -> None:
    some = calls(1)
    some.note(0, "answer")
    some.fail(0, OSError("the other one"))
    assert some.problem is None


def test_what_is_late_is_told_once_in_order_and_no_more_than_may_be() -> None:
    some, hedges = calls(*[0.001] * 5), measured(answers=60)
    some.began = [time.monotonic() - 1] * 5
    some.note(1, "answer")
    assert some.late(hedges) == [0, 2, 3]  # of sixty answers a twentieth may be asked for twice
    assert some.late(hedges) == []


def test_what_was_not_begun_or_is_still_in_time_is_not_late() -> None:
    some, hedges = calls(0.001, LONG_S), measured()
    some.began[1] = time.monotonic()
    assert some.late(hedges) == []
    some.began[0] = time.monotonic() - 1
    assert some.late(Hedges()) == []  # nothing was measured yet
    assert some.late(hedges) == [0]


def test_who_waits_looks_up_when_one_may_be_late_and_at_the_deadline_is_told_that_it_is_over() -> None:
    some = calls(0.001)
    some.began[0] = time.monotonic() - 1
    assert not some.wait(measured())
    assert calls(1, seconds=0.01).wait(None)
    assert calls(1, seconds=-1).wait(measured())


@pytest.mark.parametrize("what", ["answer", "failure", "end"])
def test_who_waits_is_woken(what: str) -> None:
    some = calls(1, seconds=1e6)
    wake = {"answer": lambda: some.note(0, "x"), "failure": lambda: some.fail(0, OSError()), "end": some.end}[what]
    thread = threading.Thread(target=wake)
    thread.start()
    assert some.wait(None)
    thread.join()
