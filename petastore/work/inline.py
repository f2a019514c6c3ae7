"""The inline pool: tasks run in the thread that submits them. The slow path that all other pools must equal."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from petastore.storage.requests.under_way import Request
from petastore.threads import working
from petastore.work.futures import settle
from petastore.work.pool import Task

__all__ = ["InlinePool"]


class InlinePool:
    """Runs each task at once, in the caller's thread.

    Example:
        >>> InlinePool().submit(lambda: 7, priority=0).result()
        7
    """

    workers = 0

    def __init__(self) -> None:
        self.closed = False
        """Whether `close` was called."""

    def submit(self, task: Task, *, priority: int) -> Future[Any]:  # noqa: ARG002 - the promise of a pool
        """Runs the task before it returns."""
        future: Future[Any] = Future()
        if self.closed:
            future.cancel()
            return future
        future.set_running_or_notify_cancel()
        with working():
            settle(future, task)
        problem = future.exception() if future.done() and not future.cancelled() else None
        if isinstance(problem, KeyboardInterrupt):  # or the caller would go on with the next task
            raise problem
        return future

    def requests(self) -> list[Request]:
        """None: whoever could look waits for them."""
        return []

    def close(self) -> None:
        """Cancels whatever is submitted from now on."""
        self.closed = True

    def join(self) -> None:
        """Nothing runs between calls."""
