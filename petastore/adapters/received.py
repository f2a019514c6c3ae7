"""What training has received of a reader: where each batch ends, by the cursor that it carries, and by its number.

Who takes batches ahead of training has more of them than training: the reader stands further on than the trainer, and
what the trainer has received is known by its number only.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from petastore import forks
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch

__all__ = ["Received", "forgotten", "received_of"]

_REMEMBERED = 65_536
"""Batches whose cursors are kept: more than any framework reads ahead, and some megabytes."""


class Received:
    """Where each of the last batches of a reader ends, by its number. Thread-safe.

    Passes are taken to follow each other: training had all of a pass before it has the first batch of the next one.

    Args:
        keep: How many of the last ones are known.

    Example:
        >>> from petastore.readers.batch import Columns
        >>> received, columns = Received(), Columns({})
        >>> for epoch in (0, 1):
        ...     cursors = [Cursor(epoch, 10), Cursor(epoch + 1, 0)]
        ...     _ = list(received.noted(Batch(columns, 0, 0, cursor) for cursor in cursors))
        >>> received.count, received.cursor_after(3), received.cursor_in_pass(2)
        (4, Cursor(epoch=1, position=10, first_epoch=0), Cursor(epoch=2, position=0, first_epoch=0))
    """

    def __init__(self, keep: int = _REMEMBERED) -> None:
        self._lock = forks.Lock()
        self._cursors: collections.deque[Cursor] = collections.deque(maxlen=keep)
        self._count = self._pass = self._before = 0  # `_before` the newest pass; `_pass` is its number

    @property
    def count(self) -> int:
        """Batches that were handed over since the count began."""
        return self._count

    def begin(self) -> None:
        """Counts anew, from the pass that begins next; those under way are left."""
        with self._lock:
            self._cursors.clear()
            self._count = self._before = 0
            self._pass += 1

    def noted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of a new pass, each written down as it goes by, until another pass begins."""
        with self._lock:
            self._before = self._count
            self._pass = ours = self._pass + 1
        for batch in batches:
            with self._lock:
                if ours == self._pass:
                    self._note(batch.cursor)
            yield batch

    def note(self, cursor: Cursor) -> None:
        """Writes down where the next batch ends."""
        with self._lock:
            self._note(cursor)

    def _note(self, cursor: Cursor) -> None:
        self._cursors.append(cursor)
        self._count += 1

    def cursor_after(self, batches: int) -> Cursor:
        """Where to go on after as many batches since the count began.

        Raises:
            InvalidArgumentError: There were not as many, or they were long ago.
        """
        return self._cursor_after(batches, 0)

    def cursor_in_pass(self, batches: int) -> Cursor:
        """Where to go on after as many batches of the pass that began last.

        Raises:
            InvalidArgumentError: There were not as many, or they were long ago.
        """
        return self._cursor_after(batches, self._before)

    def _cursor_after(self, batches: int, before: int) -> Cursor:
        with self._lock:
            oldest, newest = max(self._count - len(self._cursors), before) + 1, self._count
            if oldest <= before + batches <= newest:
                return self._cursors[before + batches - newest - 1]
        known = f"{oldest - before:,} to {newest - before:,}" if newest > before else "none"
        raise InvalidArgumentError(
            f"the state after {batches:,} batches was asked for, but of the pass under way these are known: {known}; "
            "ask with the number of batches that training has had since the pass began"
        )


_of_readers: weakref.WeakKeyDictionary[Any, Received] = weakref.WeakKeyDictionary()
"""Of each reader that a framework was given batches of."""


def received_of(reader: Any) -> Received:
    """What is written down of a reader; there is one for each."""
    return _of_readers.setdefault(reader, Received())


def forgotten(reader: Any) -> None:
    """From now on no place is known of the reader: what it gives is not counted."""
    _of_readers.pop(reader, None)
