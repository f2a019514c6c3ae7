"""The order of an epoch: lanes over hashed row groups, as arithmetic. Pure.

1. Row groups are laid on one line of N rows (`line_of_groups`), by a hash of (seed, epoch, row group), so that those
   which are live together come evenly from all parts of the dataset.
2. The line is cut, at exact rows, into L lanes whose sizes differ by at most one.
3. A lane is a run of blocks: as many whole row groups as begin within B rows of each other. The rows of a block are
   permuted by a hash of (seed, epoch, lane, block). The places where lane k begins a new block are shifted by k·B/L
   rows, so that lanes change blocks one after the other.
4. The epoch visits the lanes in turn (`petastore.plan.order.visits`): position p is row p // L of the lane of visit p %
   L.

So position → row is arithmetic; nothing but the row groups' sizes is ever materialised, and any position can be asked
for directly. A global batch is a run of positions; sorted by lane it is cut into equal shares for the ranks
(`petastore.plan.batches.tail`), which is why the batches, as sets, do not depend on how many ranks there are, while
each rank stays on its own lanes and so on its own row groups.

Two things keep memory at L blocks. Blocks end where row groups end, so nothing is kept of a row group beyond its
block; with blocks of exactly B rows, which were tried first, the row groups on both borders are kept as well. And
lanes run in turns forwards and backwards along the line, as an ox ploughs, so that both parts of a row group that is
cut by a lane border come at the same end of the epoch; with all lanes forwards, each of them is kept from the first
batch to the last.

An order that does not permute rows has one lane a shard, and each shard reads one contiguous part of the line,
forwards.

How row groups come to lie on the line: files are often sorted, by label, by day, by user. If the row groups that are
live together were drawn like lots, some parts of the dataset would be there twice and others not at all. So they are
drawn in strata: the dataset is cut, in file order, into L parts of equally many row groups; each lane takes one part,
in hashed order. Every batch then holds rows of all parts. Part s goes to the lane of visit (s + r) mod L, where r is a
hash that differs from epoch to epoch. Any R visits in a row belong to R ranks, so a rank has every R-th part: what one
rank sees is drawn as evenly from the dataset as what all see together.

Where row groups are dealt to ranks (`petastore.plan.order.dealing`), those of a rank lie side by side on the line.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.plan.order.dealing import dealt_line
from petastore.plan.order.grouped_rows import GroupedRows, Permutation, Runs, joined, places_by_key, stable_order
from petastore.plan.order.mix import hashed_permutation, mix, mix_array
from petastore.plan.order.visits import LaneRuns, LaneVisits, Rounds, visit_of_lane
from petastore.plan.request import Order

__all__ = ["EpochOrder", "Pieces", "line_of_groups"]

# What a hash is for: no two of these share a stream; `petastore.plan.mixture.mixed_line` has others.
_ROW_GROUPS, _ROWS, _TURN = 0, 1, 2

_SORTED_AT_ONCE = 32_768
"""Row groups of whole lanes that are sorted at once: their keys stay in the processor's cache, and in memory that the
process has already; fresh memory for millions of keys costs more than sorting them."""

_BLOCKS_BESIDES = 16
"""Blocks that are remembered besides one a lane: those that the next rows are of."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """The parts into which lane borders cut row groups; all arrays have one length."""

    groups: NDArray[np.int64]
    """Row group of each piece."""

    lanes: NDArray[np.int64]
    """Its lane."""

    first_positions: NDArray[np.int64]
    """The first position of its block: from there on its row group is needed."""

    last_positions: NDArray[np.int64]
    """The last position of its block."""

    def chosen(self, which: NDArray[np.bool_]) -> Pieces:
        """Some of them: those for which `which`, of the same length, is True."""
        return Pieces(self.groups[which], self.lanes[which], self.first_positions[which], self.last_positions[which])

    def of_lanes(self, lanes: range) -> Pieces:
        """Those of some lanes."""
        return self.chosen((self.lanes >= lanes.start) & (self.lanes < lanes.stop))


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Lane:
    number: int
    start: int  # its first row on the line
    size: int  # its rows
    line_groups: NDArray[np.int64]  # places on the line of the row groups that it has rows of, as it comes to them
    piece_starts: NDArray[np.int64]  # offsets at which these begin in the lane, and `size`: (pieces + 1,)
    block_starts: NDArray[np.int64]  # offsets at which blocks begin, and `size`: (blocks + 1,)

    def blocks_at(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.block_starts[:-1], offsets, side="right") - 1


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Block:
    distinct: NDArray[np.int32]  # its row groups, as they lie on the line
    which: NDArray[np.int32] | None  # row group of each row, in the order of the epoch; None where there is one
    rows: NDArray[Any]  # row inside its row group of each row, in the order of the epoch
    by_group: NDArray[Any]  # the same rows, row group after row group
    counts: NDArray[np.int64]  # rows of each row group

    def groups(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int32]:
        """Row groups of some of the rows."""
        return np.full(len(self.rows[rows]), self.distinct[0]) if self.which is None else self.which[rows]

    def read_order_of(self, group: int) -> NDArray[np.int64]:
        place = int(np.flatnonzero(self.distinct == group)[0])
        first = int(self.counts[:place].sum())
        return self.by_group[first : first + int(self.counts[place])].astype(np.int64, copy=False)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Part:
    lane: int
    block: _Block
    rows: slice  # of the block, in the order of the epoch


class EpochOrder:
    """Which row stands at which position of one epoch.

    Equal arguments give equal orders on every platform and release; `tests/plan/golden` pins them. Not thread-safe
    (it remembers the blocks that were asked for last).

    Args:
        rows: Rows of each row group, shape (groups,).
        order: What was asked.
        epoch: The epoch, from 0.
        visits: Which lane has its turn at which position; None goes round the lanes of the order.

    Example:
        >>> order = Order(seed=7, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> groups, rows = EpochOrder(np.array([3, 0, 3]), order, epoch=0).rows_at(np.arange(6))
        >>> list(zip(groups.tolist(), rows.tolist()))
        [(0, 0), (2, 0), (0, 1), (2, 1), (0, 2), (2, 2)]
    """

    def __init__(self, rows: NDArray[np.int64], order: Order, epoch: int, *, visits: LaneVisits | None = None) -> None:
        self.num_rows = int(rows.sum())
        self._visits = visits or Rounds(self.num_rows, min(order.lanes, max(self.num_rows, 1)))
        self._lane_sizes = self._visits.sizes
        self.lanes = len(self._lane_sizes)
        self._order = order
        self._epoch = epoch
        # line_groups: (filled,) row groups in line order; line_starts: (filled + 1,) their first rows on the line
        self._num_groups = len(rows)
        self._line_groups = line_of_groups(rows, order, epoch=epoch, lanes=self.lanes)
        self._line_starts = np.zeros(len(self._line_groups) + 1, dtype=np.int64)
        stops = self._line_starts[1:]  # in place: fresh memory for a million row groups costs more than the sums
        np.cumsum(rows.take(self._line_groups, out=stops, mode="clip"), out=stops)
        self._rows_are_small = int(rows.max(initial=0)) < 2**31
        self._lane_starts = np.cumsum(self._lane_sizes) - self._lane_sizes
        self._scratch = np.empty((2, 0), np.uint64)  # fresh memory costs as much as permuting a block
        self._lane = functools.cache(self._make_lane)
        self._block = functools.lru_cache(maxsize=self.lanes + _BLOCKS_BESIDES)(self._make_block)

    def rows_at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Row groups and rows inside them, at some positions.

        Args:
            positions: Positions in [0, num_rows), in any order, shape (n,).

        Returns:
            Row groups (int32) and rows inside the row group (int64), both of shape (n,).
        """
        return self.by_lane(positions).in_order()

    def by_lane(self, positions: NDArray[np.int64] | LaneRuns, *, read_lanes: range | None = None) -> GroupedRows:
        """The rows at some positions, lane after lane, and of each lane in the order of its blocks.

        Args:
            positions: Positions in [0, num_rows), in any order, shape (n,). Runs of lanes are faster, if the epoch goes
                round its lanes.
            read_lanes: The lanes in whose read order (see `read_order_of`) runs are counted; None is those of the runs
                of lanes.
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
        permutation = None if runs.targets is None else Permutation(runs.targets)
        lanes = zip(runs.own, runs.firsts.tolist(), runs.stops.tolist(), strict=True)
        if not self._order.shuffle_rows:
            starts = self._lane_starts.tolist()
            each = [self._run_of_line(starts[number] + first, starts[number] + stop) for number, first, stop in lanes]
            return joined(each, permutation)
        parts = [part for number, first, stop in lanes for part in self._parts_of_lane(number, first, stop)]
        if not parts:
            return joined([], permutation)
        if all(len(part.block.distinct) == 1 for part in parts):
            return GroupedRows.of_runs(self._runs_of_parts(parts, read_lanes), permutation)
        groups = np.concatenate([part.block.groups(part.rows) for part in parts])
        rows = np.concatenate([part.block.rows[part.rows] for part in parts], dtype=np.int64)
        return GroupedRows(groups, rows, permutation)

    def _parts_of_lane(self, number: int, first: int, stop: int) -> Iterator[_Part]:
        """The parts of blocks that hold the offsets [first, stop) of a lane."""
        lane = self._lane(number)
        block = int(np.searchsorted(lane.block_starts, first, side="right")) - 1
        while first < stop:
            begin, end = lane.block_starts[block : block + 2].tolist()
            yield _Part(number, self._block(number, block), slice(first - begin, min(stop, end) - begin))
            first, block = end, block + 1

    def _runs_of_parts(self, parts: Sequence[_Part], read_lanes: range) -> Runs:
        """Parts of blocks of one row group each, as runs of the read order of some lanes (see `read_order_of`)."""
        groups = np.array([part.block.distinct[0] for part in parts], dtype=np.int32)
        # Of a row group that lane borders cut, the parts of the lanes before come first.
        begins = np.maximum(self._line_starts[self._line_index[groups]], self._lane_starts[read_lanes.start])
        before = np.maximum(self._lane_starts[[part.lane for part in parts]] - begins, 0)
        firsts = before + np.array([part.rows.start for part in parts], dtype=np.int64)
        counts = np.array([part.rows.stop - part.rows.start for part in parts], dtype=np.int64)
        views = [part.block.rows[part.rows] for part in parts]
        return Runs(groups, firsts, counts, functools.partial(np.concatenate, views, dtype=np.int64))

    def _lane_rows(
        self, lane: _Lane, offsets: NDArray[np.int64], groups: NDArray[np.int32], rows: NDArray[np.int64]
    ) -> None:
        """Writes the row groups and rows at some offsets of a lane; ranges of offsets, which most are, are copied."""
        first, stop = int(offsets[0]), int(offsets[-1]) + 1
        if stop - first == len(offsets) and bool((np.diff(offsets) == 1).all()):
            parts = list(self._parts_of_lane(lane.number, first, stop))
            np.concatenate([part.block.groups(part.rows) for part in parts], out=groups)
            np.concatenate([part.block.rows[part.rows] for part in parts], out=rows)
            return
        blocks = lane.blocks_at(offsets)
        inside = offsets - lane.block_starts[blocks]
        for block, where in places_by_key(blocks):
            rows_there = self._block(lane.number, block)
            groups[where], rows[where] = rows_there.groups(inside[where]), rows_there.rows[inside[where]]

    def _on_line(self, line: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Row groups and rows inside them, at some places of the line."""
        # index: (n,) place of each row's row group on the line
        index = np.searchsorted(self._line_starts, line, side="right") - 1
        return self._line_groups[index], line - self._line_starts[index]

    def _run_of_line(self, first: int, stop: int) -> GroupedRows:
        """The rows of the places [first, stop) of the line: no row is looked for, as they lie side by side."""
        starts = self._line_starts
        low, high = int(starts.searchsorted(first, side="right")) - 1, int(starts.searchsorted(stop, side="left"))
        borders = starts[low : high + 1].copy()
        borders[0], borders[-1] = first, stop
        firsts = np.zeros(high - low, dtype=np.int64)
        firsts[:1] = first - starts[low]
        return GroupedRows.of_runs(Runs.of_file(self._line_groups[low:high], firsts, borders[1:] - borders[:-1]), None)

    def last_positions(self, groups: NDArray[np.int32], *, lanes: range) -> NDArray[np.int64]:
        """The last position of any block in some lanes with rows of each row group; -1 where those lanes have none."""
        places = self._line_index[groups]
        if self.lanes == 1 and 0 in lanes and not self._order.shuffle_rows:
            return self._visits.positions(0, self._line_starts[places + 1] - 1)
        return np.array([self._last_position(place, lanes) for place in places.tolist()], dtype=np.int64)

    def read_order_of(self, group: int, *, lanes: range) -> NDArray[np.int64] | None:
        """The rows of a row group in the order in which some lanes come to them, those of other lanes last.

        Returns:
            Every row of the row group once, shape (rows,); None where that is their order in the file.
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
        if lane.size == 0:
            return np.empty(0, dtype=np.int64)
        place = max(on_line.start - lane.start, 0)
        offset = lane.size - 1 - place if self._is_backwards(lane.number) else place
        return self._block(lane.number, int(lane.blocks_at(np.array([offset]))[0])).read_order_of(group)

    @once
    def _line_index(self) -> NDArray[np.int32]:
        inverse = np.full(self._num_groups, -1, dtype=np.int32)
        inverse[self._line_groups] = np.arange(len(self._line_groups), dtype=np.int32)
        return inverse

    def _last_position(self, line_index: int, lanes: range) -> int:
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
        """All row groups that have rows, cut at lane borders."""
        parts = [self._pieces_of(self._lane(number)) for number in range(self.lanes)]
        return Pieces(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _pieces_of(self, lane: _Lane) -> tuple[NDArray[np.int64], ...]:
        starts, stops = lane.piece_starts[:-1], lane.piece_starts[1:]
        if self._order.shuffle_rows:
            blocks = lane.blocks_at(starts)
            starts, stops = lane.block_starts[blocks], lane.block_starts[blocks + 1]
        numbers = np.full(len(starts), lane.number, dtype=np.int64)
        firsts, lasts = (self._visits.positions(lane.number, offsets) for offsets in (starts, stops - 1))
        return self._line_groups[lane.line_groups].astype(np.int64), numbers, firsts, lasts

    def _is_backwards(self, lane: int) -> bool:
        return self._order.shuffle_rows and lane % 2 == 1

    def _make_lane(self, number: int) -> _Lane:
        start, size = int(self._lane_starts[number]), int(self._lane_sizes[number])
        first = int(np.searchsorted(self._line_starts, start, side="right")) - 1
        stop = int(np.searchsorted(self._line_starts, start + size, side="left")) if size else first
        # sizes: (pieces,) rows that the lane has of each row group
        sizes = np.diff(np.clip(self._line_starts[first : stop + 1] - start, 0, size))
        line_groups = np.arange(first, stop)
        if self._is_backwards(number):
            line_groups, sizes = line_groups[::-1], sizes[::-1]
        piece_starts = np.concatenate([[0], np.cumsum(sizes)])
        shift = number * self._order.block_rows // self.lanes
        blocks = (piece_starts[:-1] + shift) // self._order.block_rows
        block_starts = np.append(piece_starts[:-1][np.diff(blocks, prepend=-1) != 0], size)
        return _Lane(number, start, size, line_groups, piece_starts, block_starts)

    def _make_block(self, number: int, block: int) -> _Block:
        """One block, in the order of the epoch."""
        lane = self._lane(number)
        first, stop = lane.block_starts[block : block + 2].tolist()
        begin = lane.start + (lane.size - stop if self._is_backwards(number) else first)
        end = begin + stop - first
        if self._scratch.shape[1] < stop - first:
            self._scratch = np.empty((2, stop - first), np.uint64)
        state = mix(_ROWS, self._order.seed, self._epoch, number, block)
        permuted = hashed_permutation(state, stop - first, self._scratch)  # there until the next block is made
        low = int(np.searchsorted(self._line_starts, begin, side="right")) - 1
        high = int(np.searchsorted(self._line_starts, end, side="left"))
        groups = self._line_groups[low:high]
        # counts: (groups of the block,) rows that the block has of each; inside: of each row, its number in its group
        borders: NDArray[np.int64] = np.clip(self._line_starts[low : high + 1], begin, end)
        counts = borders[1:] - borders[:-1]
        # Blocks are kept as long as they are read, and most rows have small numbers.
        dtype = np.int32 if self._rows_are_small else np.int64
        if len(groups) == 1:
            rows: NDArray[Any] = permuted.astype(dtype)
            np.add(rows, dtype(begin - int(self._line_starts[low])), out=rows)
            return _Block(groups, None, rows, rows, counts)
        inside = np.arange(begin, end, dtype=np.int64) - np.repeat(self._line_starts[low:high], counts)
        rows = inside.astype(dtype)[permuted]
        which = np.repeat(np.arange(len(groups), dtype=np.int64), counts)[permuted]
        return _Block(groups, groups[which], rows, rows[stable_order(which)], counts)


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
    if order.dealt_to is not None and order.dealt_to > 1:
        strata = max(lanes // order.dealt_to, 1) if order.shuffle_rows else 1
        return dealt_line(rows, order.dealt_to, hashed_for=(_ROW_GROUPS, order.seed, 0), strata=strata)
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
