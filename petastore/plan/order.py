"""The order of an epoch: lanes over hashed row groups, as arithmetic. Pure.

1. Row groups are sorted by a hash of (seed, epoch, row group) and laid on one line of N rows.
2. The line is cut, at exact rows, into L lanes whose sizes differ by at most one.
3. Inside a lane, blocks of B rows are permuted by a hash of (seed, epoch, lane, block). The block borders of lane k are
   shifted by k·B/L rows, so that lanes change blocks one after the other: the same mixing, 22–34 % less peak memory.
4. The epoch visits the lanes in turn: position p is row p // L of lane p % L.

So position → row is arithmetic; nothing but the row groups' sizes is ever materialised, and any position can be asked
for directly. A global batch is a run of positions; sorted by lane it is cut into equal shares for the ranks
(`petastore.plan.tail`), which is why the batches, as sets, do not depend on how many ranks there are, while each rank
stays on its own lanes and so on its own row groups.

An order that does not permute rows has one lane a shard: each shard reads one contiguous part of the line.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from petastore.plan.mix import hashed_permutation, mix
from petastore.plan.request import Order

__all__ = ["EpochOrder"]

_ROW_GROUPS, _ROWS = 0, 1  # what a hash is for: the two never share a stream
_CACHED_BLOCKS = 1024


class EpochOrder:
    """Which row stands at which position of one epoch.

    Equal arguments give equal orders on every platform and release; `tests/plan/golden` pins them. Not thread-safe
    (it remembers the blocks that were asked for last).

    Args:
        rows: Rows of each row group, shape (groups,).
        order: What was asked.
        epoch: The epoch, from 0.

    Example:
        >>> order = Order(seed=7, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> groups, rows = EpochOrder(np.array([3, 0, 3]), order, epoch=0).rows_at(np.arange(6))
        >>> list(zip(groups.tolist(), rows.tolist()))
        [(0, 0), (2, 0), (0, 1), (2, 1), (0, 2), (2, 2)]
    """

    def __init__(self, rows: NDArray[np.int64], order: Order, epoch: int) -> None:
        self.num_rows = int(rows.sum())
        self.lanes = min(order.lanes, max(self.num_rows, 1))
        self._order = order
        self._epoch = epoch
        # line_groups: (groups,) row groups in line order; line_starts: (groups + 1,) their first rows on the line
        self._line_groups = self._permuted_groups(len(rows))
        self._line_starts = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(rows[self._line_groups], out=self._line_starts[1:])
        # lane k holds positions k, k + L, k + 2·L, …: the first N % L lanes have one row more
        sizes = np.full(self.lanes, self.num_rows // self.lanes, dtype=np.int64)
        sizes[: self.num_rows % self.lanes] += 1
        self._lane_sizes = sizes
        self._lane_starts = np.cumsum(sizes) - sizes
        self._block = functools.lru_cache(maxsize=_CACHED_BLOCKS)(self._make_block)

    def _permuted_groups(self, groups: int) -> NDArray[np.int64]:
        if not self._order.shuffle_row_groups:
            return np.arange(groups, dtype=np.int64)
        epoch = self._epoch if self._order.reshuffle == "epoch" else 0
        return hashed_permutation(mix(_ROW_GROUPS, self._order.seed, epoch), groups)

    def rows_at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Row groups and rows inside them, at some positions.

        Args:
            positions: Positions in [0, num_rows), in any order, shape (n,).

        Returns:
            Row groups (int32) and rows inside the row group (int64), both of shape (n,).
        """
        lanes, offsets = positions % self.lanes, positions // self.lanes
        if not self._order.shuffle_rows:
            return self._on_line(self._lane_starts[lanes] + offsets)
        groups = np.empty(len(positions), dtype=np.int32)
        rows = np.empty(len(positions), dtype=np.int64)
        for lane, where in _runs(lanes):
            blocks, inside = self._blocks_of(lane, offsets[where])
            for block, of_block in _runs(blocks):
                block_groups, block_rows = self._block(lane, block)
                chosen = where[of_block]
                groups[chosen] = block_groups[inside[of_block]]
                rows[chosen] = block_rows[inside[of_block]]
        return groups, rows

    def _on_line(self, line: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Row groups and rows inside them, at some places of the line."""
        # index: (n,) place of each row's row group on the line
        index = np.searchsorted(self._line_starts, line, side="right") - 1
        return self._line_groups[index].astype(np.int32), line - self._line_starts[index]

    def last_position(self, group_line_index: int) -> int:
        """The last position whose block touches a row group, given by its place on the line."""
        first, stop = self._line_starts[group_line_index : group_line_index + 2].tolist()
        if first == stop:
            return -1
        first_lane, last_lane = np.searchsorted(self._lane_starts, [first, stop - 1], side="right").tolist()
        return max(self._last_of_lane(lane - 1, stop) for lane in range(first_lane, last_lane + 1))

    def last_positions(self, groups: NDArray[np.int32]) -> NDArray[np.int64]:
        """The last position whose block touches each of some row groups: afterwards they are not needed any more."""
        line_index = self._line_index[groups]
        return np.array([self.last_position(int(index)) for index in line_index], dtype=np.int64)

    @functools.cached_property
    def _line_index(self) -> NDArray[np.int64]:
        inverse = np.empty_like(self._line_groups)
        inverse[self._line_groups] = np.arange(len(inverse), dtype=np.int64)
        return inverse

    def _last_of_lane(self, lane: int, line_stop: int) -> int:
        start, size = int(self._lane_starts[lane]), int(self._lane_sizes[lane])
        offset = min(line_stop - start, size) - 1
        if self._order.shuffle_rows:
            block = (offset + self._shift(lane)) // self._order.block_rows
            offset = min((block + 1) * self._order.block_rows - self._shift(lane), size) - 1
        return offset * self.lanes + lane

    def _shift(self, lane: int) -> int:
        return lane * self._order.block_rows // self.lanes

    def _blocks_of(self, lane: int, offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        # Block 0 of lane k has lost its first `shift` rows to the stagger; its places count from 0 all the same.
        blocks, inside = np.divmod(offsets + self._shift(lane), self._order.block_rows)
        inside[blocks == 0] -= self._shift(lane)
        return blocks, inside

    def _make_block(self, lane: int, block: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Row groups and rows of one block, in the order of the epoch."""
        block_rows, shift = self._order.block_rows, self._shift(lane)
        first = max(block * block_rows - shift, 0)
        stop = min((block + 1) * block_rows - shift, int(self._lane_sizes[lane]))
        groups, rows = self._on_line(np.arange(first, stop, dtype=np.int64) + self._lane_starts[lane])
        permuted = hashed_permutation(mix(_ROWS, self._order.seed, self._epoch, lane, block), stop - first)
        return groups[permuted], rows[permuted]


def _runs(keys: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Each distinct key with the places where it stands."""
    if len(keys) == 0:
        return []
    if keys[0] == keys[-1] and (keys == keys[0]).all():
        return [(int(keys[0]), np.arange(len(keys)))]
    places = np.argsort(keys, kind="stable")
    ordered = keys[places]
    borders = np.flatnonzero(np.diff(ordered)) + 1
    return [(int(keys[part[0]]), part) for part in np.split(places, borders)]
