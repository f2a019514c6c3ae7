"""Tests of the scheduling class of worker threads: SCHED_BATCH for workers, unchanged for all other threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from petastore.threads import Threads, give_way
from petastore.work import ThreadPool
from tests.pace import LONG

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux alone has a class for batches")


def _class_of_the_calling_thread() -> int:
    return os.sched_getscheduler(0)


def _of_a_new_thread(ask: Callable[[], int]) -> int:
    said: Future[int] = Future()
    thread = threading.Thread(target=lambda: said.set_result(ask()))
    thread.start()
    thread.join()
    return said.result()


def test_worker_threads_use_batch_scheduling() -> None:
    before = _class_of_the_calling_thread()
    pool = ThreadPool(1)
    try:
        assert pool.submit(_class_of_the_calling_thread, priority=0).result() == os.SCHED_BATCH
    finally:
        pool.close()
        pool.join()
    assert _class_of_the_calling_thread() == before == os.SCHED_OTHER


def test_threads_that_are_not_workers_keep_their_scheduling_class() -> None:
    threads, said = Threads("test"), Future[int]()
    threads.run(lambda: said.set_result(_class_of_the_calling_thread()))
    try:
        assert said.result(timeout=LONG) == os.SCHED_OTHER
    finally:
        threads.end()
        threads.join()


def test_scheduling_class_set_by_the_user_is_kept() -> None:
    def ask() -> int:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        give_way()
        return _class_of_the_calling_thread()

    assert _of_a_new_thread(ask) == os.SCHED_IDLE


@pytest.mark.parametrize("call", ["sched_getscheduler", "sched_setscheduler"])
def test_scheduling_class_is_kept_when_the_system_forbids_changes(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError("not here")

    def ask() -> int:
        with monkeypatch.context() as patched:
            patched.setattr(os, call, forbidden)
            give_way()
        return _class_of_the_calling_thread()

    assert _of_a_new_thread(ask) == os.SCHED_OTHER
