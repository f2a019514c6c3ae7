"""Daemon threads that run submitted functions, and never block the process exit.

Because the threads are daemons, a call that never returns, such as a hanging storage request, cannot prevent the
interpreter from exiting. When the interpreter exits, running calls get a short time to finish.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable

from petastore.forks import made_anew_in_children

__all__ = ["Daemon", "Threads", "give_way", "interpreter_ends", "is_daemon_of_ours", "working"]

_MOMENT_S = 2.0
"""Maximum seconds that interpreter exit waits for running calls."""

_numbers = itertools.count()

interpreter_ends = threading.Event()
"""Event that is set at interpreter exit; afterwards, no thread may start new work."""


class Daemon(threading.Thread):
    """Daemon thread of petastore, which does not block the exit of the process."""

    def __init__(self, name: str, target: Callable[[], None] | None = None) -> None:
        super().__init__(name=name, target=target, daemon=True)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end, except during interpreter shutdown.

        At shutdown, Python stops daemon threads.
        """
        # From Python 3.13 on, a thread that the shutdown has stopped never signals its end, so joining it would hang.
        if not sys.is_finalizing():
            super().join(timeout)


def is_daemon_of_ours() -> bool:
    """Return whether the calling thread is a `Daemon`.

    Example:
        >>> is_daemon_of_ours()
        False
    """
    return isinstance(threading.current_thread(), Daemon)


class working:  # noqa: N801 - used in `with` statements
    """Context manager for work in a daemon thread; interpreter exit waits for it.

    If a thread returns from C++ code after the interpreter has ended, the process crashes. Therefore the interpreter
    waits up to two seconds for threads in this block before it ends. A thread that enters the block later waits forever
    at its start.

    Example:
        >>> with working():
        ...     pass
    """

    __slots__ = ()

    def __enter__(self) -> None:
        if interpreter_ends.is_set() and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()
        _working.add(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        _working.discard(threading.get_ident())


class Threads:
    """Threads that start on demand, and are reused for later calls.

    Thread-safe. A forked child starts without threads and calls.

    Args:
        name: Prefix of the threads' names.
        give_way: Whether the threads must not preempt running threads when they wake up; see `give_way`.

    Example:
        >>> threads, done = Threads("example"), threading.Event()
        >>> threads.run(done.set)
        True
        >>> done.wait(10)
        True
        >>> threads.end(); threads.join()
    """

    def __init__(self, name: str, *, give_way: bool = False) -> None:
        self._name = name
        self.give_way = give_way
        """Whether the threads call `give_way` when they start."""
        self.make_anew()
        made_anew_in_children(self)
        _alive.add(self)

    def make_anew(self) -> None:
        """Reset to the state without threads; also called in a forked child."""
        # Reentrant: garbage collection may run while the lock is held, and finalizers may call methods that lock.
        self._lock = threading.RLock()
        self._idle: list[_Thread] = []
        self._all: set[_Thread] = set()
        self._left_behind: set[int] = set()
        self._ended = False

    def run(self, call: Callable[[], None]) -> bool:
        """Run `call`, which must not raise, in a thread.

        Return False, without running it, after `end` or at interpreter exit.
        """
        with self._lock:
            if self._ended or interpreter_ends.is_set():
                return False
            # The call is stored before the thread starts: Ctrl-C may interrupt in between, and `join` must find every
            # thread.
            if self._idle:
                self._idle[-1].calls.put(call)
                self._idle.pop()
                return True
            thread = _Thread(self, f"{self._name}-{next(_numbers)}")
            thread.calls.put(call)
            try:
                self._all.add(thread)
                thread.start()
            except BaseException:
                if thread.ident is None:  # not started or not yet running: it cannot be joined
                    self._all.discard(thread)
                raise
        return True

    def _is_free(self, thread: _Thread) -> bool:
        """Mark a thread that has finished its call as idle.

        Return False if the thread must end instead.
        """
        with self._lock:
            if not self._ended:
                self._idle.append(thread)
            return not self._ended

    def _has_ended(self, thread: _Thread) -> None:
        with self._lock:
            self._all.discard(thread)

    def end(self) -> None:
        """End each thread after its current call. Does not wait; may be called again."""
        with self._lock:
            self._ended = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.calls.put(None)

    def join(self) -> None:
        """Wait until all threads have ended; call `end` before.

        The calling thread, and threads passed to `leave_behind`, are not waited for.
        """
        with self._lock:
            ending = [thread for thread in self._all if self._ended and thread.ident not in self._left_behind]
        for thread in ending:
            if thread is not threading.current_thread():
                thread.join()

    def leave_behind(self, identifiers: Iterable[int]) -> None:
        """Exclude the threads with these identifiers from `join` and `wait_until_idle`.

        Calls of such threads may never return.
        """
        with self._lock:
            self._left_behind.update(identifiers)

    def wait_until_idle(self, deadline: float) -> None:
        """Wait until no call is running, at most until a time of `time.monotonic`."""
        while time.monotonic() < deadline:
            with self._lock:
                busy = self._all.difference(self._idle) - {threading.current_thread()}
            if all(thread.ident in self._left_behind for thread in busy):
                return
            time.sleep(0.001)


class _Thread(Daemon):
    def __init__(self, home: Threads, name: str) -> None:
        super().__init__(name)
        self._home = home
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def run(self) -> None:
        if self._home.give_way:
            give_way()
        while (call := self.calls.get()) is not None:
            call()
            del call  # drop references, or an idle thread would keep them alive
            if not self._home._is_free(self):  # noqa: SLF001 - private methods of a class in this module
                break
        self._home._has_ended(self)  # noqa: SLF001


def give_way() -> None:
    """Set Linux's batch scheduling class for the calling thread and its new threads.

    These threads get as much CPU time as before, but do not preempt other threads when they wake up. Without this
    class, workers that wake up to load batches may preempt the training thread while it holds the GIL: one of thirty
    steps was 1 to 5 ms late. A scheduling class that the user set for the process is kept. Nothing happens if the
    system does not permit the change.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    with contextlib.suppress(OSError):  # sandboxes may forbid this scheduling class, and musl does not support it
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


_alive: weakref.WeakSet[Threads] = weakref.WeakSet()
_working: set[int] = set()


os.register_at_fork(after_in_child=_working.clear)


@atexit.register
def _give_a_moment() -> None:
    """Reject new work at interpreter exit, and wait briefly for running code.

    Python cannot stop threads safely while they run C++ or user code.
    """
    interpreter_ends.set()
    deadline = time.monotonic() + _MOMENT_S
    for threads in list(_alive):
        threads.wait_until_idle(deadline)
    while _working - {threading.get_ident()} and time.monotonic() < deadline:
        time.sleep(0.001)
