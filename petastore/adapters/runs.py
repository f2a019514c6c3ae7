"""Runs: consecutive batches that were made in one go, handed to a framework together; and where each of them ends.

A framework that cuts batches itself, in code of its own, is called once a run. It reads ahead of training, so the
reader stands further on than the trainer: what the trainer has received is known by its number only.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from numpy.typing import NDArray

from petastore import forks
from petastore.errors import RequestError
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch, Columns

__all__ = ["Handed", "Run", "runs_of"]

_REMEMBERED = 65_536
"""Batches whose cursors are kept: more than any framework reads ahead, and some megabytes."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Run:
    """Some consecutive batches, whose rows lie one after another in the same columns."""

    source: Columns
    """The columns that they are cut of."""

    first: int
    """The first row of the first batch there."""

    sizes: tuple[int, ...]
    """Rows of each batch."""

    def column(self, name: str) -> NDArray[Any]:
        """The rows of all batches, without a copy; masked where values are missing."""
        return self.source.by_name[name].rows(self.first, self.first + sum(self.sizes))

    def single(self) -> Iterator[Run]:
        """Its batches, each as a run."""
        first = self.first
        for size in self.sizes:
            yield Run(self.source, first, (size,))
            first += size


def runs_of(batches: Iterable[Batch], *, most: int) -> Iterator[Run]:
    """All batches in order, in runs; a batch without rows is a run of its own.

    A run ends with the last row of its columns: nothing that is not needed for it is asked of `batches`.

    Args:
        batches: From `Reader.batches`.
        most: Batches of a run at most.

    Example:
        >>> import numpy as np
        >>> from petastore.decoding.decode import Decoded
        >>> made = [Columns({"id": Decoded(np.arange(rows), None)}) for rows in (2, 5)]
        >>> batches = [Batch(made[0], 0, 2, Cursor()), Batch(made[1], 0, 3, Cursor()), Batch(made[1], 3, 5, Cursor())]
        >>> [(run.column("id").tolist(), run.sizes) for run in runs_of(batches, most=10)]
        [([0, 1], (2,)), ([0, 1, 2, 3, 4], (3, 2))]
    """
    source: Columns | None = None
    first, rows = 0, 0
    sizes: list[int] = []
    for batch in batches:
        if sizes and (batch.source is not source or batch.stop == batch.first):
            yield Run(source or batch.source, first, tuple(sizes))
            sizes = []
        if batch.source is not source:
            source, rows = batch.source, _rows(batch.source)
        if not sizes:
            first = batch.first
        sizes.append(batch.stop - batch.first)
        if batch.stop == rows or len(sizes) == most or batch.stop == batch.first:
            yield Run(source, first, tuple(sizes))
            sizes = []
    if sizes and source is not None:
        yield Run(source, first, tuple(sizes))


def _rows(columns: Columns) -> int:
    return max((len(column.values) for column in columns.by_name.values()), default=0)


class Handed:
    """Where each of the last batches that were handed over ends, by its number in the pass. Thread-safe."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._cursors: collections.deque[Cursor] = collections.deque(maxlen=_REMEMBERED)
        self._count = 0

    @property
    def count(self) -> int:
        """Batches that were handed over so far."""
        return self._count

    def noted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of a new pass, each written down as it goes by."""
        with self._lock:
            self._cursors.clear()
            self._count = 0
        for batch in batches:
            with self._lock:
                self._cursors.append(batch.cursor)
                self._count += 1
            yield batch

    def cursor_after(self, batches: int) -> Cursor:
        """Where to go on after as many batches of the pass.

        Raises:
            RequestError: There were not as many, or they were long ago.

        Example:
            >>> handed = Handed()
            >>> columns = Columns({})
            >>> _ = list(handed.noted(Batch(columns, 0, 0, Cursor(0, 10 * step)) for step in (1, 2, 3)))
            >>> handed.cursor_after(2)
            Cursor(epoch=0, position=20, first_epoch=0)
        """
        with self._lock:
            oldest, newest = self._count - len(self._cursors) + 1, self._count
            if oldest <= batches <= newest:
                return self._cursors[batches - oldest]
        known = f"{oldest:,} to {newest:,}" if newest else "none"
        raise RequestError(
            f"the state after {batches:,} batches was asked for, but of the pass under way these are known: {known}; "
            "ask with the number of batches that training has had since the pass began"
        )
