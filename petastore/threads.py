"""Threads that do what they are handed, and that no process has to wait for when it ends.

They are daemons: a call that never comes back, such as a request to storage that hangs, cannot keep the interpreter
from ending. Who can wait for a call does so; when the interpreter ends, calls under way are given a moment.
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
from collections.abc import Callable, Iterable, Iterator

from petastore.forks import made_anew_in_children

__all__ = ["Daemon", "Threads", "give_way", "interpreter_ends", "is_daemon_of_ours", "working"]

_MOMENT_S = 2.0
"""How long calls under way are waited for when the interpreter ends."""

_numbers = itertools.count()

interpreter_ends = threading.Event()
"""Set when the interpreter is about to end: nothing is to be begun any more."""


class Daemon(threading.Thread):
    """A thread of ours: others wait for what it does, and may give up waiting."""

    def __init__(self, name: str, target: Callable[[], None] | None = None) -> None:
        super().__init__(name=name, target=target, daemon=True)

    def join(self, timeout: float | None = None) -> None:
        """Waits until it has ended, but not once the interpreter is being taken down: no daemon runs any more then."""
        # From Python 3.13 on nobody notes the end of one that was stopped so, and joining it would take for ever.
        if not sys.is_finalizing():
            super().join(timeout)


def is_daemon_of_ours() -> bool:
    """Whether the calling thread is a `Daemon`.

    Example:
        >>> is_daemon_of_ours()
        False
    """
    return isinstance(threading.current_thread(), Daemon)


@contextlib.contextmanager
def working() -> Iterator[None]:
    """A block in which the calling thread, which may be anybody's daemon, must not be when the interpreter ends.

    A thread that comes back from C++ into an interpreter that has ended takes the whole process down. So the end waits
    a moment for those that are in such a block, and a daemon that comes to one afterwards stays there for ever.

    Example:
        >>> with working():
        ...     pass
    """
    me = threading.get_ident()
    if interpreter_ends.is_set() and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()
    _working.add(me)
    try:
        yield
    finally:
        _working.discard(me)


class Threads:
    """Threads that are started as they are needed, and wait for the next call when one is done.

    Thread-safe. In a forked child there are none, and what they were doing is forgotten.

    Args:
        name: What their names begin with.
        give_way: They do not interrupt the threads that have the processors when they wake; see `give_way`.

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
        """Whether they give way when they wake."""
        self.make_anew()
        made_anew_in_children(self)
        _alive.add(self)

    def make_anew(self) -> None:
        """Begins without threads."""
        # Reentrant: the collector may run inside, and end what it finds.
        self._lock = threading.RLock()
        self._idle: list[_Thread] = []
        self._all: set[_Thread] = set()
        self._left_behind: set[int] = set()
        self._ended = False

    def run(self, call: Callable[[], None]) -> bool:
        """Has a thread make a call that does not raise; False where none will, since the interpreter ends, or `end`."""
        with self._lock:
            if self._ended or interpreter_ends.is_set():
                return False
            # A thread has its call before anything else: Ctrl-C may come here, and `join` waits for all threads.
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
                if thread.ident is None:  # it was not started, or has not begun: nobody can wait for it
                    self._all.discard(thread)
                raise
        return True

    def _is_free(self, thread: _Thread) -> bool:
        """Whether a thread that has made its call is to wait for another one."""
        with self._lock:
            if not self._ended:
                self._idle.append(thread)
            return not self._ended

    def _has_ended(self, thread: _Thread) -> None:
        with self._lock:
            self._all.discard(thread)

    def end(self) -> None:
        """Ends the threads, each when its call is done. Does not wait; may be called again."""
        with self._lock:
            self._ended = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.calls.put(None)

    def join(self) -> None:
        """Waits, after `end`, until no thread is there but the calling one and those that were left behind."""
        with self._lock:
            ending = [thread for thread in self._all if self._ended and thread.ident not in self._left_behind]
        for thread in ending:
            if thread is not threading.current_thread():
                thread.join()

    def leave_behind(self, identifiers: Iterable[int]) -> None:
        """Has nobody wait any more for some threads, whose calls may never come back."""
        with self._lock:
            self._left_behind.update(identifiers)

    def wait_until_idle(self, deadline: float) -> None:
        """Waits until no call is under way, to a moment of `time.monotonic` at most."""
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
            del call  # or a thread that waits for work would keep what it holds alive
            if not self._home._is_free(self):  # noqa: SLF001 - threads and their home are one thing
                break
        self._home._has_ended(self)  # noqa: SLF001


def give_way() -> None:
    """The calling thread, and those that it starts, are of Linux's class for batches, where that is to be had.

    They get as much of the processors as before. But a thread that wakes may take a processor away from the one that
    has it, and workers wake at every span, when the trainer's thread asks for it, while it holds the interpreter lock:
    one of thirty steps came late by 1 to 5 ms. Threads of this class wait until a processor is free, or their turn.
    A class that somebody chose for the process is left as it is.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    with contextlib.suppress(OSError):  # a sandbox may not let us; the C library musl does not even tell the class
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


_alive: weakref.WeakSet[Threads] = weakref.WeakSet()
_working: set[int] = set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_working.clear)


@atexit.register
def _give_a_moment() -> None:
    """No thread begins anything new; what runs in C++ or in a user's function may end in peace."""
    interpreter_ends.set()
    deadline = time.monotonic() + _MOMENT_S
    for threads in list(_alive):
        threads.wait_until_idle(deadline)
    while _working - {threading.get_ident()} and time.monotonic() < deadline:
        time.sleep(0.001)
