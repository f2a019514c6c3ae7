"""Tests of combining futures: results, the first failure, cancellation, and freed memory."""

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

from petastore.work.futures import after, settle, together
from tests.pace import LONG


@given(st.permutations(range(4)), st.sets(st.integers(0, 3)))
def test_joined_future_completes_with_the_last_task(order: list[int], failing: set[int]) -> None:
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
        assert problem.args == (min(failing),), "those that come before one that failed are done all the same"


def test_joined_future_raises_the_first_failure_in_task_order() -> None:
    both = threading.Barrier(2, timeout=LONG)

    def fails(number: int) -> None:
        both.wait()
        raise ZeroDivisionError(number)

    with ThreadPoolExecutor(1) as pool:
        tasks = [functools.partial(fails, number) for number in range(2)]
        assert together(tasks, lambda: None, pool.submit).exception(LONG).args == (0,)  # type: ignore[union-attr]


def test_joined_future_fails_when_its_callback_fails() -> None:
    def finish() -> None:
        raise ZeroDivisionError("finish")

    assert isinstance(together([lambda: None], finish, print).exception(0), ZeroDivisionError)


def test_joined_future_completes_once_under_concurrency() -> None:
    ended = itertools.count()
    with ThreadPoolExecutor(8) as pool:
        futures = [together([lambda: None] * 5, lambda: next(ended), pool.submit) for _ in range(200)]
        assert sorted(future.result(LONG) for future in futures) == list(range(200))


@given(st.permutations(range(4)), st.sets(st.integers(0, 3)))
def test_joined_futures_complete_with_the_last(order: list[int], failing: set[int]) -> None:
    futures: list[Future[Any]] = [Future() for _ in range(4)]
    made = after(futures, lambda: [future.result() for future in futures])
    for number in order:
        assert not made.done()
        if number in failing:
            futures[number].set_exception(ZeroDivisionError(number))
        else:
            futures[number].set_result(number)
    problem = made.exception(0)
    if not failing:
        assert made.result(0) == [0, 1, 2, 3]
    else:
        assert isinstance(problem, ZeroDivisionError)
        assert problem.args == (min(failing),)


def test_callback_after_no_futures_runs_at_once() -> None:
    assert after([], lambda: 7).result(0) == 7
    assert together([], lambda: 7, print).result(0) == 7


def test_future_settled_with_a_future_gets_its_result_or_exception() -> None:
    outer: Future[Any] = Future()
    inner: Future[Any] = Future()
    settle(outer, lambda: inner)
    assert not outer.done()
    inner.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        outer.result(0)


def test_dependents_of_a_cancelled_future_are_cancelled() -> None:
    first: Future[Any] = Future()
    made, outer = after([first, Future()], list), Future[Any]()
    settle(outer, lambda: made)
    first.cancel()
    assert made.cancelled()
    assert outer.cancelled()


@pytest.mark.parametrize("nested", [False, True])
def test_future_result_is_freed_without_the_cyclic_garbage_collector(nested: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        first: Future[Any] = Future()
        whole = after([first], functools.partial(together, [lambda: None], Thing, print) if nested else Thing)
        first.set_result(None)
        gone = weakref.ref(whole.result(0))
        del whole
        assert gone() is None, "also where what it came after is kept"
    finally:
        gc.enable()


class Thing:
    """An object that supports weak references."""
