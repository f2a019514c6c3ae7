"""Order of row groups in an epoch, hashed by seed and epoch. No I/O.

All row groups in this order are the *line*. It is divided into L *lanes*: sequences of row groups that are read
concurrently, so that each batch has rows of all lanes.

The order is stratified, because files are often sorted by label, day or user. If the row groups in memory at one time
were drawn randomly, some parts of the dataset would occur twice and others not at all. Therefore the dataset is
divided, in file order, into L parts with equal numbers of row groups; each lane takes one part, in hashed order. Every
batch then has rows of all parts. An epoch takes rows from its lanes in a fixed sequence
(`petastore.plan.order.visits`). Part s is assigned to lane number (s + r) mod L of this sequence, where r is a hash
that differs from epoch to epoch. Consecutive lanes of the sequence belong to different ranks, so each of R ranks has
every R-th part. The rows of each rank therefore also come evenly from the whole dataset.

Row groups can be assigned to ranks (`Order.dealt_to`), such that few row groups move when the number of ranks changes;
the row groups of a rank are then adjacent on the line. A single rank has all row groups. Each added rank takes row
groups from every earlier rank, until all have equal shares; no other row groups move. The assignment for any number of
ranks is computed in this way, starting with one rank, so it does not depend on the previous number of ranks. When the
number of ranks changes,

* with more ranks, each existing rank keeps its row groups or gives some to new ranks;
* with fewer ranks, each remaining rank keeps its row groups and gets additional ones.

No other assignment with equal shares moves fewer row groups. This module assigns whole row groups. The exact border
between two ranks is a row (`petastore.plan.order.order`), and may be inside a row group; the rows beyond the border
then belong to the neighboring rank.

Row groups are assigned to ranks in the order of a sequence, the *deck*, in which neighbors of the dataset are far
apart: row groups are sorted by the fractional part of a multiple of the golden ratio. Any range of the deck has row
groups from all parts of the dataset.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order.mix import hashed_permutation, mix, mix_array
from petastore.plan.order.visits import visit_of_lane
from petastore.plan.request import Order

if TYPE_CHECKING:
    from petastore.plan.row_group_parts import RowGroupParts

__all__ = ["dealt_line", "line_of_groups", "line_of_parts", "owners"]

# First word that is hashed for each purpose; other modules hash other first words, so that the hashes are unrelated.
_ROW_GROUPS, _TURN = 0, 2

_SORTED_AT_ONCE = 32_768
"""Maximum number of row groups that are sorted at once, in whole lanes.

Their keys then stay in the CPU cache and in reused memory. Allocating memory for millions of keys costs more than
sorting them."""


def line_of_groups(rows: NDArray[np.int64], order: Order, *, epoch: int, lanes: int) -> NDArray[np.int32]:
    """Return the non-empty row groups in epoch order.

    The order is shuffled by seed and epoch, or it is file order.

    Args:
        rows: Rows of each row group, shape (groups,).
        order: Requested order.
        epoch: Number of the epoch, from 0.
        lanes: Number of lanes (sequences of row groups that are read concurrently) into which the order is divided.

    Returns:
        Numbers of the row groups, shape (row groups with rows,).

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


def line_of_parts(
    rows: NDArray[np.int64], parts: RowGroupParts, order: Order, *, epoch: int, lanes: int
) -> NDArray[np.int32]:
    """Return the non-empty parts of row groups in epoch order, as part numbers.

    The parts of one row group stay adjacent, in file order. For the arguments, see `line_of_groups`; here, `rows` has
    an entry for each part.
    """
    line = parts.of_line(line_of_groups(parts.of_groups(rows), order, epoch=epoch, lanes=lanes))
    return line[rows[line] > 0]


def _line_of_filled(groups: int, order: Order, epoch: int, lanes: int) -> NDArray[np.int32]:
    """Return the order in an epoch of row groups that all have rows; shape (groups,).

    `groups` is the number of row groups.
    """
    if not order.shuffle_row_groups:
        return np.arange(groups, dtype=np.int32)
    hashed_for = (order.seed, epoch if order.reshuffle == "epoch" else 0)
    if not order.shuffle_rows:
        return hashed_permutation(mix(_ROW_GROUPS, *hashed_for), groups).astype(np.int32)
    return _in_strata(groups, lanes, hashed_for)


