"""Several tasks are one future: of what comes of them, or of the first one that failed."""

from __future__ import annotations

import functools
import gc
import itertools
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.work.together import flat, together


@given(st.permutations(range(4)), st.sets(st.integers(0, 3)))
def test_the_future_is_there_with_the_last_task_whichever_that_is(order: list[int], failing: set[int]) -> None:
    waiting: list[Any] = []
    done: list[int] = []

    def task(number: int) -> None:
        if number in failing:
            raise ZeroDivisionError(number)
        done.append(number)

    tasks = [functools.partial(task, number) for number in range(5)]
    future = together(tasks, lambda: sorted(done), waiting.append)
    for place, number in enumerate(order):
        assert not future.done()
        assert len(waiting) == 4, f"{place} of 4 submitted tasks were run"
        waiting[number]()
    problem = future.exception(0)
    if not failing:
        assert future.result(0) == [0, 1, 2, 3, 4]
    else:
        assert isinstance(problem, ZeroDivisionError)
        ran = [0, *(number + 1 for number in order)]
        first_to_fail = next(number for number in ran if number in failing)
        assert problem.args == (first_to_fail,), "what comes after a failure is not begun"


def test_of_several_failures_the_first_in_the_order_of_tasks_is_told() -> None:
    both = threading.Barrier(2, timeout=30)

    def fails(number: int) -> None:
        both.wait()
        raise ZeroDivisionError(number)

    with ThreadPoolExecutor(1) as pool:
        tasks = [functools.partial(fails, number) for number in range(2)]
        assert together(tasks, lambda: None, pool.submit).exception(30).args == (0,)  # type: ignore[union-attr]


def test_a_finish_that_fails_fails_the_future() -> None:
    def finish() -> None:
        raise ZeroDivisionError("finish")

    assert isinstance(together([lambda: None], finish, print).exception(0), ZeroDivisionError)


def test_many_threads_end_one_job_once() -> None:
    ended = itertools.count()
    with ThreadPoolExecutor(8) as pool:
        futures = [together([lambda: None] * 5, lambda: next(ended), pool.submit) for _ in range(200)]
        assert sorted(future.result(30) for future in futures) == list(range(200))


def test_a_future_of_a_future_is_made_flat() -> None:
    outer: Future[Any] = Future()
    inner: Future[Any] = Future()
    whole = flat(outer)
    outer.set_result(inner)
    assert not whole.done()
    inner.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        whole.result(0)


def test_a_cancelled_future_stays_cancelled() -> None:
    outer: Future[Any] = Future()
    outer.cancel()
    assert flat(outer).cancelled()


@pytest.mark.parametrize("nested", [False, True])
def test_what_was_made_is_gone_with_the_future_and_waits_for_no_collector(nested: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        outer: Future[Any] = Future()
        whole = flat(outer)
        made = together([lambda: None], Thing, print)
        outer.set_result(made if nested else made.result(0))
        gone = weakref.ref(whole.result(0))
        del outer, made, whole
        assert gone() is None
    finally:
        gc.enable()


class Thing:
    """Something that can be referred to weakly."""
