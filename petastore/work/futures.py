"""Futures of pool tasks: combine and chain them, and wait with a storage deadline."""

from __future__ import annotations

import collections
import functools
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias, TypeVar

from petastore.monitoring.activity import Request, overdue
from petastore.storage.requests.retries import wait_for_answer

__all__ = ["Pool", "Task", "after", "in_order", "settle", "then", "together", "wait_for"]

Task: TypeAlias = Callable[[], Any]


class Pool(Protocol):
    """Worker pool that runs tasks by priority."""

    @property
    def workers(self) -> int:
        """Number of tasks that run at a time; 0 if they run in the submitting thread."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the pool is closed: running tasks may stop early."""
        ...

    def submit(self, task: Task, *, priority: int) -> Future[Any]:
        """Submit a task; lower priority numbers run first.

        Returns:
            Future of the task's result or exception. If the task returns a future, the result is that future's result.
            The future is cancelled if the pool is closed before the task ran.
        """
        ...

    def requests(self) -> list[Request]:
        """Return the storage requests in flight, except those of the calling thread."""
        ...

    def close(self) -> None:
        """Cancel queued tasks and start no more, without waiting. May be called again."""
        ...

    def join(self) -> None:
        """After `close`, wait until all tasks have ended. May be called again.

        The pool's threads are released. Tasks whose storage does not respond are abandoned after about a second, with
        an `AbandonedThreadWarning`.
        """
        ...


_Asked = TypeVar("_Asked")
_Made = TypeVar("_Made")

_LOOK_AGAIN_S = 0.25
"""Seconds between checks of storage requests in flight.

The checks are needed because the start of a request does not notify waiting threads.
"""


def settle(future: Future[Any], task: Task) -> None:
    """Run a task, and set its result or exception as that of a future.

    If the task returns another future, the result of that future is set when it is done.

    Example:
        >>> outer, inner = Future(), Future()
        >>> settle(outer, lambda: inner)
        >>> inner.set_result(7)
        >>> outer.result()
        7
    """
    try:
        made = task()
    except BaseException as problem:  # noqa: BLE001 - raised when the result is requested
        future.set_exception(problem)
    else:
        _pass_on(future, made)


def _pass_on(future: Future[Any], made: Any) -> None:
    """Set the result of a future.

    If the result is another future, its result is set instead, when it is done.
    """
    if not isinstance(made, Future):
        future.set_result(made)
    else:
        made.add_done_callback(functools.partial(_settle_with, future))


def _settle_with(future: Future[Any], made: Future[Any]) -> None:
    if made.cancelled():
        future.cancel()
        return
    problem = made.exception()
    if problem is None:
        _pass_on(future, made.result())
    else:
        future.set_exception(problem)


def together(tasks: Sequence[Task], finish: Callable[[], Any], submit: Callable[[Task], Any]) -> Future[Any]:
    """Run the first task in the calling thread, and submit all other tasks.

    Do not wait for the other tasks.

    Args:
        tasks: Functions without arguments; their references are dropped before `finish` is called.
        finish: Function called by the thread that ends the last task, if no task failed.
        submit: Function that runs a task in another thread later. If it never runs the task, the future stays pending.

    Returns:
        A future of the result of `finish`, or of the exception of the first failed task in their order. After a failure
        no further task starts. If `finish` returns a future, the result is that future's result.

    Example:
        >>> together([lambda: print("first"), lambda: print("second")], lambda: 7, lambda task: task()).result()
        second
        first
        7
    """
    job = _Job(len(tasks), finish)
    future, job.tasks = job.future, list(tasks)
    for number in range(1, len(tasks)):
        submit(functools.partial(job.run, number))
    if tasks:
        job.run(0)
    else:
        job.settle()
    return future


def after(futures: Collection[Future[Any]], finish: Callable[[], Any]) -> Future[Any]:
    """Return a future of a function that runs after other futures, without blocking.

    Args:
        futures: Futures to wait for; when all are done, they do not reference `finish`.
        finish: Function called by the thread that completes the last future, if none failed.

    Returns:
        A future of the result of `finish`, or of the exception of the first failed future in their order. If `finish`
        returns a future, the result is that future's result. The returned future is cancelled if any of `futures` is
        cancelled.

    Example:
        >>> one, other = Future(), Future()
        >>> both = after([one, other], lambda: one.result() + other.result())
        >>> other.set_result(4); one.set_result(3)
        >>> both.result()
        7
    """
    job = _Job(len(futures), finish)
    made = job.future
    for number, future in enumerate(futures):
        future.add_done_callback(functools.partial(job.arrived, number))
    if not futures:
        job.settle()
    return made


