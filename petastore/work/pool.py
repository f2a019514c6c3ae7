"""The promise of a pool."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from petastore.storage.requests.under_way import Request

__all__ = ["Pool", "Task"]

Task: TypeAlias = Callable[[], Any]


class Pool(Protocol):
    """Runs tasks."""

    @property
    def workers(self) -> int:
        """Tasks that run at a time; 0 where they run in the thread that submits them."""
        ...

    @property
    def closed(self) -> bool:
        """Whether `close` was called: tasks that run may leave what nobody wants any more."""
        ...

    def submit(self, task: Task, *, priority: int) -> Future[Any]:
        """Runs a task some time, tasks of lower priority number first.

        Returns:
            Its future: the result, or what the task raised; of a task that gives a future, the result of that. It is
            cancelled when the pool is closed before the task ran.
        """
        ...

    def requests(self) -> list[Request]:
        """The requests to storage that tasks are waiting for in other threads than the caller's."""
        ...

    def close(self) -> None:
        """Starts no further task; those that wait are cancelled. May be called again. Does not wait."""
        ...

    def join(self) -> None:
        """Waits until no task runs, after `close`; gives back what the pool holds. May be called again.

        Tasks that storage does not answer are waited for a second or so, and then left behind with an
        `AbandonedThreadWarning`.
        """
        ...
