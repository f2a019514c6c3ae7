"""What is at hand at the same time: row groups from the first batch that needs them to the last one. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order.order import EpochOrder, Pieces

__all__ = ["at_hand_bytes", "most_at_a_time", "needed_from_to", "room_rows"]


def needed_from_to(pieces: Pieces) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row groups, each once, with the first and the last position at which one of their pieces is needed."""
    groups, where = np.unique(pieces.groups, return_inverse=True)
    first = np.full(len(groups), np.iinfo(np.int64).max)
    last = np.full(len(groups), -1, dtype=np.int64)
    np.minimum.at(first, where, pieces.first_positions)
    np.maximum.at(last, where, pieces.last_positions)
    return groups, first, last


def at_hand_bytes(order: EpochOrder, lanes: range, group_bytes: NDArray[np.int64], early: int) -> int:
    """Most bytes of row groups that are kept at a time by who reads some lanes of an epoch.

    Args:
        order: Of the epoch.
        lanes: Those that are read.
        group_bytes: Of each row group, shape (groups,).
        early: Positions before they are needed at which row groups are fetched.
    """
    groups, first, last = needed_from_to(order.pieces().of_lanes(lanes))
    return most_at_a_time(np.maximum(first - early, 0), last, group_bytes[groups])


def most_at_a_time(first: NDArray[np.int64], last: NDArray[np.int64], weight: NDArray[np.int64]) -> int:
    """The largest sum of weights that are held at a time, each from `first` to `last`.

    Example:
        >>> most_at_a_time(np.array([0, 3, 8]), np.array([5, 6, 9]), np.array([10, 20, 25]))
        30
    """
    if len(first) == 0:
        return 0
    # events: (2 · groups,) what comes before what goes at the same position
    places = np.concatenate([first, last])
    changes = np.concatenate([weight, -weight])
    events = np.lexsort((np.repeat([0, 1], len(first)), places))
    return int(np.cumsum(changes[events]).max())


def room_rows(rows: NDArray[np.int64], meant: int, *, lanes: int, block_rows: int) -> int:
    """Rows for which there has to be room where the row groups of some lanes stand side by side.

    Enough but for odd sizes, mostly too many, and known without looking at the order.

    Args:
        rows: Of each row group of the dataset, shape (groups,).
        meant: How many of all rows the order has.
        lanes: How many lanes are read.
        block_rows: Of the order.

    Example:
        >>> room_rows(np.full(600, 1000), 600_000, lanes=12, block_rows=500)
        36000
        >>> room_rows(np.full(6, 1000), 6_000, lanes=12, block_rows=500)
        6000
    """
    everything = int(rows.sum())
    # Blocks are measured in the rows that are meant, and row groups are kept whole.
    block = block_rows * everything // max(meant, 1)
    of_lane = 2 * (block + int(rows.max(initial=0)))  # a block, and the next one
    return min(lanes * of_lane, everything)
