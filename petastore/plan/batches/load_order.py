"""In which order a rank loads row groups, of this epoch and the next: what a cache has to know of the future. Pure.

Nobody's rows are looked for. Of each row group it is known when its block begins, and that is when it is loaded, but
for the few that a span loads together. Row groups that stay at hand from one epoch to the next are told twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.residency import needed_from_to
from petastore.plan.batches.spans import Source
from petastore.plan.cursor import Cursor

__all__ = ["LoadOrder", "Stretch", "load_order"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class LoadOrder:
    """Row groups that are going to be loaded, in order."""

    groups: NDArray[np.int64]
    """Their numbers, shape (loads,); some come again."""

    first: int
    """How many of them are loaded before the cursor `then`: who comes to the others asks anew."""

    then: Cursor
    """Where to ask anew."""

    sure: int
    """How many of them, from the first on, this pass loads in any case: to the others may come who reads again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """Which rows of a source are given, counted from the first one of its first epoch."""

    begin: int
    """How many were given before."""

    end: int
    """How many will have been given when one asks anew."""

    more: int
    """How many follow that are told as well; of several sources all are given in one time."""


def load_order(
    sources: Sequence[Source], stretches: Sequence[Stretch], then: Cursor, *, epochs: int | None = None
) -> LoadOrder:
    """The row groups that one rank loads.

    Args:
        sources: What is read.
        stretches: Of each source: which of its rows.
        then: Where the stretches end.
        epochs: Of a pass; None never ends.

    Example:
        >>> from petastore.plan.request import Order
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
        >>> source = Source(np.array([5, 5, 5]), 15, order, None, range(1), given=15)
        >>> loads = load_order([source], [Stretch(begin=7, end=15, more=15)], Cursor(1))
        >>> loads.groups.tolist(), loads.first, loads.sure
        ([1, 2, 0, 1, 2], 2, 5)
    """
    parts = [_of_source(*each) for each in zip(sources, stretches, strict=True)]
    groups, is_later, when = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((when, is_later))
    first = int(np.count_nonzero(~is_later))
    return LoadOrder(groups[order], first, then, first if then.is_at_end(epochs) else len(order))


def _of_source(source: Source, stretch: Stretch) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
    """Row groups, whether they are loaded only after the stretch, and when; all of shape (loads,)."""
    rows, stop = source.num_rows, stretch.end + stretch.more
    of_epochs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for epoch in range(stretch.begin // rows, -(-stop // rows)) if rows else ():
        groups, first, last = needed_from_to(source.order(epoch).pieces().of_lanes(source.own_lanes))
        is_loaded = (last + epoch * rows >= stretch.begin) & (first + epoch * rows < stop)
        begins = np.maximum(first[is_loaded] + epoch * rows, stretch.begin)
        of_epochs.append((groups[is_loaded] + source.first_group, begins))
    groups, begins = (np.concatenate(column) for column in zip(*of_epochs, strict=True))
    return groups, begins >= stretch.end, (begins - stretch.begin) / max(stretch.more, 1)
