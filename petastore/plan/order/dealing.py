"""Assignment of row groups to ranks that moves few row groups when the number of ranks changes. No I/O.

A single rank has all row groups. Each added rank takes row groups from every earlier rank, until all have equal shares;
no other row groups move. The assignment for any number of ranks is computed in this way, starting with one rank, so it
does not depend on the previous number of ranks. When the number of ranks changes,

* with more ranks, each existing rank keeps its row groups or gives some to new ranks;
* with fewer ranks, each remaining rank keeps its row groups and gets additional ones.

No other assignment with equal shares moves fewer row groups. This module assigns whole row groups. The exact border
between two ranks is a row (`petastore.plan.order.order`), and may be inside a row group; the rows beyond the border
then belong to the neighboring rank.

Row groups are assigned in the order of a sequence, the *deck*, in which neighbors of the dataset are far apart: row
groups are sorted by the fractional part of a multiple of the golden ratio. Any range of the deck has row groups from
all parts of the dataset.
"""

from __future__ import annotations

import bisect

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order.mix import mix, mix_array

__all__ = ["dealt_line", "owners"]

_GOLDEN = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio; an odd number, so that row groups have different sort keys."""


def owners(rows: NDArray[np.int64], ranks: int, *, shift: int = 0) -> NDArray[np.int64]:
    """Return the rank to which each row group is assigned, shape (groups,).

    Args:
        rows: Rows of each row group, shape (groups,).
        ranks: Number of ranks, at least 1.
        shift: Offset by which the deck is rotated, any integer in [0, 2⁶⁴).

    Example:
        >>> [owners(np.full(12, 10), ranks).tolist() for ranks in (2, 3)]
        [[0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1], [0, 1, 0, 2, 2, 0, 1, 2, 2, 1, 0, 1]]
    """
    numbers = np.arange(len(rows), dtype=np.uint64)
    deck = np.argsort(numbers * np.uint64(_GOLDEN) + np.uint64(shift), kind="stable")
    # starts: (groups + 1,) rows of the deck before each of its row groups
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(rows[deck], out=starts[1:])
    owner = np.zeros(len(rows), dtype=np.int64)
    for rank, hand in enumerate(_hands(memoryview(starts.data), ranks)):
        for first, stop in hand:
            owner[deck[first:stop]] = rank
    return owner


_Hand = list[tuple[int, int]]  # row groups of a rank: half-open ranges of the deck, of which the last shrinks first


def _hands(starts: memoryview, ranks: int) -> list[_Hand]:
    """Return the row groups of each rank; `starts` is the number of rows before each row group of the deck."""
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
    """Move row groups from `hand` to `incoming` until `hand` has about `due` rows.

    Returns:
        Number of rows that are left in `hand`, from `load` rows before.
    """
    while hand and load > due:
        first, stop = hand[-1]
        rest = load - (starts[stop] - starts[first])  # rows that would be left without this range
        # The range is split at the row-group border closest to the target.
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
    """Return the non-empty row groups ordered by rank.

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
