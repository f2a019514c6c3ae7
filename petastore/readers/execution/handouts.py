"""Iterators of the rows, batches or windows of a span (consecutive batches assembled together), for several threads.

Threads take items with `next` of an iterator that is implemented in C. Such an iterator advances without running Python
code or releasing the GIL. Several threads may therefore call it at the same time, and each item goes to one thread. The
number of remaining items is the `operator.length_hint` of a second iterator, which advances together with the first.

The module also has the errors of readers that are indexed, pickled, or used after an error.
"""

from __future__ import annotations

import functools
import itertools
import operator
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError, NotPicklableError, ReaderClosedError
from petastore.forks import made_anew_in_children
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Span
from petastore.plan.request import LastBatch
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan
from petastore.readers.batch import Batch
from petastore.readers.execution.position import LastRows
from petastore.schema.unischema import Unischema, row_type

__all__ = [
    "Handout",
    "RaisesAfterErrors",
    "Shared",
    "batches_of",
    "ended_by",
    "most_rows",
    "never_pickled",
    "none_by_number",
    "output_of",
    "rows_of",
    "windows_of",
]

_Item = TypeVar("_Item")


class Handout:
    """Items of a span (consecutive batches assembled together), each taken by one of the consuming threads.

    Args:
        span: Consecutive batches that contain the items.
        items: Iterator of the items, implemented in C.
        untaken: Iterator that advances by one for each item, and whose `operator.length_hint` is the number of items
            left.
        ends: Number of items up to the end of each batch; begins with 0, shape (batches + 1,).
    """

    def __init__(self, span: Span, items: Iterator[Any], untaken: Iterator[Any], ends: NDArray[np.int64]) -> None:
        self._span, self._items, self._untaken, self._ends = span, items, untaken, ends

    def __iter__(self) -> Iterator[Any]:
        """Return the iterator of the remaining items, the same one at each call."""
        return self._items

    @property
    def last(self) -> tuple[Cursor, LastRows] | None:
        """Cursor (position to resume from) after the batch of the last taken item, and the rows of this item.

        None before the first item. The batch is looked up from the number of taken items, because batches may have
        different numbers of rows. With `last_batch="even"`, the size of an epoch's last batch may differ.
        """
        span, taken = self._span, int(self._ends[-1]) - operator.length_hint(self._untaken)
        if taken == 0:
            return None
        cursor = span.cursor_after(int(np.searchsorted(self._ends, taken - 1, side="right")) - 1)
        if self._ends is span.offsets:  # then each item is one row, or one window
            return cursor, (span, taken - 1, taken)
        first, stop = span.offsets[taken - 1 : taken + 1].tolist()
        return cursor, (span, first, stop)


def rows_of(assembled: AssembledSpan, row_type: Any) -> Handout:
    """Return the rows of an assembled span (consecutive batches) as named tuples, in a `Handout`.

    Args:
        assembled: Assembled columns of the span.
        row_type: Named tuple type whose fields are the columns.
    """
    span = assembled.span
    columns = assembled.columns.by_name.values() if span.num_rows else ()
    values = [iter(column.each(0, len(column.values))) for column in columns]
    cells = zip(*values, strict=True) if values else itertools.repeat((), span.num_rows)
    # `_make` is not used, because it is written in Python and checks the number of fields of each row.
    rows = map(functools.partial(tuple.__new__, row_type), cells)
    return Handout(span, rows, values[0] if values else cells, span.offsets)


def batches_of(assembled: AssembledSpan, make: Callable[[Batch], Any] | None = None) -> Handout:
    """Return the batches of an assembled span (consecutive batches), in a `Handout`.

    Args:
        assembled: Assembled columns of the span.
        make: Function whose result for a batch replaces the batch; None yields the batches themselves.
    """
    span = assembled.span
    places = iter(range(span.num_batches))
    batches = map(assembled.batch, places)
    return Handout(span, batches if make is None else map(make, batches), places, np.arange(span.num_batches + 1))


def windows_of(span: Span, parts: list[list[Any]], make: Callable[[tuple[Any, ...]], Any]) -> Handout:
    """Return the windows (`NGram`) of an assembled span (consecutive batches), in a `Handout`.

    Args:
        span: Span whose rows are windows.
        parts: At least one list; each list has one part of every window, such as the row at one offset.
        make: Function from the parts of a window to the window.
    """
    of_first = iter(parts[0])
    return Handout(span, map(make, zip(of_first, *parts[1:], strict=True)), of_first, span.offsets)


