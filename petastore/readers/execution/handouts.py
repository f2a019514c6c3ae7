"""Handouts: what a span has become, rows, batches or windows, handed out one by one, to one thread or several.

Taking an item is `next` of iterators that are written in C. Threads may enter them at once: with the GIL, one of them
at a time is in code that asks nothing that is written in Python, and so each item goes to one. How many were taken is
not counted on the way; an iterator knows what it has left.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Span
from petastore.readers.assembly.assemble import AssembledSpan
from petastore.readers.batch import Batch

__all__ = ["Handout", "batches_of", "rows_of", "windows_of"]


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

        With `tail="even"` the last batch of a rank may hold two rows or none: items, not batches, are counted.
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
    values = [iter(_values(column)) for column in columns]
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


def _values(column: Decoded) -> Any:
    """The values of a column one by one; None where one is missing."""
    if column.missing is None:
        return column.values
    return [None if gone else value for gone, value in zip(column.missing.tolist(), column.values, strict=True)]
