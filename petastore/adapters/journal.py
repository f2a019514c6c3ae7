"""What the passes over each reader handed to a framework that reads ahead of training: the places after each batch."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from petastore import forks
from petastore.adapters.passes import Passes
from petastore.adapters.runs import Handed
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch

__all__ = ["Journal", "forgotten", "journal_of", "noted"]


class Journal:
    """The passes over one reader since somebody began to count. Thread-safe.

    A trainer counts the batches that it has had; here it is known where each of them ends. Passes are taken to follow
    each other: the trainer had all of a pass before it has the first batch of the next one.

    Example:
        >>> from petastore.readers.batch import Columns
        >>> journal, columns = Journal(), Columns({})
        >>> journal.begin()
        >>> for epoch in (0, 1):
        ...     cursors = [Cursor(epoch, 10), Cursor(epoch + 1, 0)]
        ...     _ = list(journal.new_pass().noted(Batch(columns, 0, 0, cursor) for cursor in cursors))
        >>> [journal.cursor_after(batches) for batches in (1, 3)]
        [Cursor(epoch=0, position=10, first_epoch=0), Cursor(epoch=1, position=10, first_epoch=0)]
    """

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._passes = [Handed()]
        self._before = 0  # batches of passes that training has done with
        self._is_counted = False

    def begin(self) -> None:
        """Counts anew, from the next pass that begins; those under way are left. Until it is called, none is kept."""
        with self._lock:
            self._passes = []
            self._before = 0
            self._is_counted = True

    def new_pass(self) -> Handed:
        """What a pass that begins now is written down in."""
        handed = Handed()
        with self._lock:
            self._passes = [*self._passes, handed] if self._is_counted else [handed]
        return handed

    @property
    def newest(self) -> Handed:
        """The pass that began last."""
        with self._lock:
            return self._passes[-1] if self._passes else Handed()

    @property
    def count(self) -> int:
        """Batches that were handed over since the count began."""
        with self._lock:
            return self._before + sum(handed.count for handed in self._passes)

    def cursor_after(self, batches: int) -> Cursor:
        """Where to go on after as many batches since the count began; earlier places are forgotten.

        Raises:
            RequestError: There were not as many, or they were long ago.
        """
        with self._lock:
            while len(self._passes) > 1 and batches > self._before + self._passes[0].count:
                self._before += self._passes.pop(0).count
            handed = self._passes[0] if self._passes else Handed()
            return handed.cursor_after(batches - self._before)


_journals: weakref.WeakKeyDictionary[Any, Journal] = weakref.WeakKeyDictionary()
"""Of each reader that a framework was given batches of."""


def journal_of(reader: Any) -> Journal:
    """The journal of a reader; there is one for each."""
    return _journals.setdefault(reader, Journal())


def noted(reader: Any, passes: Passes, batch_size: int) -> Iterator[Batch]:
    """The batches of a new pass over a reader, each written down as it goes by."""
    return journal_of(reader).new_pass().noted(passes.start(batch_size))


def forgotten(reader: Any) -> None:
    """From now on no place is known of the reader: what it gives is not counted."""
    _journals.pop(reader, None)
