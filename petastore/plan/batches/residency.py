"""Row-group residency: when row groups are in memory, and when they are used next.

A row group is in memory from the first batch that needs it to the last one. A cache evicts the row group whose next use
is furthest away (Belady's rule). For this, it needs the future uses of row groups for a whole epoch or more, but spans
are planned only for the next few batches. This module computes the uses from blocks (row groups that are shuffled
together), without looking up rows: a row group is needed from the first row of its block on. Times are counted in rows.
No I/O.

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
    """Return when each row group is needed first and last, in given lanes.

    Args:
        pieces: Row groups of the lanes (interleaved sequences of row groups); a row group that several lanes share
            occurs several times.

    Returns:
        Distinct row groups, ascending, and their first and last positions in the epoch (inclusive); three arrays of
        shape (groups,).
    """
    groups, where = np.unique(pieces.groups, return_inverse=True)
    first = np.full(len(groups), np.iinfo(np.int64).max)
    last = np.full(len(groups), -1, dtype=np.int64)
    np.minimum.at(first, where, pieces.first_positions)
    np.maximum.at(last, where, pieces.last_positions)
    return groups, first, last


def resident_bytes(order: EpochOrder, lanes: range, group_bytes: NDArray[np.int64], early: int) -> int:
    """Return the peak bytes of row groups in a rank's memory during an epoch.

    Args:
        order: Order of the epoch.
        lanes: Lanes (interleaved sequences of row groups) that the rank reads.
        group_bytes: Bytes of each row group, shape (groups,).
        early: How long before its first use a row group is prefetched, in rows of the epoch.
    """
    groups, first, last = needed_from_to(order.pieces().of_lanes(lanes))
    return most_at_a_time(np.maximum(first - early, 0), last, group_bytes[groups])


def most_at_a_time(first: NDArray[np.int64], last: NDArray[np.int64], weight: NDArray[np.int64]) -> int:
    """Return the largest sum of weights that count at the same time.

    Each weight counts from time `first` to time `last`, inclusive.

    Example:
        >>> most_at_a_time(np.array([0, 3, 8]), np.array([5, 6, 9]), np.array([10, 20, 25]))
        30
    """
    if len(first) == 0:
        return 0
    # events: shape (2 · groups,). At the same time, additions come before removals, because `last` is inclusive.
    places = np.concatenate([first, last])
    changes = np.concatenate([weight, -weight])
    events = np.lexsort((np.repeat([0, 1], len(first)), places))
    return int(np.cumsum(changes[events]).max())


def buffer_rows(rows: NDArray[np.int64], meant: int, *, lanes: int, block_rows: int) -> int:
    """Return the capacity in rows of a buffer for a rank's row groups in memory.

    The number is an upper bound, except for unusual row group sizes, and is computed without the order.

    Args:
        rows: Number of rows of each row group of the dataset, shape (groups,).
        meant: Number of rows of the dataset that filters select.
        lanes: Number of lanes (interleaved sequences of row groups) that the rank reads.
        block_rows: Number of rows that are shuffled together in a lane; see `Order.block_rows`.

    Example:
        >>> buffer_rows(np.full(600, 1000), 600_000, lanes=12, block_rows=500)
        36000
        >>> buffer_rows(np.full(6, 1000), 6_000, lanes=12, block_rows=500)
        6000
    """
    everything = int(rows.sum())
    # `block_rows` counts only selected rows, but whole row groups are in memory, so the number of rows is larger.
    block = block_rows * everything // max(meant, 1)
    of_lane = 2 * (block + int(rows.max(initial=0)))  # twice, because a lane has its current and next block in memory
    return min(lanes * of_lane, everything)


_ROUNDS = 16
"""Maximum number of epochs of a mixture's source in a period of `next_uses`.

Small sources restart often; without this limit, the result would be long."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class NextUses:
    """Times at which row groups are used next, in the current period and the next one.

    A period is an epoch of the plan, or shorter if a small source of a mixture restarts often.
    """

    groups: NDArray[np.int32]
    """Numbers of the row groups, shape (uses,); may repeat."""

    times: NDArray[np.float64]
    """Time of each use, ascending, shape (uses,).

    Times are in the unit of `Span.times`: rows of all sources since epoch 0."""

    until: float
    """End of the current period, until which the result can be used."""


def next_uses(sources: Sequence[Source], begin: float, now: float) -> NextUses:
    """Return when one rank uses row groups, from `begin` to the end of the next period (see `NextUses`).

    A row group may occur several times. A time is the number of rows of all sources that are read since epoch 0.

    Args:
        sources: Sources that are read.
        begin: Time from which uses are returned.
        now: Current time, at least `begin`, in the current period.
    """
    of_rows = times_of_rows(sources)
    rounds = (_ROUNDS * source.num_rows * time for source, time in zip(sources, of_rows.tolist(), strict=True))
    # Rounded up to an integer, because multiples of a float would have rounding errors.
    period = math.ceil(min(sum(source.given for source in sources), *rounds))
    until = (now // period + 1) * period
    parts = [
        _of_source(source, time, begin, until + period) for source, time in zip(sources, of_rows.tolist(), strict=True)
    ]
    groups, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    return NextUses(groups[order].astype(np.int32), times[order], until)


def _of_source(source: Source, time: float, begin: float, end: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the row groups of a source that are needed in [begin, end), and when.

    Args:
        source: Source that is read.
        time: Rows of all sources in an epoch, divided by those of this source.
        begin: Start of the time range.
        end: End of the time range.

    Returns:
        Row group and time of each use, both of shape (uses,).
    """
    parts = []
    for epoch in range(int(begin / time) // source.num_rows, math.ceil(end / time / source.num_rows)):
        lanes = source.own_lanes if source.lanes_in is None else source.lanes_in(epoch)
        groups, *rows = needed_from_to(source.order(epoch).pieces().of_lanes(lanes))
        first, last = ((row + epoch * source.num_rows) * time for row in rows)
        is_used = (last >= begin) & (first < end)
        parts.append((groups[is_used] + source.first_group, np.maximum(first[is_used], begin)))
    groups, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    return groups, times
