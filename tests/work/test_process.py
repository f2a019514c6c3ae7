"""Tests of a thread pool with calls in processes: the common pool tests, and cancellation of pending calls on close."""

from __future__ import annotations

import threading

from petastore.work import Pool, ThreadPool
from tests.laws.pool_laws import PoolLaws
from tests.pace import LONG


class TestThreadPoolWithCalls(PoolLaws):
    def make_pool(self) -> Pool:
        return ThreadPool(2, elsewhere=2, cancel_calls=lambda: None)


def test_closing_a_thread_pool_cancels_its_calls() -> None:
    forgot: list[str] = []
    pool = ThreadPool(1, elsewhere=3, cancel_calls=lambda: forgot.append("calls"))
    assert pool.workers == 4
    started, go_on = threading.Event(), threading.Event()

    def task() -> None:
        started.set()
        go_on.wait(LONG)
        forgot.append("task")

    pool.submit(task, priority=0)
    assert started.wait(LONG)
    pool.close()
    go_on.set()
    pool.join()
    assert forgot == ["calls", "task", "calls"]
