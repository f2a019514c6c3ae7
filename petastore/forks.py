"""Fork safety: locks and thread state that a forked child recreates.

After a fork, only the thread that forked exists in the child. If another thread held a lock, the lock stays locked in
the child forever. petastore replaces its own locks in the child. It cannot replace locks of libraries, such as those of
Arrow's allocator, which threads hold while they allocate memory for the first time. Before a fork, petastore therefore
waits a moment until its running tasks have finished, and starts no new tasks.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - imported first, so that its fork hook, which locks, runs after ours
import os
import sys
import threading
import time
import weakref
from typing import Any, Protocol, Self

__all__ = ["Lock", "at_task", "made_anew_in_children"]

MOMENT_S = 0.25
"""Maximum seconds that a fork waits for running tasks of other threads; most tasks take less, some may hang."""


class Forkable(Protocol):
    """Object with locks or threads that a forked child must replace."""

    def make_anew(self) -> None:
        """Create new locks, and drop the state of other threads.

        Called in a forked child, which has only the thread that forked.
        """


_alive: weakref.WeakSet[Forkable] = weakref.WeakSet()


def made_anew_in_children(thing: Forkable) -> None:
    """Register an object, so that each forked child calls its `make_anew`.

    This function is thread-safe. It references the object weakly, and compares objects by identity.

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
    """Lock for `with` blocks that is free in a forked child. Not reentrant.

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
        """Replace the lock by an unlocked one, in a forked child."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock.locked():  # in a child that was forked inside the block, the lock is new and not locked
            self._lock.release()


class _OfTasks:
    """Locks that threads hold while they run tasks, one lock for each thread.

    Before a fork, the forking thread acquires these locks, with a short timeout. The locks are reentrant, so that a
    task may fork.
    """

    def __init__(self) -> None:
        self.noting = threading.Lock()
        """Lock that guards the set `locks`.

        A fork holds it, too, so that no thread adds its lock and begins a task during the fork.
        """
        self.locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
        self._taken: list[Any] = []

    def take(self) -> None:
        """Acquire the locks before a fork, as far as possible within `MOMENT_S` seconds."""
        self.noting.acquire()
        deadline = time.monotonic() + MOMENT_S
        self._taken = [lock for lock in self.locks if lock.acquire(timeout=max(deadline - time.monotonic(), 0))]

    def give_back(self) -> None:
        """Release the locks after the fork."""
        taken, self._taken = self._taken, []
        for lock in taken:
            lock.release()
        self.noting.release()

    def give_back_in_child(self) -> None:
        """Release the acquired locks in the child, and drop all other locks.

        Threads of the parent, which do not exist in the child, hold the other locks.
        """
        self.locks = weakref.WeakSet(self._taken)
        self.give_back()


_of_tasks = _OfTasks()
_own = threading.local()


def at_task() -> threading.RLock:
    """Return the calling thread's lock, which the thread holds while it runs a task.

    A fork in another thread waits up to `MOMENT_S` seconds for running tasks, and new tasks wait for the fork to end.
    Entering and leaving takes about 50 ns.

    Example:
        >>> with at_task():
        ...     pass
    """
    lock: threading.RLock | None = getattr(_own, "lock", None)
    if lock is None:
        lock = _own.lock = threading.RLock()
        with _of_tasks.noting:
            _of_tasks.locks.add(lock)
    return lock


def _make_all_anew() -> None:
    _of_tasks.give_back_in_child()
    for thing in list(_alive):
        thing.make_anew()
    _forget_imports_of_other_threads()


def _forget_imports_of_other_threads() -> None:
    """Remove modules that threads of the parent were importing.

    The child then imports these modules again.

    Python replaces the global import lock in a child, but not the locks of single modules, for which the child would
    wait forever.
    """
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    me = threading.get_ident()
    for name, reference in list(locks.items()):
        if getattr(reference(), "owner", None) in (None, me):
            continue
        del locks[name]
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            del sys.modules[name]


os.register_at_fork(before=_of_tasks.take, after_in_parent=_of_tasks.give_back, after_in_child=_make_all_anew)
