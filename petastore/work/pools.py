"""Pools that run the tasks of readers: thread pool and inline pool.

All readers of a process share the same threads. Decoding of pages and images, decompression and large NumPy copies
release the GIL, so they run in parallel in threads. The threads start with the first reader and end with the last one.
A thread is abandoned if it waits for storage that does not respond before the timeout.

Worker processes run only a user's Python functions (`petastore.transforming.processes`). Fetching and decoding always
run in threads, so that the shuffle buffer exists only once. The inline pool runs all tasks in the calling thread; it is
slow, and tests compare the other pools with it. All pools give equal results.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import os
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal, TypeAlias

import numpy.ma  # noqa: F401 - otherwise NumPy imports it on first use, in a worker

from petastore.decoding.decode import DEFAULT_MAX_CELL_BYTES
from petastore.errors import AbandonedThreadWarning
from petastore.forks import at_task, made_anew_in_children
from petastore.monitoring.activity import Request, request_by_thread
from petastore.plan.request import known_word, whole_number
from petastore.storage.row_groups.asked_columns import MOST_BYTES
from petastore.threads import Threads, interpreter_ends, working
from petastore.work.futures import Pool, Task, settle

__all__ = ["DEFAULT_MAX_CELL_BYTES", "InlinePool", "PoolType", "ThreadPool", "Workers", "available_cpus"]


PoolType: TypeAlias = Literal["thread", "process", "dummy"]
"""Names of worker pools; see `Workers.kind`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Workers:
    """Settings of a reader's worker pool, and limits of its memory.

    Example:
        >>> Workers("dummy").pool().workers
        0
        >>> Workers("fibre")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: reader_pool_type must be one of 'thread', 'process', 'dummy', got 'fibre'
    """

    kind: PoolType = "thread"
    """Name of the pool: `"thread"`, `"process"` or `"dummy"`.

    `"process"` uses threads, too, but runs functions of transforms in processes. `"dummy"` runs everything in the
    thread that iterates.
    """

    count: int | None = None
    """Number of tasks that run at a time; None means one per usable CPU.

    With `"process"`, it is instead the number of processes for transform functions.
    """

    memory_budget: int | None = None
    """Maximum bytes of loaded row groups and prefetched batches; None means no limit."""

    max_cell_bytes: int | None = DEFAULT_MAX_CELL_BYTES
    """Maximum decoded bytes of one cell; None means no limit."""

    def __post_init__(self) -> None:
        known_word(self.kind, PoolType, name="reader_pool_type")
        if self.memory_budget is not None:
            budget = whole_number(self.memory_budget, name="memory_budget", least=1)
            object.__setattr__(self, "memory_budget", budget)
        if self.max_cell_bytes is not None:
            most = whole_number(self.max_cell_bytes, name="max_cell_bytes", least=1)
            object.__setattr__(self, "max_cell_bytes", most)
        if self.count is not None:
            object.__setattr__(self, "count", whole_number(self.count, name="workers_count", least=1))

    @property
    def most_copied_bytes(self) -> int:
        """Maximum decoded bytes of a dictionary-encoded column of a row group.

        Decoding copies the dictionary value for each row.
        """
        return MOST_BYTES if self.memory_budget is None else self.memory_budget // 4

    @property
    def at_a_time(self) -> int:
        """Number of tasks that run at a time; 0 if they run in the consumer's thread."""
        return 0 if self.kind == "dummy" else self.count or available_cpus()

    def pool(self) -> Pool:
        """Return an open pool for work without transform functions.

        The caller closes and joins the pool.
        """
        return InlinePool() if self.kind == "dummy" else ThreadPool(self.count or available_cpus())


_GRACE_S = 1.0
"""Seconds for which `join` waits for storage requests.

Most responses arrive within this time.
"""

_LOOK_AGAIN_S = 0.05
"""Seconds between checks in `join` for running tasks that wait for storage."""


