"""Tests that every worker pool must pass: subclass `PoolLaws`, define how to create a pool, and inherit the tests."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from petastore.work.futures import Pool

__all__ = ["PoolLaws"]


class PoolLaws:
    """Tests of the contract of `petastore.work.Pool`."""

    def make_pool(self) -> Pool:
        """Return a new, open pool."""
        raise NotImplementedError

    def test_future_has_the_result_of_its_task(self) -> None:
        """Each future has the result of its own task."""
        pool = self.make_pool()
        futures = [pool.submit(functools.partial(pow, number, 2), priority=number) for number in range(50)]
        assert [future.result(10) for future in futures] == [number * number for number in range(50)]
        pool.close()
        pool.join()

    def test_future_raises_the_exception_of_its_task_with_the_traceback(self) -> None:
        """The traceback shows the line that raised, and the pool continues."""

        def fails() -> None:
            raise ZeroDivisionError("on purpose")

        pool = self.make_pool()
        with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
            pool.submit(fails, priority=0).result(10)
        assert caught.traceback[-1].name == "fails"
        assert pool.submit(lambda: 7, priority=1).result(10) == 7
        pool.close()
        pool.join()

    def test_closed_pool_cancels_tasks_submitted_later(self) -> None:
        """Tasks that are submitted after `close` never run."""
        ran: list[int] = []
        pool = self.make_pool()
        pool.close()
        future = pool.submit(lambda: ran.append(1), priority=0)
        with pytest.raises(CancelledError):
            future.result(10)
        pool.join()
        assert ran == []

    def test_pool_can_be_closed_and_joined_repeatedly(self) -> None:
        """Further calls of `close` and `join` have no effect."""
        pool = self.make_pool()
        for _ in range(2):
            pool.close()
            pool.join()

    def test_future_callback_may_submit_another_task(self) -> None:
        """Tasks can depend on each other without a waiting thread."""
        pool = self.make_pool()
        done = threading.Event()
        seen: list[Any] = []

        def next_one(_: object) -> None:
            pool.submit(lambda: seen.append(2), priority=1).add_done_callback(lambda _: done.set())

        pool.submit(lambda: seen.append(1), priority=0).add_done_callback(next_one)
        assert done.wait(10)
        assert seen == [1, 2]
        pool.close()
        pool.join()
