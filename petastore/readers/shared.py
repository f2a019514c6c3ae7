"""What threads share: an iterator, each of whose items goes to exactly one of them; and the end of a pass."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

from petastore.errors import ReaderClosedError
from petastore.forks import made_anew_in_children

__all__ = ["End", "Shared"]

_Item = TypeVar("_Item")


class Shared(Iterator[_Item]):
    """The items of handout after handout, asked for by one thread or by several at once.

    While a handout is at hand, nothing stands between a thread and its iterator; one thread at a time gets the next
    handout, and the others wait for it. Where it has begun, it raises `ReaderClosedError` in a forked child: what it
    gives, the parent gets.

    Args:
        handouts: Iterables whose iterators are written in C, and are the same each time; it is its own from now on.

    Example:
        >>> shared = Shared(iter([10, 11][number:]) for number in range(2))
        >>> list(shared)
        [10, 11, 11]
    """

    def __init__(self, handouts: Generator[Iterable[_Item]]) -> None:
        self.at_hand: Iterator[_Item] = iter(())
        """What is left of the handout that was got last."""
        self._handouts = handouts
        self._turn = threading.Lock()
        self._over: str | None = None
        self._has_begun = False
        made_anew_in_children(self)

    def __next__(self) -> _Item:
        for item in self.at_hand:
            return item
        return self.next_of_next()

    def next_of_next(self) -> _Item:
        """The next item when there is none at hand."""
        with self._turn:
            for item in self.at_hand:  # another thread was here first
                return item
            self._has_begun = True
            while self._over is None:
                self.at_hand = iter(next(self._handouts))
                if self._over is not None:  # meanwhile
                    break
                for item in self.at_hand:
                    return item
            self.at_hand = iter(())
            raise ReaderClosedError(self._over)

    def end(self, why: str) -> None:
        """Gives nothing more, but raises `ReaderClosedError` with these words; waits for nobody."""
        self._over = why
        self.at_hand = iter(())

    def make_anew(self) -> None:
        """Gives nothing more, if it has begun. The generator is kept: to end it may need what is not made anew yet."""
        self._turn = threading.Lock()
        if self._has_begun:
            self.end(
                "this was being read when the process was forked, and its rows go to the parent: in the child, call "
                "reset() of the reader, or open another one"
            )

    def close(self) -> None:
        """Ends the generator early, once no other thread is in it."""
        with self._turn:
            self.at_hand = iter(())
            self._handouts.close()


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
