"""In which order an epoch lays its row groups on one line. Pure.

Files are often sorted: by label, by day, by user. If the row groups that are live together were drawn like lots, some
parts of the dataset would be there twice and others not at all. So they are drawn in strata: the dataset is cut, in
file order, into L parts of equally many row groups; each lane takes one part, in hashed order. Every batch then holds
rows of all parts.

Part s goes to the lane of visit (s + r) mod L, where r is a hash that differs from epoch to epoch and visits are
those of `petastore.plan.visits`. Any R visits in a row belong to R ranks, so a rank has every R-th part: what one
rank sees is drawn as evenly from the dataset as what all see together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from petastore.plan.mix import hashed_permutation, mix, mix_array
from petastore.plan.request import Order
from petastore.plan.visits import lane_of_visit

__all__ = ["ROWS", "line_of_groups"]

# What a hash is for: no two of these share a stream.
_ROW_GROUPS, ROWS, _TURN = 0, 1, 2


def line_of_groups(rows: NDArray[np.int64], order: Order, *, epoch: int, lanes: int) -> NDArray[np.int64]:
    """Row groups that have rows, in the order in which they lie on the line.

    Args:
        rows: Rows of each row group, shape (groups,).
        order: What was asked.
        epoch: The epoch, from 0.
        lanes: Lanes that the line is going to be cut into.

    Returns:
        Shape (row groups with rows,).

    Example:
        >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=1)
        >>> line_of_groups(np.full(8, 10), order, epoch=0, lanes=2).tolist()
        [3, 1, 0, 2, 7, 5, 6, 4]
    """
    filled = np.flatnonzero(rows)
    if not order.shuffle_row_groups:
        return filled
    hashed_for = (order.seed, epoch if order.reshuffle == "epoch" else 0)
    if not order.shuffle_rows:
        return filled[hashed_permutation(mix(_ROW_GROUPS, *hashed_for), len(filled))]
    return filled[_in_strata(len(filled), lanes, hashed_for)]


def _in_strata(groups: int, lanes: int, hashed_for: tuple[int, int]) -> NDArray[np.int64]:
    """Numbers of row groups, lane after lane, in hashed order inside each; sorted as `hashed_permutation` does it."""
    numbers = np.arange(groups, dtype=np.uint64)
    parts = numbers.astype(np.int64) * lanes // max(groups, 1)
    lane = lane_of_visit(lanes)[(parts + mix(_TURN, *hashed_for) % lanes) % lanes]
    # keys: lane in the high bits, hash in the middle, number in the low bits: all different, so any sort will do
    lane_bits = np.uint64((lanes - 1).bit_length())
    low_bits = np.uint64((1 << max(groups - 1, 0).bit_length()) - 1)
    keys = mix_array(mix(_ROW_GROUPS, *hashed_for), numbers) >> lane_bits
    if lane_bits:
        keys |= lane.astype(np.uint64) << (np.uint64(64) - lane_bits)
    keys &= ~low_bits
    keys |= numbers
    keys.sort()
    keys &= low_bits
    return keys.astype(np.int64)
