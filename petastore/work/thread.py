"""The thread pool: one set of threads a process, shared by all of its readers.

Page decode, image decode, decompression and large NumPy copies let go of the GIL, so threads are enough for them. The
threads start with the first reader that needs them and end with the last one that lets go of them: a process without an
open reader has none. A thread whose storage does not answer is nobody's any more once it was waited for in vain.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import os
import threading
import time
import warnings
from concurrent.futures import Future
from typing import Any

import numpy.ma  # noqa: F401 - NumPy imports it when it is first asked for, which would be in a worker

from petastore.errors import AbandonedThreadWarning
from petastore.forks import made_anew_in_children, of_thread
from petastore.storage.requests.under_way import Request, request_of
from petastore.threads import Threads, interpreter_ends
from petastore.work.futures import settle
from petastore.work.pool import Task

__all__ = ["ThreadPool", "available_cpus"]

_GRACE_S = 1.0
"""How long `join` waits for requests to storage: those that are answered at all mostly are by then."""

_LOOK_AGAIN_S = 0.05
"""How often `join` looks again whether what still runs waits for storage."""


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
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Begins without threads."""
        # Reentrant: the collector may run inside, and close a pool that it finds.
        self._lock = threading.RLock()
        self._threads: Threads | None = None
        self._leases = 0

    def lease(self) -> Threads:
        with self._lock:
            if self._threads is None:
                self._threads = Threads("petastore", give_way=True)
            self._leases += 1
            return self._threads

    def give_back(self) -> None:
        with self._lock:
            self._leases -= 1
            ended, self._threads = (self._threads, None) if self._leases == 0 else (None, self._threads)
        if ended is not None:
            ended.end()


_shared = _SharedThreads()


class ThreadPool:
    """Runs tasks on the process's threads, a limited number at a time.

    Thread-safe. In a forked child it is closed, and its tasks are forgotten.

    Args:
        workers: Tasks of this pool that run at a time.
        elsewhere: How much more is worked on at a time for them, by others than threads.

    Example:
        >>> pool = ThreadPool(2)
        >>> pool.submit(lambda: 7, priority=0).result()
        7
        >>> pool.close(); pool.join()
    """

    def __init__(self, workers: int, *, elsewhere: int = 0) -> None:
        self.workers = workers + elsewhere
        """What is worked on at a time."""
        self._most = workers
        self.closed = False
        """Whether `close` was called."""
        self._tickets = itertools.count()
        self._begin_without_threads()
        self._threads = _shared.lease()
        self._is_leasing = True
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Nothing runs, nothing waits, and nothing will: the threads are the parent's."""
        self._begin_without_threads()
        self.closed = True

    def _begin_without_threads(self) -> None:
        # Entering a condition is Python, in which Ctrl-C may come while the lock is held; entering a lock is not.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: list[tuple[int, int, Future[Any], Task]] = []
        self._starting: set[object] = set()  # a token for each thread that is about to run tasks of this pool
        self._running: set[int] = set()  # threads that run tasks, by their identifiers
        self._left_behind: set[int] = set()  # those of them that nobody waits for any more
        self.closed = self._is_leasing = False

    def submit(self, task: Task, *, priority: int) -> Future[Any]:
        """Runs the task on one of the threads, tasks of lower priority number first."""
        future: Future[Any] = Future()
        with self._lock:
            if self.closed:
                future.cancel()
                return future
            heapq.heappush(self._waiting, (priority, next(self._tickets), future, task))
            began = len(self._starting) + len(self._running) >= self._most or self._begin_one_more()
        # When the interpreter ends, tasks wait for ever, and so do the daemons that want them; not so the main thread.
        if not began and threading.current_thread() is threading.main_thread():
            self.close()
        return future

    def _begin_one_more(self) -> bool:
        """One more thread for what waits; False where the interpreter ends."""
        token, began = object(), False
        try:
            self._starting.add(token)
            began = self._threads.run(functools.partial(self._run_waiting, token))
        finally:
            if not began:  # or it was interrupted, and the thread says itself that it runs
                self._starting.discard(token)
        return began

    def _run_waiting(self, token: object) -> None:
        me, at_task = threading.get_ident(), of_thread.at_task
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
                with at_task:
                    settle(future, task)
            del future, task  # or a thread that waits for work would keep the last result alive

    def _give_threads_back(self, *, once_idle: bool) -> None:
        if self.closed and self._is_leasing and not (once_idle and (self._starting or self._running)):
            self._is_leasing = False
            _shared.give_back()

    def requests(self) -> list[Request]:
        """The requests to storage that tasks wait for."""
        with self._lock:
            running = list(self._running)
        return [request for thread in running if (request := request_of(thread)) is not None]

    def close(self) -> None:
        """Cancels the tasks that wait; those that run go on to their end."""
        with self._lock:
            self.closed = True
            waiting, self._waiting = self._waiting, []
            self._give_threads_back(once_idle=True)
        for _, _, future, _ in waiting:
            future.cancel()

    def join(self) -> None:
        """Waits for the tasks that run, after `close`; for those that wait for storage not much longer than a second.

        Threads that storage keeps longer are left behind, and an `AbandonedThreadWarning` names what they wait for:
        once, for whoever joins afterwards does not wait for them.
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
        if hopeless:
            _warn_of(hopeless)

    def _others(self) -> int:
        """How many threads the calling one would wait for."""
        return len(self._starting) + len(self._running - {threading.get_ident(), *self._left_behind})

    def _hopeless(self) -> list[Request]:
        """What the other threads wait for, where each of them has waited for storage for long; else nothing."""
        waited_for = self._running - self._left_behind - {threading.get_ident()}
        requests = [request_of(thread) for thread in waited_for]
        hopeless = [request for request in requests if request is not None and request.seconds >= _GRACE_S]
        return hopeless if len(hopeless) == self._others() else []


def _warn_of(requests: list[Request]) -> None:
    one = len(requests) == 1
    warnings.warn(
        f"{'a thread' if one else f'{len(requests):,} threads'} could not be ended and {'is' if one else 'are'} left "
        f"behind, since storage does not answer: {'; '.join(map(str, requests))}. It ends with the process, or once "
        "storage answers",
        AbandonedThreadWarning,
        stacklevel=2,
    )
