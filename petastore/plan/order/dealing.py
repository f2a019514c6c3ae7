"""Dealing: which row groups each rank keeps, so that few change hands when the number of ranks changes. Pure.

With one rank, it has all row groups. Each rank that comes in takes from every rank before it what these have too much
now, and nothing else changes hands. That is done over again, from one rank on, for any number of them: so who deals
needs not know how many there were before, and from any number of ranks to any other one,

* each rank that stays keeps what it has or gives some of it away, where there are more of them now;
* each rank that stays keeps what it has and gets some more, where there are fewer.

No dealing with equal shares moves less. Row groups are dealt whole, and to ranks in turn so that the border between two
of them lies as near as can be to where the line is cut at exact rows (`petastore.plan.order.order`): of the few row
groups on these borders, some rows go to the neighbour.

They are dealt from a deck in which neighbours of the dataset lie far apart: a row group's place in it is the fraction
of a multiple of the golden ratio. Any stretch of such a deck comes evenly from all parts of the dataset.
"""

from __future__ import annotations

import bisect

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order.mix import mix, mix_array

__all__ = ["dealt_line", "owners"]

_GOLDEN = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio, an odd number: no two row groups have one place."""


def owners(rows: NDArray[np.int64], ranks: int, *, shift: int = 0) -> NDArray[np.int64]:
    """The rank that each row group is dealt to, shape (groups,).

    Args:
        rows: Rows of each row group, shape (groups,).
        ranks: How many ranks there are, at least 1.
        shift: By how much the deck is turned, in [0, 2⁶⁴): any hash.

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


_Hand = list[tuple[int, int]]  # stretches of the deck, half-open; the last one is given away first


def _hands(starts: memoryview, ranks: int) -> list[_Hand]:
    """What each rank has of the deck."""
    total, hands = starts[-1], [[(0, len(starts) - 1)]]
    loads = [total]
    for count in range(2, ranks + 1):
        incoming: _Hand = []
        before = 0  # rows of the ranks before
        for rank, hand in enumerate(hands):
            loads[rank] = _give(hand, incoming, starts, loads[rank], (rank + 1) * total // count - before)
            before += loads[rank]
        hands.append(incoming)
        loads.append(total - before)
    return hands


def _give(hand: _Hand, incoming: _Hand, starts: memoryview, load: int, due: int) -> int:
    """Moves whole row groups from one hand to another until what is left is as near as can be to what is due."""
    while hand and load > due:
        first, stop = hand[-1]
        rest = load - (starts[stop] - starts[first])  # without this stretch
        # The stretch is cut where the border of a row group is nearest to what is due.
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
    """Row groups that have rows as they lie on the line: rank after rank.

    Args:
        rows: Rows of each row group, shape (groups,).
        ranks: How many ranks they are dealt to.
        hashed_for: What decides the order, as words to `mix`.
        strata: Parts of equally many row groups, in the order of the dataset, into which each rank's are divided. They
            lie one after the other, each in hashed order.

    Returns:
        Shape (row groups with rows,).

    Example:
        >>> dealt_line(np.full(6, 10), 2, hashed_for=(7,)).tolist()
        [1, 3, 0, 2, 5, 4]
    """
    state = mix(*hashed_for)
    filled = np.flatnonzero(rows)
    owner = owners(rows, ranks, shift=state)[filled]
    # inside: (filled,) number of each row group among its rank's
    by_owner = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=ranks)
    inside = np.empty(len(filled), dtype=np.int64)
    inside[by_owner] = np.arange(len(filled)) - np.repeat(np.cumsum(counts) - counts, counts)
    hashes = mix_array(state, filled.astype(np.uint64))
    return filled[np.lexsort((hashes, inside * strata // counts[owner], owner))].astype(np.int32)
