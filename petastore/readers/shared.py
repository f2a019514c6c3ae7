"""An iterator that threads share: each item goes to exactly one of them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

from petastore.errors import ReaderClosedError
from petastore.forks import made_anew_in_children

__all__ = ["Shared"]

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
