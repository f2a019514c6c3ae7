"""In which order an epoch lays its row groups on one line. Pure.

Files are often sorted: by label, by day, by user. If the row groups that are live together were drawn like lots, some
parts of the dataset would be there twice and others not at all. So they are drawn in strata: the dataset is cut, in
file order, into L parts of equally many row groups; each lane takes one part, in hashed order. Every batch then holds
rows of all parts.

Part s goes to the lane of visit (s + r) mod L, where r is a hash that differs from epoch to epoch and visits are
those of `petastore.plan.order.visits`. Any R visits in a row belong to R ranks, so a rank has every R-th part: what one
rank sees is drawn as evenly from the dataset as what all see together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order.mix import hashed_permutation, mix, mix_array
from petastore.plan.order.visits import visit_of_lane
from petastore.plan.request import Order

__all__ = ["ROWS", "line_of_groups"]

# What a hash is for: no two of these share a stream.
_ROW_GROUPS, ROWS, _TURN = 0, 1, 2

_SORTED_AT_ONCE = 32_768
"""Row groups of whole lanes that are sorted at once: their keys stay in the processor's cache, and in memory that the
process has already; fresh memory for millions of keys costs more than sorting them."""


def line_of_groups(rows: NDArray[np.int64], order: Order, *, epoch: int, lanes: int) -> NDArray[np.int32]:
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
    filled = int(np.count_nonzero(rows))
    line = _line_of_filled(filled, order, epoch, lanes)
    return line if filled == len(rows) else np.flatnonzero(rows).astype(np.int32)[line]


def _line_of_filled(groups: int, order: Order, epoch: int, lanes: int) -> NDArray[np.int32]:
    """The order of row groups that all have rows."""
    if not order.shuffle_row_groups:
        return np.arange(groups, dtype=np.int32)
    hashed_for = (order.seed, epoch if order.reshuffle == "epoch" else 0)
    if not order.shuffle_rows:
        return hashed_permutation(mix(_ROW_GROUPS, *hashed_for), groups).astype(np.int32)
    return _in_strata(groups, lanes, hashed_for)


def _in_strata(groups: int, lanes: int, hashed_for: tuple[int, int]) -> NDArray[np.int32]:
    """Numbers of row groups, lane after lane, in hashed order inside each; sorted as `hashed_permutation` does it."""
    # borders: (lanes + 1,) part s is the numbers n with n * lanes // groups == s
    borders = -(-np.arange(lanes + 1, dtype=np.int64) * groups // lanes)
    parts = (visit_of_lane(lanes) - mix(_TURN, *hashed_for) % lanes) % lanes
    firsts, sizes = borders[parts], np.diff(borders)[parts]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    keys = _LaneKeys(mix(_ROW_GROUPS, *hashed_for), groups, lanes)
    ordered = np.empty(groups, dtype=np.int32)
    lanes_at_once = max(_SORTED_AT_ONCE * lanes // max(groups, 1), 1)
    for lane in range(0, lanes, lanes_at_once):
        chosen = slice(lane, lane + lanes_at_once)
        first, stop = starts[chosen][0], starts[: lane + lanes_at_once + 1][-1]
        numbers = np.arange(first, stop) + np.repeat(firsts[chosen] - starts[:-1][chosen], sizes[chosen])
        ordered[first:stop] = keys.sorted(numbers, np.repeat(np.arange(lanes)[chosen], sizes[chosen]))
    return ordered


class _LaneKeys:
    """Sorts row groups by lane and hash.

    A key has the lane in its high bits, the hash in the middle and the number in its low bits: all are different, so
    any sort will do.
    """

    def __init__(self, state: int, groups: int, lanes: int) -> None:
        self._state = state
        self._lane_bits = (lanes - 1).bit_length()
        self._low_bits = np.uint64((1 << max(groups - 1, 0).bit_length()) - 1)

    def sorted(self, numbers: NDArray[np.int64], lanes: NDArray[np.int64]) -> NDArray[np.uint64]:
        numbered = numbers.view(np.uint64)
        keys = mix_array(self._state, numbered)
        if self._lane_bits:
            keys >>= np.uint64(self._lane_bits)
            keys |= lanes.view(np.uint64) << np.uint64(64 - self._lane_bits)
        keys &= ~self._low_bits
        keys |= numbered
        keys.sort()
        keys &= self._low_bits
        return keys
