"""An iterator that raises again after an error, where a generator would say `StopIteration`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from petastore.errors import ReaderClosedError
from petastore.readers.execution.handouts import ended_by

__all__ = ["RaisesAfterErrors"]

_Item = TypeVar("_Item")


class RaisesAfterErrors(Iterator[_Item]):
    """Gives what another iterator gives; after an error it raises `ReaderClosedError`, never `StopIteration`.

    A loop that catches an error and asks for the next batch would otherwise take the end of the generator for the end
    of the epoch.

    Args:
        items: An iterator, for example a generator.

    Example:
        >>> items = RaisesAfterErrors(1 // number for number in (1, 0, 1))
        >>> next(items)
        1
        >>> next(items)
        Traceback (most recent call last):
        ZeroDivisionError: integer division or modulo by zero
        >>> next(items)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        petastore.errors.ReaderClosedError: this iterator ended with ZeroDivisionError: ...
    """

    def __init__(self, items: Iterator[_Item]) -> None:
        self._items = items
        self._failure: str | None = None

    def __next__(self) -> _Item:
        if self._failure is not None:
            raise ReaderClosedError(self._failure)
        try:
            return next(self._items)
        except StopIteration:
            raise
        except BaseException as problem:
            self._failure, self._items = ended_by(problem), iter(())
            raise
