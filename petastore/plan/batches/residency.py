"""Row-group residency: when each row group is in memory and when it is used next, for eviction (Belady's rule). No I/O.

A row group is in memory from the first batch that needs it to the last one. A cache needs the future uses of row groups
for a whole epoch or more, but spans are planned only for the next few batches. This module computes the uses from
blocks (row groups that are shuffled together), without looking up rows: a row group is needed from the first row of its
block on. Times are counted in rows.

Example:
    >>> from petastore.plan.request import Order
    >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    >>> source = Source(np.array([5, 5, 5]), 15, order, None, range(1), given=15)
    >>> uses = next_uses([source], begin=7, now=7)
    >>> uses.groups.tolist(), uses.times.tolist(), uses.until
    ([1, 2, 0, 1, 2], [7.0, 10.0, 15.0, 20.0, 25.0], 15)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.spans import Source, times_of_rows
from petastore.plan.order.order import EpochOrder, Pieces

__all__ = ["NextUses", "buffer_rows", "most_at_a_time", "needed_from_to", "next_uses", "resident_bytes"]


def needed_from_to(pieces: Pieces) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each row group of some lanes once, with the first and last position at which it is needed.

    Args:
        pieces: Row groups of the lanes; a row group that several lanes share occurs several times.

    Returns:
        Row groups, ascending, and their first and last positions in the epoch (inclusive), all of shape (groups,).
    """
    groups, where = np.unique(pieces.groups, return_inverse=True)
    first = np.full(len(groups), np.iinfo(np.int64).max)
    last = np.full(len(groups), -1, dtype=np.int64)
    np.minimum.at(first, where, pieces.first_positions)
    np.maximum.at(last, where, pieces.last_positions)
    return groups, first, last


def resident_bytes(order: EpochOrder, lanes: range, group_bytes: NDArray[np.int64], early: int) -> int:
    """Return the peak bytes of row groups in memory while a rank reads its lanes of an epoch.

    Args:
        order: Order of the epoch.
        lanes: Lanes (interleaved sequences of row groups) that the rank reads.
        group_bytes: Bytes of each row group, shape (groups,).
        early: Number of rows of the epoch by which row groups are prefetched before they are needed.
    """
    groups, first, last = needed_from_to(order.pieces().of_lanes(lanes))
    return most_at_a_time(np.maximum(first - early, 0), last, group_bytes[groups])


def most_at_a_time(first: NDArray[np.int64], last: NDArray[np.int64], weight: NDArray[np.int64]) -> int:
    """Return the largest sum of weights at any time, where each weight counts from time `first` to `last`.

    Example:
        >>> most_at_a_time(np.array([0, 3, 8]), np.array([5, 6, 9]), np.array([10, 20, 25]))
        30
    """
    if len(first) == 0:
        return 0
    # Events, shape (2 · groups,): at the same position, additions come before removals.
    places = np.concatenate([first, last])
    changes = np.concatenate([weight, -weight])
    events = np.lexsort((np.repeat([0, 1], len(first)), places))
    return int(np.cumsum(changes[events]).max())


def buffer_rows(rows: NDArray[np.int64], meant: int, *, lanes: int, block_rows: int) -> int:
    """Return the capacity in rows of a buffer for the row groups that a rank has in memory at one time.

    The number is an upper bound, except for unusual row group sizes, and is computed without the order.

    Args:
        rows: Number of rows of each row group of the dataset, shape (groups,).
        meant: Number of rows that are selected by filters.
        lanes: Number of lanes (sequences of row groups, read concurrently) that the rank reads.
        block_rows: Number of rows that are shuffled together in a lane; see `Order.block_rows`.

    Example:
        >>> buffer_rows(np.full(600, 1000), 600_000, lanes=12, block_rows=500)
        36000
        >>> buffer_rows(np.full(6, 1000), 6_000, lanes=12, block_rows=500)
        6000
    """
    everything = int(rows.sum())
    # `block_rows` counts selected rows, but row groups stay in memory whole, with the rows that are not selected.
    block = block_rows * everything // max(meant, 1)
    of_lane = 2 * (block + int(rows.max(initial=0)))  # a lane keeps the current block and the next one in memory
    return min(lanes * of_lane, everything)


_ROUNDS = 16
"""Maximum number of epochs of a mixture source in a period of `next_uses`; small sources restart often."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class NextUses:
    """Times at which row groups are used next, in the current period (an epoch of a plan) and the next one."""

    groups: NDArray[np.int32]
    """Numbers of the row groups, shape (uses,); may repeat."""

    times: NDArray[np.float64]
    """Time of each use, ascending, in the unit of `Span.times`; shape (uses,)."""

    until: float
    """End of the period (an epoch of a plan), until which the result is valid."""


def next_uses(sources: Sequence[Source], begin: float, now: float) -> NextUses:
    """Return the times at which one rank needs each row group; times count rows of all sources since epoch 0.

    Args:
        sources: Sources that are read.
        begin: Time from which uses are returned.
        now: Current time, at least `begin`; uses are returned until the end of the following period.
    """
    of_rows = times_of_rows(sources)
    rounds = (_ROUNDS * source.num_rows * time for source, time in zip(sources, of_rows.tolist(), strict=True))
    # An integer, because multiples of a float would be rounded.
    period = math.ceil(min(sum(source.given for source in sources), *rounds))
    until = (now // period + 1) * period
    parts = [
        _of_source(source, time, begin, until + period) for source, time in zip(sources, of_rows.tolist(), strict=True)
    ]
    groups, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    return NextUses(groups[order].astype(np.int32), times[order], until)


def _of_source(source: Source, time: float, begin: float, end: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the row groups of a source that are needed in [begin, end), and the time of each use, both (uses,)."""
    parts = []
    for epoch in range(int(begin / time) // source.num_rows, math.ceil(end / time / source.num_rows)):
        lanes = source.own_lanes if source.lanes_in is None else source.lanes_in(epoch)
        groups, *rows = needed_from_to(source.order(epoch).pieces().of_lanes(lanes))
        first, last = ((row + epoch * source.num_rows) * time for row in rows)
        is_used = (last >= begin) & (first < end)
        parts.append((groups[is_used] + source.first_group, np.maximum(first[is_used], begin)))
    groups, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    return groups, times
