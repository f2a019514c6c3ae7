"""Handouts: what a span has become, rows, batches or windows, handed out one by one, to one thread or several.

Taking an item is `next` of iterators that are written in C. Threads may enter them at once: with the GIL, one of them
at a time is in code that asks nothing that is written in Python, and so each item goes to one. How many were taken is
not counted on the way; an iterator knows what it has left.
"""

from __future__ import annotations

import functools
import itertools
import operator
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError, ReaderClosedError
from petastore.forks import made_anew_in_children
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Span
from petastore.readers.assembly.assemble import AssembledSpan
from petastore.readers.batch import Batch

__all__ = [
    "Handout",
    "RaisesAfterErrors",
    "Shared",
    "batches_of",
    "ended_by",
    "none_by_number",
    "rows_of",
    "windows_of",
]

_Item = TypeVar("_Item")


class Handout:
    """Items made of a span, in order. Each goes to one of the threads that ask for them.

    Args:
        span: The span.
        items: Gives them; an iterator written in C.
        untaken: An iterator that is asked once for each item, and knows by `operator.length_hint` what it has left.
        ends: How many items there are up to the end of each batch, shape (batches + 1,), from 0.
    """

    def __init__(self, span: Span, items: Iterator[Any], untaken: Iterator[Any], ends: NDArray[np.int64]) -> None:
        self._span, self._items, self._untaken, self._ends = span, items, untaken, ends

    def __iter__(self) -> Iterator[Any]:
        """Those that were not taken yet: the same iterator each time."""
        return self._items

    @property
    def cursor(self) -> Cursor | None:
        """The cursor after the batch that the last taken item belongs to; None before the first.

        With `last_batch="even"` the last batch of a rank may hold two rows or none: items, not batches, are counted.
        """
        taken = int(self._ends[-1]) - operator.length_hint(self._untaken)
        if taken == 0:
            return None
        return self._span.cursor_after(int(np.searchsorted(self._ends, taken - 1, side="right")) - 1)


def rows_of(assembled: AssembledSpan, row_type: Any) -> Handout:
    """The rows of a span as named tuples, without Python running for each of them.

    Args:
        assembled: The span, and its columns.
        row_type: The named tuple; its fields are the columns.
    """
    span = assembled.span
    columns = assembled.columns.by_name.values() if span.num_rows else ()
    values = [iter(column.each(0, len(column.values))) for column in columns]
    cells = zip(*values, strict=True) if values else itertools.repeat((), span.num_rows)
    # What `_make` does, which is Python; it would also count the fields of each row.
    rows = map(functools.partial(tuple.__new__, row_type), cells)
    return Handout(span, rows, values[0] if values else cells, span.offsets)


def batches_of(assembled: AssembledSpan, make: Callable[[Batch], Any] | None = None) -> Handout:
    """The batches of a span, or what a function makes of each."""
    span = assembled.span
    places = iter(range(span.num_batches))
    batches = map(assembled.batch, places)
    return Handout(span, batches if make is None else map(make, batches), places, np.arange(span.num_batches + 1))


def windows_of(span: Span, parts: list[list[Any]], make: Callable[[tuple[Any, ...]], Any]) -> Handout:
    """The windows of a span.

    Args:
        span: Its rows are windows.
        parts: At least one list, each with a part of every window.
        make: Makes a window of its parts.
    """
    of_first = iter(parts[0])
    return Handout(span, map(make, zip(of_first, *parts[1:], strict=True)), of_first, span.offsets)


class Shared(Iterator[_Item]):
    """The items of handout after handout, asked for by one thread or by several at once.

    While a handout is at hand, nothing stands between a thread and its iterator; one thread at a time gets the next
    handout, and the others wait for it. Where it has begun, it raises `ReaderClosedError` in a forked child: what it
    gives, the parent gets. After an error it raises `ReaderClosedError`, never `StopIteration`, which would look like
    the end of the epoch.

    Args:
        begin: Called for the first item. Gives iterables whose iterators are written in C, and are the same each time;
            the generator is its own.

    Example:
        >>> shared = Shared(lambda: (iter([10, 11][number:]) for number in range(2)))
        >>> list(shared)
        [10, 11, 11]
    """

    def __init__(self, begin: Callable[[], Generator[Iterable[_Item]]]) -> None:
        self.at_hand: Iterator[_Item] = iter(())
        """What is left of the handout that was got last."""
        self._begin = begin
        self._handouts: Generator[Iterable[_Item]] | None = None
        self._turn = threading.Lock()
        self._over: str | None = None
        made_anew_in_children(self)

    def __next__(self) -> _Item:
        try:
            for item in self.at_hand:
                return item
            return self.next_of_next()
        except StopIteration:
            raise
        except BaseException as problem:
            self.fail(problem)
            raise

    def fail(self, problem: BaseException) -> None:
        """Give nothing more after an error."""
        if self._over is None:
            self.end(ended_by(problem))

    def next_of_next(self) -> _Item:
        """The next item when there is none at hand."""
        with self._turn:
            for item in self.at_hand:  # another thread was here first
                return item
            if self._handouts is None:
                self._handouts = self._begin()
            while self._over is None:
                try:
                    self.at_hand = iter(next(self._handouts))
                except ReaderClosedError as closed:
                    raise closed if self._over is None else ReaderClosedError(self._over) from None
                except StopIteration:
                    raise
                except BaseException as problem:
                    self.fail(problem)  # before another thread's turn: the generator would say that it is at its end
                    raise
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
        if self._handouts is not None:
            self.end(
                "this was being read when the process was forked, and its rows go to the parent: in the child, call "
                "reset() of the reader, or open another one"
            )

    def close(self) -> None:
        """Ends the generator early, once no other thread is in it."""
        with self._turn:
            self.at_hand = iter(())
            if self._handouts is not None:
                self._handouts.close()


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


def ended_by(problem: BaseException) -> str:
    """Return the message of an iterator that is asked for more after an error."""
    if isinstance(problem, ReaderClosedError):
        return str(problem)
    return (
        f"this iterator ended with {type(problem).__name__}: {str(problem)[:300]}. To continue after the last row or "
        "batch that was received, call load_state_dict(state_dict()) and begin a new loop; reset() of a reader, or a "
        "new loop over a loader, begins the next epoch"
    )


def none_by_number(reader: object, row: object) -> NoReturn:  # noqa: ARG001 - it is a method of the reader's
    """There is no row by number: rows are handed out in the order of the plan.

    Raises:
        InvalidArgumentError: Always; it says what to write.
    """
    raise InvalidArgumentError(
        "a reader gives rows in its order, and none by number. For torch write "
        "petastore.adapters.torch.DataLoader(reader, batch_size=…); for torch's own DataLoader and its worker "
        "processes, ReaderDataset(url, batch_size=…) of that module; for rows by number, its MapDataset(url)"
    )
