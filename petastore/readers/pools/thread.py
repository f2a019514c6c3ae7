"""The thread pool: one set of threads a process, shared by all of its readers.

Page decode, image decode, decompression and large NumPy copies let go of the GIL, so threads are enough for them. The
threads start with the first reader that needs them and end with the last one that lets go of them: a process without an
open reader has none.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from petastore.readers.pools.pool import Task

__all__ = ["ThreadPool", "available_cpus"]

_MOST_THREADS = 256
"""Threads a process has at most, over all readers; `ThreadPoolExecutor` starts one only when all others are busy."""


def available_cpus() -> int:
    """CPUs that this process may use.

    Example:
        >>> available_cpus() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _SharedThreads:
    """The threads of this process, and how many pools lease them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew; in a child after a fork, where the threads of the parent do not exist."""
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._leases = 0

    def lease(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="petastore")
            self._leases += 1
            return self._executor

    def give_back(self) -> None:
        with self._lock:
            self._leases -= 1
            ended, self._executor = (self._executor, None) if self._leases == 0 else (None, self._executor)
        if ended is not None:
            # The collector may find a forgotten reader while a worker thread runs, and that cannot wait for itself.
            ended.shutdown(wait=not threading.current_thread().name.startswith("petastore"))


_shared = _SharedThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)


class ThreadPool:
    """Runs tasks on the process's threads, a limited number at a time.

    Thread-safe.

    Args:
        workers: Tasks of this pool that run at a time.

    Example:
        >>> pool = ThreadPool(2)
        >>> pool.submit(lambda: 7, priority=0).result()
        7
        >>> pool.close(); pool.join()
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._executor = _shared.lease()
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, int, Future[Any], Task]] = []
        self._tickets = itertools.count()
        self._running = 0
        self._closed = False
        self._gave_back = False

    def submit(self, task: Task, *, priority: int) -> Future[Any]:
        """Runs the task on one of the threads, tasks of lower priority number first."""
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                future.cancel()
                return future
            heapq.heappush(self._waiting, (priority, next(self._tickets), future, task))
            began = self._running >= self.workers or self._begin_one_more()
        if not began:
            self.close()
        return future

    def _begin_one_more(self) -> bool:
        """One more thread for what waits; False where the interpreter ends, and nobody will ask for it any more."""
        try:
            self._executor.submit(self._run_waiting)
        except RuntimeError:
            return False
        self._running += 1
        return True

    def _run_waiting(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._running -= 1
                    self._changed.notify_all()
                    return
                _, _, future, task = heapq.heappop(self._waiting)
            if future.set_running_or_notify_cancel():
                _settle(future, task)
            del future, task  # or a thread that waits for work would keep the last result alive

    def close(self) -> None:
        """Cancels the tasks that wait; those that run go on to their end."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
        for _, _, future, _ in waiting:
            future.cancel()

    def join(self) -> None:
        """Waits for the tasks that run, then gives the threads back."""
        with self._changed:
            mine = 1 if threading.current_thread().name.startswith("petastore") else 0
            self._changed.wait_for(lambda: self._running <= mine)
            gave_back, self._gave_back = self._gave_back, True
        if not gave_back:
            _shared.give_back()


def _settle(future: Future[Any], task: Task) -> None:
    try:
        result = task()
    except BaseException as problem:  # noqa: BLE001 - whatever it is, it belongs to whoever asks for the result
        future.set_exception(problem)
    else:
        future.set_result(result)
