"""What a forked child has to make anew: locks, and whatever else threads of its parent had in their hands.

After a fork only the thread that forked goes on in the child. A lock that another one held is held there for ever, and
what that thread was about to do is never done.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from types import TracebackType
from typing import Protocol, Self

__all__ = ["Forkable", "Lock", "made_anew_in_children"]


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


def _make_all_anew() -> None:
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
    os.register_at_fork(after_in_child=_make_all_anew)