def then(made: _Asked | Future[_Asked], function: Callable[[_Asked], _Made]) -> _Made | Future[_Made]:
    """Call a function with a value; or, for a future of a value, return a future of the call's result.

    Example:
        >>> future = Future()
        >>> made = then(future, str)
        >>> future.set_result(7)
        >>> then(7, str), made.result()
        ('7', '7')
    """
    return after([made], lambda: function(made.result())) if isinstance(made, Future) else function(made)


class _Job:
    """Counter of unfinished tasks or futures, which runs `finish` after the last one.

    When it is done, it drops all references, because completed futures still reference their callbacks.
    """

    def __init__(self, parts: int, finish: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self.tasks: list[Task] = []
        self._finish = finish
        self._lock = threading.Lock()
        self._left = parts
        self._first_failed: float = math.inf
        self._problem: BaseException | None = None

    def run(self, number: int) -> None:
        """Run a task and count it as done; skip it if an earlier task has failed.

        Earlier means earlier in the order of the tasks.
        """
        try:
            if number < self._first_failed:
                self.tasks[number]()
        except BaseException as problem:  # noqa: BLE001 - raised when the result is requested
            self._fail(number, problem)
        self._count_down()

    def arrived(self, number: int, future: Future[Any]) -> None:
        """Count a future as done, or cancel the result if the future was cancelled."""
        if future.cancelled():
            self.future.cancel()
            return
        problem = future.exception()
        if problem is not None:
            self._fail(number, problem)
        self._count_down()

    def _fail(self, number: int, problem: BaseException) -> None:
        with self._lock:
            if number < self._first_failed:
                self._first_failed, self._problem = number, problem

    def _count_down(self) -> None:
        with self._lock:
            self._left -= 1
            complete = self._left == 0
        if complete:
            self.settle()

    def settle(self) -> None:
        """Set the result of the job's future.

        It is the result of `finish`, or the exception of the first failed task in the order of the tasks.
        """
        future, finish, problem = self.future, self._finish, self._problem
        self.tasks.clear()
        del self.future, self._finish, self._problem
        if problem is None:
            settle(future, finish)
        else:
            future.set_exception(problem)


def wait_for(done: Callable[[], bool], changed: threading.Condition, pool: Pool) -> None:
    """Wait until `done` returns True; it is called whenever the condition is notified.

    Raises:
        StorageTimeoutError: A storage request of a task in the pool exceeded its timeout.
    """
    while not changed.wait_for(done, _LOOK_AGAIN_S):
        problem = overdue(pool.requests())
        if problem is not None:
            raise problem


def in_order(
    function: Callable[[_Asked], _Made], items: Iterable[_Asked], pool: Pool
) -> Iterator[tuple[_Asked, _Made]]:
    """Call a function for each item in a pool; yield `(item, result)` in order.

    Items are taken from `items` as needed: at most `pool.workers` + 1 items are submitted and not yet yielded.

    Raises:
        StorageTimeoutError: A storage request of a task in the pool exceeded its timeout.
        BaseException: The function raised it.

    Example:
        >>> from petastore.work import ThreadPool
        >>> pool = ThreadPool(2)
        >>> list(in_order(abs, [-3, -2, -1], pool))
        [(-3, 3), (-2, 2), (-1, 1)]
        >>> pool.close(); pool.join()
    """
    waiting: collections.deque[tuple[_Asked, Future[_Made]]] = collections.deque()

    def first() -> tuple[_Asked, _Made]:
        item, made = waiting.popleft()
        wait_for_answer(made, pool.requests)
        return item, made.result()

    for place, item in enumerate(items):
        waiting.append((item, pool.submit(functools.partial(function, item), priority=place)))
        if len(waiting) > pool.workers:
            yield first()
    while waiting:
        yield first()
