"""Rows: the columns of a span, handed out row by row, without Python running for each of them.

Taking a row is `next` of iterators that are written in C: the columns', one that ties them together and one that makes
named tuples. How many rows were taken is not counted on the way; the first column's iterator knows what it has left.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from petastore.plan.plan import Span
from petastore.readers.assemble import AssembledSpan
from petastore.readers.decode import Decoded

__all__ = ["Rows"]


class Rows:
    """The rows of a span as named tuples, in order.

    Threads may iterate at once, and each row goes to one of them: with the GIL, one of them at a time is in iterators
    that are written in C and ask nothing that is written in Python.

    Args:
        assembled: The span, and its columns.
        row_type: The named tuple; its fields are the columns.
    """

    def __init__(self, assembled: AssembledSpan, row_type: Any) -> None:
        columns = assembled.columns.by_name.values() if assembled.span.num_rows else ()
        values = [iter(_values(column)) for column in columns]
        cells = zip(*values, strict=True) if values else itertools.repeat((), assembled.span.num_rows)
        self._span = assembled.span
        self._left = values[0] if values else cells
        # What `_make` does, which is Python; it would also count the fields of each row.
        self._rows = map(functools.partial(tuple.__new__, row_type), cells)

    def __iter__(self) -> Iterator[Any]:
        """Those that were not taken yet: the same iterator each time."""
        return self._rows

    @property
    def received(self) -> tuple[Span, int] | None:
        """The span, and the place in it of the batch that the last taken row belongs to; None before the first row.

        With `tail="even"` the last batch of a rank may hold two rows or none: rows, not batches, are counted.
        """
        taken = self._span.num_rows - operator.length_hint(self._left)
        if taken == 0:
            return None
        return self._span, int(np.searchsorted(self._span.offsets, taken - 1, side="right")) - 1


def _values(column: Decoded) -> Any:
    """The values of a column one by one; None where one is missing."""
    if column.missing is None:
        return column.values
    return [None if gone else value for gone, value in zip(column.missing.tolist(), column.values, strict=True)]