class Shared(Iterator[_Item]):
    """Iterator over all rows, batches or windows of a reader, for one or several consuming threads.

    Threads take items of the current span (consecutive batches) without a lock. One thread gets the next span while
    other threads wait. If iteration has begun, `next` raises `ReaderClosedError` in a forked child, because the parent
    reads the items. After an error, `next` raises `ReaderClosedError` instead of `StopIteration`, which would look like
    the end of the epoch.

    Args:
        begin: Function that is called for the first item, with a weak reference to this object. It returns a generator
            of iterables: the items of each span. The iterators of the iterables are implemented in C. This object
            closes the generator.

    Example:
        >>> shared = Shared(lambda _: (iter([10, 11][number:]) for number in range(2)))
        >>> list(shared)
        [10, 11, 11]
    """

    def __init__(self, begin: Callable[[weakref.ref[Shared[_Item]]], Generator[Iterable[_Item]]]) -> None:
        self.at_hand: Iterator[_Item] = iter(())
        """Iterator of the remaining items of the current span (consecutive batches)."""
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
        """Stop yielding after an error: from now on, `next` raises `ReaderClosedError`, which names the error."""
        if self._over is None:
            self.end(ended_by(problem))

    def next_of_next(self) -> _Item:
        """Return the first item of the next span (consecutive batches); the current span has no more items.

        If another thread has just fetched the next span, return an item of that span.
        """
        with self._turn:
            for item in self.at_hand:  # another thread has already fetched the next span
                return item
            if self._handouts is None:
                self._handouts = self._begin(weakref.ref(self))
            while self._over is None:
                try:
                    self.at_hand = iter(next(self._handouts))
                except ReaderClosedError as closed:
                    raise closed if self._over is None else ReaderClosedError(self._over) from None
                except StopIteration:
                    raise
                except BaseException as problem:
                    # Record the error before another thread continues, because a failed generator then only raises
                    # StopIteration.
                    self.fail(problem)
                    raise
                if self._over is not None:  # another thread has called `end` in the meantime
                    break
                for item in self.at_hand:
                    return item
            self.at_hand = iter(())
            raise ReaderClosedError(self._over)

    def end(self, why: str) -> None:
        """Stop yielding: `next` raises `ReaderClosedError` with this message from now on. Does not wait."""
        self._over = why
        self.at_hand = iter(())

    def make_anew(self) -> None:
        """In a forked child, stop yielding if iteration has begun; the generator is not closed."""
        self._turn = threading.Lock()
        if self._handouts is not None:
            self.end(
                "the process was forked during this iteration, which continues only in the parent. In the child, call "
                "reset() of the reader, or open another one"
            )

    def close(self) -> None:
        """Close the generator early; wait until no other thread runs it."""
        with self._turn:
            self.at_hand = iter(())
            if self._handouts is not None:
                self._handouts.close()


class RaisesAfterErrors(Iterator[_Item]):
    """Iterator wrapper that raises `ReaderClosedError` after an error, never `StopIteration`.

    Without it, a loop that catches an error and requests the next batch would see `StopIteration`, as at the end of an
    epoch.

    Args:
        items: Iterator, for example a generator.
        take: Function that returns the next item of the iterator.

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

    def __init__(self, items: Iterator[_Item], take: Callable[[Iterator[_Item]], _Item] = next) -> None:
        self._items, self._take = items, take
        self._failure: str | None = None

    def __next__(self) -> _Item:
        if self._failure is not None:
            raise ReaderClosedError(self._failure)
        try:
            return self._take(self._items)
        except StopIteration:
            raise
        except BaseException as problem:
            self._failure, self._items = ended_by(problem), iter(())
            raise


def ended_by(problem: BaseException) -> str:
    """Return the message of the `ReaderClosedError` that an iterator raises after it ended with this error."""
    if isinstance(problem, ReaderClosedError):
        return str(problem)
    return (
        f"this iterator ended with {type(problem).__name__}: {str(problem)[:300]}. To continue after the last row or "
        "batch that was received, call load_state_dict(state_dict()) and begin a new loop; reset() of a reader, or a "
        "new loop over a loader, begins the next epoch"
    )


def none_by_number(reader: object, row: object) -> NoReturn:  # noqa: ARG001 - used as a method of readers
    """Raise an error for access by index, because a reader yields rows in plan order.

    Raises:
        InvalidArgumentError: Always; the message names the alternative.
    """
    raise InvalidArgumentError(
        "a reader cannot be indexed, because a reader returns rows in its own order. For torch write "
        "petastore.adapters.torch.DataLoader(reader, batch_size=…); for torch's own DataLoader and its worker "
        "processes, use ReaderDataset(url, batch_size=…) of that module; for rows by number, use its MapDataset(url)"
    )


def never_pickled(reader: object) -> NoReturn:
    """Raise an error when a reader is pickled; used as `__reduce__` of readers.

    Raises:
        NotPicklableError: Always; the message names the alternatives.
    """
    raise NotPicklableError(
        f"{reader!r} cannot be pickled, because it has threads and open files. For hvd.elastic.TorchState, wrap it "
        "in petastore.adapters.horovod.ElasticDataLoader; for worker processes of torch's DataLoader, use "
        "petastore.adapters.torch.ReaderDataset; for another process, send the arguments and call make_reader "
        "there. Its position is reader.state_dict(), a small dict"
    )


_LARGEST_BATCH = 65_536
"""Maximum default number of rows in a batch of a batch reader."""


def most_rows(largest_group: int) -> int:
    """Return the default batch size of a batch reader: the rows of the largest row group, at most 65,536."""
    return max(min(largest_group, _LARGEST_BATCH), 1)


def output_of(schema: Unischema, last_batch: LastBatch, *, batched: bool) -> Callable[[AssembledSpan], Handout]:
    """Return the function that converts an assembled span (consecutive batches) to named tuples: rows or batches.

    Args:
        schema: Output schema.
        last_batch: Policy for the last batch; `"pad"` adds a column that marks repeats.
        batched: Whether to return batches instead of rows.
    """
    name = schema.name if schema.name.isidentifier() else "Row"
    names = (*schema.fields, *([VALID_COLUMN] if last_batch is LastBatch.PAD else []))

    def rows(span: AssembledSpan) -> Handout:
        return rows_of(span, row_type(name, names))

    def batches(span: AssembledSpan) -> Handout:
        make = row_type(name, names)._make
        return batches_of(span, lambda batch: make(batch.values()))

    return batches if batched else rows
