"""What threads share: an iterator, each of whose items goes to exactly one of them; and the end of a pass."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterator
from typing import TypeVar

from petastore.errors import ReaderClosedError
from petastore.forks import made_anew_in_children

__all__ = ["End", "Shared"]

_Item = TypeVar("_Item")


class Shared(Iterator[_Item]):
    """A generator that several threads may ask at once: one is in it, and the others wait for their turn.

    In a forked child it raises `ReaderClosedError`: what it gives is given in the parent.

    Args:
        items: The generator; it is its own from now on.

    Example:
        >>> shared = Shared(number for number in range(3))
        >>> list(shared)
        [0, 1, 2]
    """

    def __init__(self, items: Generator[_Item]) -> None:
        self._items = items
        self._turn = threading.Lock()
        self._is_of_parent = False
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Gives nothing more. The generator is kept: to end it may need what is not made anew yet."""
        self._turn = threading.Lock()
        self._is_of_parent = True

    def __next__(self) -> _Item:
        with self._turn:
            if self._is_of_parent:
                raise ReaderClosedError(
                    "this was being read when the process was forked, and its rows go to the parent: in the child, "
                    "call reset() of the reader, or open another one"
                )
            return next(self._items)

    def close(self) -> None:
        """Ends it early, once no other thread is in it."""
        with self._turn:
            if not self._is_of_parent:
                self._items.close()


class End:
    """The end of a pass over what threads share: who was told of it, and who still has to be.

    A loop that begins after the end begins the next pass. But a thread that ran before the end and meant to share the
    pass may begin its loop too late, when others have taken all there was: its loop is empty, rather than a second pass
    through the same rows. The thread that began the others is believed to mean another pass once they are gone, and so
    are threads of a framework's own, which hand loops from one to the other.
    """

    def __init__(self) -> None:
        self._alive = weakref.WeakSet(threading.enumerate())
        self._told: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def tell(self) -> None:
        """Tells the calling thread."""
        self._told.add(threading.current_thread())

    @property
    def is_news(self) -> bool:
        """Whether the calling thread comes late for the pass that has ended, and does not know it."""
        me = threading.current_thread()
        if me in self._told or me not in self._alive or isinstance(me, threading._DummyThread):  # noqa: SLF001
            return False
        return me is not threading.main_thread() or any(thread.is_alive() for thread in self._told)
