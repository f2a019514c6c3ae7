"""Tests of the thread pool: the common pool tests, concurrency limit, priorities, shared threads."""

from __future__ import annotations

import functools
import threading
import time
from concurrent.futures import Future

import pytest

from petastore.errors import AbandonedThreadWarning
from petastore.monitoring.activity import Request
from petastore.work import Pool, ThreadPool
from tests.laws.pool_laws import PoolLaws
from tests.pace import LONG


def threads_of_petastore() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("petastore")]


class TestThreadPoolOfOne(PoolLaws):
    def make_pool(self) -> Pool:
        return ThreadPool(1)


class TestThreadPoolOfFour(PoolLaws):
    def make_pool(self) -> Pool:
        return ThreadPool(4)


def test_thread_pool_runs_at_most_workers_count_tasks() -> None:
    pool = ThreadPool(3)
    all_run, go_on, lock = threading.Barrier(4), threading.Event(), threading.Lock()
    running, most = [0], [0]

    def task(*, meets: bool) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        if meets:
            all_run.wait(LONG)
        go_on.wait(LONG)
        with lock:
            running[0] -= 1

    futures = [pool.submit(lambda: task(meets=True), priority=0) for _ in range(3)]
    futures += [pool.submit(lambda: task(meets=False), priority=1) for _ in range(9)]
    all_run.wait(LONG)  # three tasks do run concurrently …
    go_on.set()
    for future in futures:
        future.result(LONG)
    assert most[0] == 3  # … but never four
    pool.close()
    pool.join()


def test_thread_pool_runs_tasks_by_priority() -> None:
    pool = ThreadPool(1)
    started, go_on = threading.Event(), threading.Event()
    order: list[int] = []

    def holds() -> None:
        started.set()
        go_on.wait(LONG)

    pool.submit(holds, priority=0)
    assert started.wait(LONG)
    futures = [pool.submit(functools.partial(order.append, number), priority=number) for number in (5, 1, 3, 1)]
    go_on.set()
    for future in futures:
        future.result(LONG)
    assert order == [1, 1, 3, 5]
    pool.close()
    pool.join()


def test_thread_pools_share_threads_until_the_last_closes() -> None:
    first, second = ThreadPool(2), ThreadPool(2)
    for pool in (first, second, first, second):
        pool.submit(lambda: None, priority=0).result(LONG)
    assert 1 <= len(threads_of_petastore()) <= 4
    first.close()
    first.join()
    assert second.submit(lambda: 7, priority=0).result(LONG) == 7
    second.close()
    second.join()
    assert threads_of_petastore() == []


def test_thread_pool_second_join_does_not_wait_for_an_abandoned_thread() -> None:
    began, answer = threading.Event(), threading.Event()

    def ask() -> None:
        with Request("file:///data/frames", "read part-0.parquet", None):
            began.set()
            answer.wait()

    pool = ThreadPool(1)
    pool.submit(ask, priority=0)
    assert began.wait(LONG)
    pool.close()
    with pytest.warns(AbandonedThreadWarning, match=r"a thread .* left behind.*read part-0\.parquet"):
        pool.join()
    pool.join()  # a second warning would be an error
    answer.set()
    deadline = time.monotonic() + LONG
    while threads_of_petastore() and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert threads_of_petastore() == []


def test_thread_pool_task_that_returns_a_future_resolves_to_its_result() -> None:
    pool = ThreadPool(1)
    inner: Future[int] = Future()
    made = pool.submit(lambda: inner, priority=0)
    inner.set_result(7)
    assert made.result(LONG) == 7
    pool.close()
    pool.join()
