"""Order of an epoch: the row at each position, computed by arithmetic. No I/O.

An epoch interleaves the rows of L *lanes*: sequences of row groups that are read concurrently, so that each batch has
rows of all lanes. The *position* of a row is its index in the epoch, from 0.

1. All row groups are ordered by a hash of (seed, epoch, row group), so that the row groups in memory at one time come
   evenly from all parts of the dataset (`petastore.plan.order.line`). Their N rows in this order are the *line*.
2. The line is cut, at exact rows, into L lanes whose sizes differ by at most one.
3. A lane is divided into *blocks*, the row groups whose rows are shuffled together: a block has all row groups of the
   lane that begin within B rows. The rows of a block are permuted by a hash of (seed, epoch, lane, block). The block
   borders of lane k are shifted by k·B/L rows, so that lanes do not begin new blocks at the same time.
4. The epoch takes one row from each lane, then the next row from each lane, and so on, always in the same sequence of
   lanes (`petastore.plan.order.visits`): position p is row p // L of lane number p % L of this sequence.

The row at any position is therefore computed directly, and only the sizes of row groups are in memory. A global batch
is a range of positions. Its rows are sorted by lane and divided equally among the ranks
(`petastore.plan.batches.epoch_batches`). The set of rows of a global batch is therefore independent of the number of
ranks, while each rank reads only its own lanes and their row groups.

Two rules limit memory to L blocks. First, a block ends at the end of a row group, so that no row group is needed after
its block. Second, lanes are read alternately forward and backward. If a lane border divides a row group, both parts are
then read at the start of the epoch or both at its end. If all lanes were read forward, such a row group would stay in
memory from the first batch to the last.

An order that does not permute rows has one lane per shard by default. Each shard then reads one contiguous part of the
line, forward.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from petastore.lazy import once
from petastore.plan.order.grouped_rows import (
    GroupedRows,
    Permutation,
    Runs,
    joined,
    places_by_key,
    stable_order,
)
from petastore.plan.order.line import line_of_groups, line_of_parts
from petastore.plan.order.mix import hashed_permutation, mix, mix_array
from petastore.plan.order.partial_sort import PartialSort
from petastore.plan.order.visits import LaneRuns, LaneVisits, Rounds
from petastore.plan.request import Order

if TYPE_CHECKING:
    from petastore.plan.row_group_parts import RowGroupParts

__all__ = ["EpochOrder", "Pieces"]

_ROWS = 1  # first word that is hashed; other modules hash other first words, so that the hashes are unrelated

_BLOCKS_BESIDES = 16
"""Number of shuffled blocks that are cached in addition to one per lane.

