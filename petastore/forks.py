"""What a forked child has to make anew: locks, and whatever else threads of its parent had in their hands.

After a fork only the thread that forked goes on in the child. A lock that another one held is held there for ever, and
what that thread was about to do is never done. Locks of our own are made anew in the child. Those of libraries are not:
Arrow's allocator holds some while threads ask for their first memory. So a fork waits a moment for tasks that are under
way in other threads, and they begin none meanwhile.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - its hooks and those of logging take locks: after ours has waited
import os
import sys
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Protocol, Self

__all__ = ["MOMENT_S", "Forkable", "Lock", "made_anew_in_children", "of_thread"]

MOMENT_S = 0.25
"""How long a fork waits for tasks of other threads: most are done by then, and some may never be."""


class Forkable(Protocol):
    """What holds locks, or waits for threads."""

    def make_anew(self) -> None:
        """Makes locks that nobody holds, and forgets what other threads were doing; no other thread runs meanwhile."""


_alive: weakref.WeakSet[Forkable] = weakref.WeakSet()


def made_anew_in_children(thing: Forkable) -> None:
    """Has `make_anew` of a thing called in every child that is forked as long as it lives, before anything else runs.

    Thread-safe. The thing is held weakly, and known by identity.

    Example:
        >>> import threading
        >>> class Counter:
        ...     def __init__(self):
        ...         self.make_anew()
        ...         made_anew_in_children(self)
        ...     def make_anew(self):
        ...         self.lock = threading.Lock()
        >>> counter = Counter()
        >>> _ = counter.lock.acquire()
        >>> child = os.fork()
        >>> if child == 0:
        ...     os._exit(0 if counter.lock.acquire(blocking=False) else 1)
        >>> os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        0
    """
    _alive.add(thing)


class Lock:
    """A lock for `with` blocks that nobody holds in a forked child. Not reentrant.

    Example:
        >>> lock = Lock()
        >>> with lock:
        ...     child = os.fork()
        ...     if child == 0:
        ...         with lock:
        ...             os._exit(0)
        >>> os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        0
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Is free."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock.locked():  # not so in a child that was forked inside the block
            self._lock.release()


class _OfThread(threading.local):
    """What each thread has for itself."""

    def __init__(self) -> None:
        self.at_task = threading.RLock()
        """Held while the thread is at a task that a fork of another thread is to wait for, and that waits for forks."""
        with _of_tasks.noting:
            _of_tasks.locks.add(self.at_task)


class _OfTasks:
    """The locks of threads that are at tasks: who forks takes all of them before, as far as it gets them in a moment.

    They are reentrant, so a task may fork itself.
    """

    def __init__(self) -> None:
        self.noting = threading.Lock()
        """Held from before a fork until after it, too: no thread begins its first task meanwhile."""
        self.locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
        self._taken: list[Any] = []

    def take(self) -> None:
        """Before a fork."""
        self.noting.acquire()
        deadline = time.monotonic() + MOMENT_S
        self._taken = [lock for lock in self.locks if lock.acquire(timeout=max(deadline - time.monotonic(), 0))]

    def give_back(self) -> None:
        """After it."""
        taken, self._taken = self._taken, []
        for lock in taken:
            lock.release()
        self.noting.release()

    def give_back_in_child(self) -> None:
        """The others are held for ever, by threads that are not here."""
        self.locks = weakref.WeakSet(self._taken)
        self.give_back()


_of_tasks = _OfTasks()
of_thread = _OfThread()
"""`with of_thread.at_task:` is a task: forks of other threads wait a moment for its end, and it waits for theirs.

Entering and leaving it costs some 50 nanoseconds.

Example:
    >>> with of_thread.at_task:
    ...     pass
"""


def _make_all_anew() -> None:
    _of_tasks.give_back_in_child()
    for thing in list(_alive):
        thing.make_anew()
    _forget_imports_of_other_threads()


def _forget_imports_of_other_threads() -> None:
    """Modules that threads of the parent were importing are imported anew by whoever wants them here.

    Python makes the lock of all imports anew in a child, but not those of single modules, for which it would wait for
    ever.
    """
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    me = threading.get_ident()
    for name, reference in list(locks.items()):
        if getattr(reference(), "owner", None) in (None, me):
            continue
        del locks[name]
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            del sys.modules[name]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_of_tasks.take, after_in_parent=_of_tasks.give_back, after_in_child=_make_all_anew)
