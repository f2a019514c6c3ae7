"""Tests of the inline pool: tasks run in the submitting thread, and interrupts reach the caller."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from petastore.work import InlinePool, Pool
from tests.laws.pool_laws import PoolLaws
from tests.pace import LONG


class TestInlinePool(PoolLaws):
    def make_pool(self) -> Pool:
        return InlinePool()


def test_inline_pool_runs_tasks_at_submit() -> None:
    ran_in: list[threading.Thread] = []
    made = InlinePool().submit(lambda: ran_in.append(threading.current_thread()), priority=0)
    assert (ran_in, made.done()) == ([threading.current_thread()], True)


def test_inline_pool_task_that_returns_a_future_resolves_to_its_result() -> None:
    inner: Future[int] = Future()
    made = InlinePool().submit(lambda: inner, priority=0)
    assert not made.done()
    inner.set_result(7)
    assert made.result(LONG) == 7


@pytest.mark.parametrize("is_passed_on", [False, True])
def test_interrupt_of_an_inline_task_interrupts_the_caller(is_passed_on: bool) -> None:
    def interrupted() -> Any:
        if is_passed_on:
            inner: Future[Any] = Future()
            inner.set_exception(KeyboardInterrupt())
            return inner
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        InlinePool().submit(interrupted, priority=0)