def _in_strata(groups: int, lanes: int, hashed_for: tuple[int, int]) -> NDArray[np.int32]:
    """Return a shuffled order of row groups: each lane has one part of the dataset.

    A lane is one of the sequences of row groups that an epoch interleaves; a part is contiguous in file order. The row
    groups of the first lane come first. Shape (groups,).
    """
    # borders: (lanes + 1,) first row group of each part; part s has the row groups n with n * lanes // groups == s
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
    """Sort keys of row groups, by lane (interleaved sequence of row groups) and hash.

    A key has the lane in its high bits, the hash in the middle and the row group's number in its low bits. All keys
    differ, so the sort need not be stable.
    """

    def __init__(self, state: int, groups: int, lanes: int) -> None:
        self._state = state
        self._lane_bits = (lanes - 1).bit_length()
        self._low_bits = np.uint64((1 << max(groups - 1, 0).bit_length()) - 1)

    def sorted(self, numbers: NDArray[np.int64], lanes: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return row group numbers sorted by lane, then by hash, shape (n,).

        Args:
            numbers: Numbers of the row groups, shape (n,).
            lanes: Lane of each row group, shape (n,).
        """
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


_GOLDEN = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio.

It is odd, so that all row groups have different sort keys."""


def owners(rows: NDArray[np.int64], ranks: int, *, shift: int = 0) -> NDArray[np.int64]:
    """Return the rank to which each row group is assigned, shape (groups,).

    Args:
        rows: Rows of each row group, shape (groups,).
        ranks: Number of ranks, at least 1.
        shift: Offset that is added to the sort keys of the deck (the order in which row groups are assigned, see the
            module); an integer in [0, 2⁶⁴).

    Example:
        >>> [owners(np.full(12, 10), ranks).tolist() for ranks in (2, 3)]
        [[0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1], [0, 1, 0, 2, 2, 0, 1, 2, 2, 1, 0, 1]]
    """
    numbers = np.arange(len(rows), dtype=np.uint64)
    deck = np.argsort(numbers * np.uint64(_GOLDEN) + np.uint64(shift), kind="stable")
    # starts: (groups + 1,) number of rows before each row group of the deck, then the number of all rows
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(rows[deck], out=starts[1:])
    owner = np.zeros(len(rows), dtype=np.int64)
    for rank, hand in enumerate(_hands(memoryview(starts.data), ranks)):
        for first, stop in hand:
            owner[deck[first:stop]] = rank
    return owner


# Row groups of a rank, as half-open ranges of the deck. A rank gives row groups away from the end of the last range.
_Hand = list[tuple[int, int]]


def _hands(starts: memoryview, ranks: int) -> list[_Hand]:
    """Return the row groups of each rank, as ranges of the deck.

    The deck is the order in which row groups are assigned to ranks.

    Args:
        starts: Number of rows before each row group of the deck, and the number of all rows, shape (groups + 1,).
        ranks: Number of ranks.
    """
    total, hands = starts[-1], [[(0, len(starts) - 1)]]
    loads = [total]
    for count in range(2, ranks + 1):
        incoming: _Hand = []
        before = 0  # number of rows of the preceding ranks
        for rank, hand in enumerate(hands):
            loads[rank] = _give(hand, incoming, starts, loads[rank], (rank + 1) * total // count - before)
            before += loads[rank]
        hands.append(incoming)
        loads.append(total - before)
    return hands


def _give(hand: _Hand, incoming: _Hand, starts: memoryview, load: int, due: int) -> int:
    """Move row groups from a rank to a new rank until about `due` rows remain.

    Args:
        hand: Row groups of the rank that gives, as ranges of the deck (the order of assignment); changed in place.
        incoming: Row groups of the new rank; changed in place.
        starts: As in `_hands`.
        load: Number of rows in `hand`.
        due: Number of rows that should remain in `hand`.

    Returns:
        Number of rows that remain in `hand`.
    """
    while hand and load > due:
        first, stop = hand[-1]
        rest = load - (starts[stop] - starts[first])  # rows that would be left without this range
        # Only whole row groups move, so the range is split at the row-group border closest to the target.
        wanted = starts[first] + due - rest
        cut = bisect.bisect_left(starts, wanted, first, stop)
        if cut > first and wanted - starts[cut - 1] <= starts[cut] - wanted:
            cut -= 1
        if cut == stop:
            return load
        hand.pop()
        incoming.append((cut, stop))
        load -= starts[stop] - starts[cut]
        if cut > first:
            hand.append((first, cut))
            return load
    return load


def dealt_line(
    rows: NDArray[np.int64], ranks: int, *, hashed_for: tuple[int, ...], strata: int = 1
) -> NDArray[np.int32]:
    """Return the non-empty row groups sorted by the rank to which they are assigned.

    Args:
        rows: Rows of each row group, shape (groups,).
        ranks: Number of ranks.
        hashed_for: Integers that are hashed to the order.
        strata: Number of equal parts, in dataset order, into which each rank's row groups are divided. The parts follow
            each other, each in hashed order.

    Returns:
        Numbers of the row groups, shape (row groups with rows,).

    Example:
        >>> dealt_line(np.full(6, 10), 2, hashed_for=(7,)).tolist()
        [1, 3, 0, 2, 5, 4]
    """
    state = mix(*hashed_for)
    filled = np.flatnonzero(rows)
    owner = owners(rows, ranks, shift=state)[filled]
    # inside: (filled,) index of each row group within its rank
    by_owner = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=ranks)
    inside = np.empty(len(filled), dtype=np.int64)
    inside[by_owner] = np.arange(len(filled)) - np.repeat(np.cumsum(counts) - counts, counts)
    hashes = mix_array(state, filled.astype(np.uint64))
    return filled[np.lexsort((hashes, inside * strata // counts[owner], owner))].astype(np.int32)
