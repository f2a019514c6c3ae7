"""Runs: consecutive batches that were made in one go, handed to a framework together, which cuts them itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from numpy.typing import NDArray

from petastore.readers.batch import Batch, Columns

__all__ = ["Run", "runs_of"]


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

    A run ends with the last row of its columns: nothing that is not needed for it is asked of `iter_batches`.

    Args:
        batches: From `Reader.iter_batches`.
        most: Batches of a run at most.

    Example:
        >>> import numpy as np
        >>> from petastore.decoding.decode import Decoded
        >>> from petastore.plan.cursor import Cursor
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