They are for lanes that are about to begin a new block."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """Row groups of each lane, as arrays of shape (pieces,).

    A lane is a sequence of row groups that an epoch interleaves. A row group that several lanes share has one entry, a
    *piece*, for each of them.
    """

    groups: NDArray[np.int64]
    """Row group of each piece (a row group, or the part of it that one lane reads)."""

    lanes: NDArray[np.int64]
    """Lane of each piece: the interleaved sequence of row groups to which it belongs."""

    first_positions: NDArray[np.int64]
    """First position in the epoch at which the row group is needed.

    With shuffled rows, this is the position of the first row of all row groups that are shuffled together with it."""

    last_positions: NDArray[np.int64]
    """Last position in the epoch at which the row group is needed, inclusive."""

    def chosen(self, which: NDArray[np.bool_]) -> Pieces:
        """Return the pieces for which a mask of shape (pieces,) is True."""
        return Pieces(self.groups[which], self.lanes[which], self.first_positions[which], self.last_positions[which])

    def of_lanes(self, lanes: range) -> Pieces:
        """Return the pieces of a range of lanes (interleaved sequences of row groups)."""
        return self.chosen((self.lanes >= lanes.start) & (self.lanes < lanes.stop))


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Lane:
    """One lane: an interleaved sequence of row groups, and its blocks.

    A lane is a range of the line (the rows of all row groups in epoch order, before they are shuffled). A block is a
    range of the lane whose rows are shuffled together.
    """

    number: int
    start: int  # index of the lane's first row on the line
    size: int  # number of rows of the lane
    line_groups: slice  # row groups of the lane, as a range of the line's row groups
    block_starts: NDArray[Any]  # offset of each block in the lane, then `size`; shape (blocks + 1,), smallest dtype

    def blocks_at(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the block that contains the row at each offset in the lane; shape (n,).

        Blocks are numbered from 0 in each lane.
        """
        starts = self.block_starts
        return np.searchsorted(starts[:-1], offsets.astype(starts.dtype, copy=False), side="right") - 1


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Block:
    """A block: the row groups of one lane whose rows are shuffled together.

    It also stores the order of the shuffled rows.
    """

    distinct: NDArray[np.int32]  # row groups of the block, in line order
    which: NDArray[np.int32] | None  # row group of each row, in epoch order; None if the block has one row group
    rows: NDArray[Any]  # number of each row in its row group, in epoch order
    by_group: NDArray[Any]  # the same numbers, sorted by row group, and in epoch order inside each row group
    counts: NDArray[np.int64]  # number of rows that the block has of each row group

    def groups(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the row group of some rows of the block, shape (n,).

        Args:
            rows: Slice or indices of the block's rows, in their shuffled order.
        """
        return np.full(len(self.rows[rows]), self.distinct[0]) if self.which is None else self.which[rows]

    def read_order_of(self, group: int) -> NDArray[np.int64]:
        """Return the block's rows of one row group, in epoch order, shape (n,).

        The rows are row numbers in the row group.
        """
        place = int(np.flatnonzero(self.distinct == group)[0])
        first = int(self.counts[:place].sum())
        return self.by_group[first : first + int(self.counts[place])].astype(np.int64, copy=False)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Blocks:
    """Blocks in which single rows are looked up, as arrays of shape (blocks,).

    A block has the row groups of a lane whose rows are shuffled together.
    """

    states: NDArray[np.uint64]  # hash state of each block's permutation
    sizes: NDArray[np.int64]
    firsts: NDArray[np.int64]  # index of the block's first row in reading order, lane after lane
    begins: NDArray[np.int64]  # index of the block's first row on the line (the rows before they are shuffled)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _BlockRows:
    """Range of the shuffled rows of one block, in epoch order.

    A block has the row groups of a lane whose rows are shuffled together.
    """

    lane: int
    block: _Block
    rows: slice  # range of the block's rows, in epoch order


class EpochOrder:
    """Row order of one epoch: the row group and row number at each position.

    A position is the index of a row in the epoch. If a filter selects rows, a row number is an index among the selected
    rows of the row group. Equal arguments give equal orders on every platform and in every release, as
    `tests/plan/golden` verifies. Thread-safe; recent blocks (row groups whose rows are shuffled together) are cached.

    Args:
        rows: Number of selected rows of each row group, shape (groups,).
        order: Options of the row order.
        epoch: Number of the epoch, from 0.
        visits: Lane (one of the interleaved sequences of row groups) at each position; None takes one row from each
            lane in turn (round-robin).
        parts: Division of row groups into parts. If given, `rows` and all row group numbers refer to parts, and
            `shuffle_rows` must be False.

    Example:
        >>> order = Order(seed=7, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> groups, rows = EpochOrder(np.array([3, 0, 3]), order, epoch=0).rows_at(np.arange(6))
        >>> list(zip(groups.tolist(), rows.tolist()))
        [(0, 0), (2, 0), (0, 1), (2, 1), (0, 2), (2, 2)]
    """

    def __init__(
        self,
        rows: NDArray[np.int64],
        order: Order,
        epoch: int,
        *,
        visits: LaneVisits | None = None,
        parts: RowGroupParts | None = None,
    ) -> None:
        self.num_rows = int(rows.sum())
        self._visits = visits or Rounds(self.num_rows, min(order.lanes, max(self.num_rows, 1)))
        self._lane_sizes = self._visits.sizes
        self.lanes = len(self._lane_sizes)
        self._order = order
        self._epoch = epoch
        # The line is the sequence of all rows before they are shuffled, row group after row group:
        # line_groups: shape (filled,), non-empty row groups in the order of the line
        # line_starts: shape (filled + 1,), index on the line of each row group's first row, then the number of rows
        self._num_groups = len(rows)
        self._line_groups = (
            line_of_groups(rows, order, epoch=epoch, lanes=self.lanes)
            if parts is None
            else line_of_parts(rows, parts, order, epoch=epoch, lanes=self.lanes)
        )
        # With a million row groups each array takes megabytes, so the smallest dtype is used.
        self._line_starts = np.zeros(len(self._line_groups) + 1, dtype=_smallest(self.num_rows))
        np.cumsum(rows.take(self._line_groups), out=self._line_starts[1:])
        self._rows_are_small = int(rows.max(initial=0)) < 2**31
        self._lane_starts = np.cumsum(self._lane_sizes) - self._lane_sizes
        # In a lane that is read backward, row i of the line has the index `mirror - 1 - i` in reading order.
        self._mirrors = 2 * self._lane_starts + self._lane_sizes
        # Scratch arrays are reused, because allocating memory takes as long as permuting a block.
        self._scratch: list[NDArray[np.uint64]] = []
        self._lane = functools.cache(self._make_lane)
        self._block = functools.lru_cache(maxsize=self.lanes + _BLOCKS_BESIDES)(self._make_block)

    def rows_at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the row group and the row number at given positions of the epoch.

        This is fast for a few positions. If most rows of a block (row groups that are shuffled together) are needed,
        `by_lane` is faster.

        Args:
            positions: Positions in [0, num_rows), in any order, shape (n,).

        Returns:
            Row groups (int32) and row numbers in the row group (int64), both of shape (n,).
        """
        lanes, offsets = self._visits.at(positions)
        line = self._lane_starts[lanes] + offsets
        return self._on_line(self._permuted(line) if self._order.shuffle_rows else line)

    def positions_of(self, groups: NDArray[Any], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the epoch of given rows: the inverse of `rows_at`.

        Args:
            groups: Row group of each row, shape (n,).
            places: Index of each row among the selected rows of its row group, from 0, shape (n,).

        Returns:
            Positions in [0, num_rows), shape (n,).

        Example:
            >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=5)
            >>> order = EpochOrder(np.array([3, 0, 5]), order, epoch=0)
            >>> order.positions_of(*order.rows_at(np.arange(8))).tolist()
            [0, 1, 2, 3, 4, 5, 6, 7]
        """
        line = self._line_starts[self._line_index[groups]] + places
        lanes = self._lanes_at(line)
        if self._order.shuffle_rows:
            line = self._unpermuted(line, lanes)
        positions = np.empty(len(line), dtype=np.int64)
        for number, where in places_by_key(lanes):
            positions[where] = self._visits.positions(number, line[where] - self._lane_starts[number])
        return positions

    def _permuted(self, read: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert indices of rows after shuffling to indices before shuffling; shape (n,).

        After shuffling, rows are in reading order; before shuffling, in the order of the line (the sequence of all rows
        before they are shuffled). Both indices count the rows of all lanes (interleaved sequences of row groups), one
        lane after the other.
        """
        blocks, which, order = self._blocks_of(read)
        line = np.empty_like(read)
        line[order] = blocks.begins[which] + self._partial_sort.numbers_at(
            blocks.states, blocks.sizes, which, read[order] - blocks.firsts[which]
        )
        return line

    def _unpermuted(self, line: NDArray[np.int64], lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert indices of rows before shuffling to indices after shuffling; shape (n,).

        The inverse of `_permuted`; `lanes` is the lane of each row.
        """
        read = np.where(lanes % 2 == 1, self._mirrors[lanes] - 1 - line, line)
        blocks, which, order = self._blocks_of(read)
        read[order] = blocks.firsts[which] + self._partial_sort.places_of(
            blocks.states, blocks.sizes, which, line[order] - blocks.begins[which]
        )
        return read

    def _blocks_of(self, read: NDArray[np.int64]) -> tuple[_Blocks, NDArray[np.int64], NDArray[np.int64]]:
        """Find the block of each row: the row groups whose rows are shuffled together.

        Args:
            read: Index of each row in reading order, lane after lane, shape (n,).

        Returns:
            The distinct blocks; the index of each row's block among them, with rows sorted by block, shape (n,); and
            the index in `read` of each row in this sorted order, shape (n,).
        """
        starts = self._block_starts
        order = np.argsort(read, kind="stable")
        blocks = starts.searchsorted(read[order].astype(starts.dtype), side="right") - 1
        is_first = np.diff(blocks, prepend=-1) != 0
        distinct = blocks[is_first]
        firsts, stops = starts[distinct].astype(np.int64), starts[distinct + 1].astype(np.int64)
        lanes = self._lanes_at(firsts)
        in_lane = distinct - starts.searchsorted(self._lane_starts[lanes].astype(starts.dtype))
        states = mix_array(mix(_ROWS, self._order.seed, self._epoch), lanes.view(np.uint64))
        states = mix_array(states, in_lane.view(np.uint64))
        begins = np.where(lanes % 2 == 1, self._mirrors[lanes] - stops, firsts)
        return _Blocks(states, stops - firsts, firsts, begins), np.cumsum(is_first) - 1, order

    @once
    def _partial_sort(self) -> PartialSort:
        return PartialSort()

    @once
    def _block_starts(self) -> NDArray[Any]:
        """Index of each block's first row in reading order, then the number of rows.

        The rows of all lanes are counted, one lane after the other. Shape (blocks + 1,).
        """
        of_lanes = [self._lane(number).block_starts[:-1] + start for number, start in enumerate(self._lane_starts)]
        return np.concatenate([*of_lanes, [self.num_rows]]).astype(self._line_starts.dtype)

    def _lanes_at(self, line: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lane of the row at each index on the line, shape (n,).

        The line is the sequence of all rows before they are shuffled.
        """
        return self._lane_starts.searchsorted(line, side="right") - 1

    def by_lane(self, positions: NDArray[np.int64] | LaneRuns, *, read_lanes: range | None = None) -> GroupedRows:
        """Return the rows at given positions of the epoch, sorted by lane.

        The result has a permutation back to the order of `positions`. A lane is one of the sequences of row groups that
        the epoch interleaves. If rows are not shuffled, rows at an array of positions keep the given order.

        Args:
            positions: Positions in [0, num_rows), in any order, shape (n,). `LaneRuns`, which are consecutive rows of
                each lane, are faster.
            read_lanes: Lanes that this rank reads; None means the lanes of `positions`. If the result has runs (ranges
                of consecutive rows), these count the rows of a row group in the order in which the lanes read them
                (`read_order_of`).
        """
        if isinstance(positions, LaneRuns):
            return self._along(positions, positions.own if read_lanes is None else read_lanes)
        lanes, offsets = self._visits.at(positions)
        if not self._order.shuffle_rows:
            return GroupedRows(*self._on_line(self._lane_starts[lanes] + offsets), None)
        by_lane = stable_order(lanes)
        groups = np.empty(len(positions), dtype=np.int32)
        rows = np.empty(len(positions), dtype=np.int64)
        offsets = offsets[by_lane]
        borders = np.searchsorted(lanes[by_lane], np.arange(self.lanes + 1)).tolist()
        for number, (first, stop) in enumerate(itertools.pairwise(borders)):
            if first < stop:
                self._lane_rows(self._lane(number), offsets[first:stop], groups[first:stop], rows[first:stop])
        return GroupedRows(groups, rows, Permutation(by_lane))

    def _along(self, runs: LaneRuns, read_lanes: range) -> GroupedRows:
        """Return the rows of `runs` (consecutive rows of each lane), sorted by lane.

        For `read_lanes`, see `by_lane`.
        """
        permutation = None if runs.targets is None else Permutation(runs.targets)
        lanes = zip(runs.own, runs.firsts.tolist(), runs.stops.tolist(), strict=True)
        if not self._order.shuffle_rows:
            starts = self._lane_starts.tolist()
            each = [self._run_of_line(starts[number] + first, starts[number] + stop) for number, first, stop in lanes]
            return joined(each, permutation)
        parts = [part for number, first, stop in lanes for part in self._blocks_of_lane(number, first, stop)]
        if not parts:
            return joined([], permutation)
        if all(len(part.block.distinct) == 1 for part in parts):
            return GroupedRows.of_runs(self._runs_of_blocks(parts, read_lanes), permutation)
        groups = np.concatenate([part.block.groups(part.rows) for part in parts])
        rows = np.concatenate([part.block.rows[part.rows] for part in parts], dtype=np.int64)
        return GroupedRows(groups, rows, permutation)

    def _blocks_of_lane(self, number: int, first: int, stop: int) -> Iterator[_BlockRows]:
        """Yield the rows [first, stop) of a lane in reading order, one item per block."""
        lane = self._lane(number)
        block = _place(lane.block_starts, first, side="right") - 1
        while first < stop:
            begin, end = lane.block_starts[block : block + 2].tolist()
            yield _BlockRows(number, self._block(number, block), slice(first - begin, min(stop, end) - begin))
            first, block = end, block + 1

    def _runs_of_blocks(self, parts: Sequence[_BlockRows], read_lanes: range) -> Runs:
        """Return the rows of `parts` as runs; the block of each part has a single row group.

        A run is a range of consecutive rows. Its first row is counted in the order in which `read_lanes` read the row
        group (`read_order_of`).
        """
        groups = np.array([part.block.distinct[0] for part in parts], dtype=np.int32)
        # Several lanes may share a row group; its rows in earlier lanes then come first in the read order.
        begins = np.maximum(self._line_starts[self._line_index[groups]], self._lane_starts[read_lanes.start])
        before = np.maximum(self._lane_starts[[part.lane for part in parts]] - begins, 0)
        firsts = before + np.array([part.rows.start for part in parts], dtype=np.int64)
        counts = np.array([part.rows.stop - part.rows.start for part in parts], dtype=np.int64)
        views = [part.block.rows[part.rows] for part in parts]
        return Runs(groups, firsts, counts, functools.partial(np.concatenate, views, dtype=np.int64))

    def _lane_rows(
        self, lane: _Lane, offsets: NDArray[np.int64], groups: NDArray[np.int32], rows: NDArray[np.int64]
    ) -> None:
        """Look up the rows at given offsets of a lane; write the result into two arrays.

        `groups` gets the row group of each row, `rows` its row number. Consecutive offsets, the usual case, are copied
        block by block.
        """
        first, stop = int(offsets[0]), int(offsets[-1]) + 1
        if stop - first == len(offsets) and bool((np.diff(offsets) == 1).all()):
            parts = list(self._blocks_of_lane(lane.number, first, stop))
            np.concatenate([part.block.groups(part.rows) for part in parts], out=groups)
            np.concatenate([part.block.rows[part.rows] for part in parts], out=rows)
            return
        blocks = lane.blocks_at(offsets)
        inside = offsets - lane.block_starts[blocks]
        for block, where in places_by_key(blocks):
            rows_there = self._block(lane.number, block)
            groups[where], rows[where] = rows_there.groups(inside[where]), rows_there.rows[inside[where]]

    def _on_line(self, line: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the row group and row number at each index on the line, both (n,).

        The line is the sequence of all rows before they are shuffled.
        """
        # index: shape (n,), index of each row's row group in `_line_groups`
        index = np.searchsorted(self._line_starts, line.astype(self._line_starts.dtype), side="right") - 1
        return self._line_groups[index], line - self._line_starts[index]

    def _run_of_line(self, first: int, stop: int) -> GroupedRows:
        """Return the rows [first, stop) of the line, as one run for each row group.

        The line is the sequence of all rows before they are shuffled; a run is a range of consecutive rows.
        """
        starts = self._line_starts
        low, high = _place(starts, first, side="right") - 1, _place(starts, stop, side="left")
        borders = starts[low : high + 1].astype(np.int64)
        firsts = np.zeros(high - low, dtype=np.int64)
        firsts[:1] = first - borders[0]
        borders[0], borders[-1] = first, stop
        return GroupedRows.of_runs(Runs.of_file(self._line_groups[low:high], firsts, borders[1:] - borders[:-1]), None)

    def last_positions(self, groups: NDArray[np.int32], *, lanes: range) -> NDArray[np.int64]:
        """Return the last position in the epoch at which some lanes need each row group.

        Args:
            groups: Row groups, shape (n,).
            lanes: Lanes (interleaved sequences of row groups) that are read.

        Returns:
            Last positions, shape (n,); -1 for row groups without rows in these lanes.
        """
        places = self._line_index[groups]
        if self.lanes == 1 and 0 in lanes and not self._order.shuffle_rows:
            return self._visits.positions(0, self._line_starts[places + 1].astype(np.int64) - 1)
        return np.array([self._last_position(place, lanes) for place in places.tolist()], dtype=np.int64)

    def read_order_of(self, group: int, *, lanes: range) -> NDArray[np.int64] | None:
        """Return the rows of a row group in the order in which a rank reads them.

        `lanes` are the lanes of the rank (sequences of row groups that the epoch interleaves). Rows of other lanes are
        last.

        Returns:
            Each row of the row group once, as an index among its selected rows, shape (rows,). None means file order.
        """
        if not self._order.shuffle_rows:
            return None
        first, stop = self._line_starts[self._line_index[group] :][:2].tolist()
        first_lane, last_lane = (np.searchsorted(self._lane_starts, [first, stop - 1], side="right") - 1).tolist()
        parts = [
            self._read_order_in(self._lane(number), group, range(first, stop))
            for number in sorted(range(first_lane, last_lane + 1), key=lambda number: number not in lanes)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _read_order_in(self, lane: _Lane, group: int, on_line: range) -> NDArray[np.int64]:
        """Return the rows that a lane has of a row group, in reading order, shape (n,).

        `on_line` are the indices of the row group's rows on the line (the sequence of all rows before they are
        shuffled).
        """
        if lane.size == 0:
            return np.empty(0, dtype=np.int64)
        place = max(on_line.start - lane.start, 0)
        offset = lane.size - 1 - place if self._is_backwards(lane.number) else place
        return self._block(lane.number, int(lane.blocks_at(np.array([offset]))[0])).read_order_of(group)

    @once
    def _line_index(self) -> NDArray[np.int32]:
        """Index of each row group among the non-empty row groups in epoch order.

        The index is -1 for an empty row group; shape (groups,).
        """
        inverse = np.full(self._num_groups, -1, dtype=np.int32)
        inverse[self._line_groups] = np.arange(len(self._line_groups), dtype=np.int32)
        return inverse

    def _last_position(self, line_index: int, lanes: range) -> int:
        """Return the last position in the epoch at which `lanes` need a row group.

        Return -1 if they do not need it.

        Args:
            line_index: Index of the row group among the non-empty row groups in epoch order.
            lanes: Lanes (interleaved sequences of row groups).
        """
        first, stop = self._line_starts[line_index : line_index + 2].tolist()
        first_lane, last_lane = (np.searchsorted(self._lane_starts, [first, stop - 1], side="right") - 1).tolist()
        last_positions = [-1]
        for number in range(max(first_lane, lanes.start), min(last_lane + 1, lanes.stop)):
            lane = self._lane(number)
            if lane.size == 0:
                continue
            places = np.array([max(first - lane.start, 0), min(stop - lane.start, lane.size) - 1])
            offset = int((lane.size - 1 - places if self._is_backwards(number) else places).max())
            if self._order.shuffle_rows:
                block = int(lane.blocks_at(np.array([offset]))[0])
                offset = int(lane.block_starts[block + 1]) - 1
            last_positions.append(int(self._visits.positions(number, np.array([offset]))[0]))
        return max(last_positions)

    def pieces(self) -> Pieces:
        """Return all non-empty row groups, one entry for each lane that has rows of them.

        A lane is one of the sequences of row groups that the epoch interleaves.
        """
        parts = [self._pieces_of(self._lane(number)) for number in range(self.lanes)]
        return Pieces(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _pieces_of(self, lane: _Lane) -> tuple[NDArray[np.int64], ...]:
        """Return the four arrays of `Pieces` for one lane."""
        piece_starts = self._piece_starts(lane.number, lane.line_groups)
        starts, stops = piece_starts[:-1], piece_starts[1:]
        if self._order.shuffle_rows:
            blocks = lane.blocks_at(starts)
            block_starts = lane.block_starts.astype(np.int64)
            starts, stops = block_starts[blocks], block_starts[blocks + 1]
        numbers = np.full(len(starts), lane.number, dtype=np.int64)
        firsts, lasts = (self._visits.positions(lane.number, offsets) for offsets in (starts, stops - 1))
        groups = self._line_groups[lane.line_groups].astype(np.int64)
        return groups[::-1] if self._is_backwards(lane.number) else groups, numbers, firsts, lasts

    def _is_backwards(self, lane: int) -> bool:
        return self._order.shuffle_rows and lane % 2 == 1

    def _make_lane(self, number: int) -> _Lane:
        start, size = int(self._lane_starts[number]), int(self._lane_sizes[number])
        first = _place(self._line_starts, start, side="right") - 1
        line_groups = slice(first, _place(self._line_starts, start + size, side="left") if size else first)
        piece_starts = self._piece_starts(number, line_groups)
        shift = number * self._order.block_rows // self.lanes
        blocks = (piece_starts[:-1] + shift) // self._order.block_rows
        block_starts = np.append(piece_starts[:-1][np.diff(blocks, prepend=-1) != 0], size)
        return _Lane(number, start, size, line_groups, block_starts.astype(_smallest(size)))

    def _piece_starts(self, number: int, line_groups: slice) -> NDArray[np.int64]:
        """Return the offset in a lane of each of its row groups, then the lane's size.

        The row groups are in reading order. Shape (pieces + 1,).
        """
        start, size = int(self._lane_starts[number]), int(self._lane_sizes[number])
        borders = self._line_starts[line_groups.start : line_groups.stop + 1].astype(np.int64)
        # sizes: (pieces,) number of rows that the lane has of each row group
        sizes = np.diff(np.clip(borders - start, 0, size))
        piece_starts = np.zeros(len(borders), dtype=np.int64)
        np.cumsum(sizes[::-1] if self._is_backwards(number) else sizes, out=piece_starts[1:])
        return piece_starts

    def _make_block(self, number: int, block: int) -> _Block:
        """Shuffle the rows of a block, and return the block.

        A block has the row groups of a lane whose rows are shuffled together.

        Args:
            number: Number of the lane.
            block: Number of the block in the lane.
        """
        lane = self._lane(number)
        first, stop = lane.block_starts[block : block + 2].tolist()
        begin = lane.start + (lane.size - stop if self._is_backwards(number) else first)
        end = begin + stop - first
        state = mix(_ROWS, self._order.seed, self._epoch, number, block)
        scratch = self._taken_scratch(stop - first)
        made = self._block_of(begin, end, hashed_permutation(state, stop - first, scratch))
        self._scratch.append(scratch)
        return made

    def _taken_scratch(self, rows: int) -> NDArray[np.uint64]:
        """Take a scratch array from the list, so that no other thread uses it.

        Allocate one if the list is empty or the array is too small.
        """
        try:
            scratch = self._scratch.pop()
        except IndexError:
            return np.empty((2, rows), np.uint64)
        return scratch if scratch.shape[1] >= rows else np.empty((2, rows), np.uint64)

    def _block_of(self, begin: int, end: int, permuted: NDArray[np.int64]) -> _Block:
        """Return the block of the rows [begin, end) of the line, in shuffled order.

        The line is the sequence of all rows before they are shuffled. The array `permuted` may be overwritten
        afterwards.
        """
        low = _place(self._line_starts, begin, side="right") - 1
        high = _place(self._line_starts, end, side="left")
        groups = self._line_groups[low:high]
        # counts: (groups of the block,) number of rows that the block has of each row group
        # inside: (rows of the block,) row number of each row in its row group
        borders: NDArray[np.int64] = np.clip(self._line_starts[low : high + 1].astype(np.int64), begin, end)
        counts = borders[1:] - borders[:-1]
        # A small dtype saves memory, because each block stays in memory while its rows are read.
        dtype = np.int32 if self._rows_are_small else np.int64
        if len(groups) == 1:
            rows: NDArray[Any] = permuted.astype(dtype)
            np.add(rows, dtype(begin - int(self._line_starts[low])), out=rows)
            return _Block(groups, None, rows, rows, counts)
        inside = np.arange(begin, end, dtype=np.int64) - np.repeat(self._line_starts[low:high], counts)
        rows = inside.astype(dtype)[permuted]
        which = np.repeat(np.arange(len(groups), dtype=np.int64), counts)[permuted]
        return _Block(groups, groups[which], rows, rows[stable_order(which)], counts)


def _smallest(most: int) -> type[np.int32 | np.int64]:
    """Return the smaller one of two dtypes that can store integers up to `most`."""
    return np.int32 if most < 2**31 else np.int64


def _place(starts: NDArray[Any], row: int, *, side: Literal["left", "right"]) -> int:
    """Return the index of `row` in the sorted array `starts`, as by `searchsorted`.

    `row` is first cast to the dtype of `starts`, so that NumPy does not convert the array.
    """
    return int(starts.searchsorted(starts.dtype.type(row), side=side))