def available_cpus() -> int:
    """Return the number of CPUs that this process may use.

    Example:
        >>> available_cpus() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _SharedThreads:
    """The shared threads of this process, with a count of the pools that use them."""

    def __init__(self) -> None:
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Drop all threads in a forked child, in which they do not exist."""
        # Reentrant: garbage collection may run while the lock is held, and close a pool.
        self._lock = threading.RLock()
        self._threads: Threads | None = None
        self._leases = 0

    def lease(self) -> Threads:
        """Return the threads for one more pool; start them for the first pool."""
        with self._lock:
            if self._threads is None:
                self._threads = Threads("petastore", give_way=True)
            self._leases += 1
            return self._threads

    def give_back(self) -> None:
        """End the threads if no other pool uses them; call it once for each `lease`."""
        with self._lock:
            self._leases -= 1
            ended, self._threads = (self._threads, None) if self._leases == 0 else (None, self._threads)
        if ended is not None:
            ended.end()


_shared = _SharedThreads()


class ThreadPool:
    """Runs tasks on the process's threads, a limited number at a time.

    Thread-safe. In a forked child, the pool is closed and has no tasks.

    Args:
        workers: Number of tasks of this pool that run at a time.
        elsewhere: Number of calls that run outside the threads at a time, in worker processes. It is added to the
            attribute `workers`.
        cancel_calls: Function that cancels queued calls outside the threads.

    Example:
        >>> pool = ThreadPool(2)
        >>> pool.submit(lambda: 7, priority=0).result()
        7
        >>> pool.close(); pool.join()
    """

    def __init__(self, workers: int, *, elsewhere: int = 0, cancel_calls: Callable[[], None] = lambda: None) -> None:
        self.workers = workers + elsewhere
        """Number of tasks that run at a time."""
        self._most, self._cancel_calls = workers, cancel_calls
        self.closed = False
        """Whether `close` was called."""
        self._tickets = itertools.count()
        self._begin_without_threads()
        self._threads = _shared.lease()
        self._is_leasing = True
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Close the pool and drop all tasks, in a forked child without the threads."""
        self._begin_without_threads()
        self.closed = True

    def _begin_without_threads(self) -> None:
        # Entering a condition is Python code, which Ctrl-C may interrupt with the lock held; entering a lock is atomic.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: list[tuple[int, int, Future[Any], Task]] = []
        self._starting: set[object] = set()  # a token for each thread that is about to run tasks of this pool
        self._running: set[int] = set()  # threads that run tasks, by their identifiers
        self._left_behind: set[int] = set()  # threads that `join` has abandoned: later calls do not wait for them
        self.closed = self._is_leasing = False

    def submit(self, task: Task, *, priority: int) -> Future[Any]:
        """Queue a task for the threads; lower priority numbers run first."""
        future: Future[Any] = Future()
        with self._lock:
            if self.closed:
                future.cancel()
                return future
            heapq.heappush(self._waiting, (priority, next(self._tickets), future, task))
            began = len(self._starting) + len(self._running) >= self._most or self._begin_one_more()
        # At interpreter exit, the task is never run. Daemon threads may wait for it forever, but not the main thread.
        if not began and threading.current_thread() is threading.main_thread():
            self.close()
        return future

    def _begin_one_more(self) -> bool:
        """Start one more thread for queued tasks; return False at interpreter exit."""
        token, began = object(), False
        try:
            self._starting.add(token)
            began = self._threads.run(functools.partial(self._run_waiting, token))
        finally:
            if not began:  # a thread that began removes its token itself
                self._starting.discard(token)
        return began

    def _run_waiting(self, token: object) -> None:
        """Run queued tasks in the calling thread until the queue is empty."""
        me, held = threading.get_ident(), at_task()
        with self._lock:
            self._starting.discard(token)
            self._running.add(me)
        while True:
            with self._lock:
                if not self._waiting or interpreter_ends.is_set():
                    self._running.discard(me)
                    self._left_behind.discard(me)
                    self._changed.notify_all()
                    self._give_threads_back(once_idle=True)
                    return
                _, _, future, task = heapq.heappop(self._waiting)
            if future.set_running_or_notify_cancel():
                with held:
                    settle(future, task)
            del future, task  # drop references, or an idle thread would keep the last result alive

    def _give_threads_back(self, *, once_idle: bool) -> None:
        """End the use of the shared threads by a closed pool.

        With `once_idle`, do nothing while threads of the pool run or start.
        """
        if self.closed and self._is_leasing and not (once_idle and (self._starting or self._running)):
            self._is_leasing = False
            _shared.give_back()

    def requests(self) -> list[Request]:
        """Return the storage requests that tasks wait for."""
        with self._lock:
            running = list(self._running)
        return [request for thread in running if (request := request_by_thread.get(thread)) is not None]

    def close(self) -> None:
        """Cancel queued tasks and calls; running ones continue."""
        with self._lock:
            self.closed = True
            waiting, self._waiting = self._waiting, []
            self._give_threads_back(once_idle=True)
        for _, _, future, _ in waiting:
            future.cancel()
        self._cancel_calls()

    def join(self) -> None:
        """After `close`, wait for running tasks.

        For tasks that wait for storage, wait only about a second. Threads that wait longer are abandoned, and one
        `AbandonedThreadWarning` names their storage requests. Later calls do not wait for them.
        """
        began = time.monotonic()
        hopeless: list[Request] = []
        with self._lock:
            while self._others() and not hopeless:
                self._changed.wait(max(began + _GRACE_S - time.monotonic(), _LOOK_AGAIN_S))
                hopeless = self._hopeless() if time.monotonic() - began >= _GRACE_S else []
            if hopeless:
                self._left_behind |= self._running - {threading.get_ident()}
                self._threads.leave_behind(self._left_behind)
            self._give_threads_back(once_idle=False)
        self._threads.join()
        self._cancel_calls()  # cancel calls that the last tasks have submitted
        if hopeless:
            _warn_of(hopeless)

    def _others(self) -> int:
        """Return the number of threads that run tasks, without this thread and abandoned threads."""
        return len(self._starting) + len(self._running - {threading.get_ident(), *self._left_behind})

    def _hopeless(self) -> list[Request]:
        """Return the storage requests of the pool's threads, if each thread waits for a slow request.

        A request is slow if it has taken at least `_GRACE_S`. Return an empty list if any thread does not wait for a
        slow request. This thread and abandoned threads are ignored.
        """
        waited_for = self._running - self._left_behind - {threading.get_ident()}
        requests = map(request_by_thread.get, waited_for)
        hopeless = [request for request in requests if request is not None and request.seconds >= _GRACE_S]
        return hopeless if len(hopeless) == self._others() else []


def _warn_of(requests: list[Request]) -> None:
    one = len(requests) == 1
    warnings.warn(
        f"{'a thread' if one else f'{len(requests):,} threads'} could not be ended and {'is' if one else 'are'} left "
        f"behind, because storage does not respond: {'; '.join(map(str, requests))}. "
        f"{'It ends' if one else 'They end'} with the process, or when storage responds",
        AbandonedThreadWarning,
        stacklevel=2,
    )


class InlinePool:
    """Pool that runs each task at once, in the caller's thread.

    Example:
        >>> InlinePool().submit(lambda: 7, priority=0).result()
        7
    """

    workers = 0

    def __init__(self) -> None:
        self.closed = False
        """Whether `close` was called."""

    def submit(self, task: Task, *, priority: int) -> Future[Any]:  # noqa: ARG002 - part of the interface of pools
        """Run the task before returning."""
        future: Future[Any] = Future()
        if self.closed:
            future.cancel()
            return future
        future.set_running_or_notify_cancel()
        with working():
            settle(future, task)
        problem = future.exception() if future.done() and not future.cancelled() else None
        if isinstance(problem, KeyboardInterrupt):  # Ctrl-C: the caller must not continue with the next task
            raise problem
        return future

    def requests(self) -> list[Request]:
        """Return an empty list, because tasks run in the caller's thread."""
        return []

    def close(self) -> None:
        """Cancel tasks submitted from now on."""
        self.closed = True

    def join(self) -> None:
        """Return at once: nothing runs between calls."""
