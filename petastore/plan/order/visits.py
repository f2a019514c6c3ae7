"""Lane order: the sequence in which an epoch takes rows from its lanes. No I/O.

A *lane* is one of the sequences of row groups that an epoch interleaves. A *visit* takes one row from one lane. The
order of visits is chosen so that ranks do not read each other's lanes. Let R be a divisor of the number of lanes L, and
divide the lanes into R equal ranges, one for each rank. Any R consecutive visits that begin at a multiple of R then
include each range exactly once. A global batch has a multiple of R rows, so each rank gets exactly the rows of its own
L/R lanes, for any batch size. (In ascending order of lanes, this would only be true if L divides the global batch;
otherwise a rank would have to read a row group of its neighbor for one row.)

For the numbers of lanes that `shuffled_lanes` can choose, a search found such orders, and this module lists them. For
other numbers, the order is computed by reversing the digits of the visit's number, prime by prime (van der Corput,
1935). This order has the property only if R is a product of the smallest prime factors of L: for L = 15, if R is 3 or
15, but not if R is 5.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from petastore.lazy import once
from petastore.plan.order.mix import counting

__all__ = ["LaneRuns", "LaneVisits", "Rounds", "lane_of_visit", "spreads_evenly", "visit_of_lane"]

# For each number of lanes: the lane of each visit (visit n takes the n-th row of every round through all lanes).
_FOUND = {
    6: "4 0 2 3 5 1",
    12: """
        1 11 5 8 7 2 10 3 6 0 4 9
    """,
    24: """
        14 7 19 0 11 22 5 16 9 20 12 2 8 21 3 15 18 4 13 6 23 10 17 1
    """,
    48: """
        1 40 23 32 13 24 46 7 17 28 36 10 35 5 19 43 9 26 15 44 20 39 3 31 45 8 22 29 38 0 12 34 16 27 6 42 18
        33 4 41 25 11 14 47 30 2 21 37
    """,
    96: """
        0 66 42 84 30 52 23 77 37 94 10 58 83 25 63 15 33 70 6 90 49 46 19 72 4 88 54 40 28 79 60 12 68 21 86
        38 57 2 81 26 75 45 64 8 51 16 35 93 78 18 32 48 11 91 43 69 5 62 87 27 74 13 56 39 95 31 3 67 55 47
        20 82 85 7 36 61 73 29 53 14 92 44 65 17 24 59 80 9 76 41 1 71 50 34 89 22
    """,
}


@functools.lru_cache(maxsize=64)
def lane_of_visit(lanes: int) -> NDArray[np.int64]:
    """Return the sequence in which an epoch takes one row from each of its lanes.

    The lane numbers are read-only and have shape (lanes,).

    Example:
        >>> lane_of_visit(8).tolist()
        [0, 4, 2, 6, 1, 5, 3, 7]
        >>> (lane_of_visit(12).reshape(4, 3) * 3 // 12).tolist()
        [[0, 2, 1], [2, 1, 0], [2, 0, 1], [0, 1, 2]]
    """
    searched = _FOUND.get(lanes)
    order = _reversed_digits(lanes) if searched is None else np.array(searched.split(), dtype=np.int64)
    order.flags.writeable = False
    return order


@functools.lru_cache(maxsize=64)
def visit_of_lane(lanes: int) -> NDArray[np.int64]:
    """Return the index of each lane in the sequence of `lane_of_visit`: its inverse.

    The array is read-only and has shape (lanes,).
    """
    order = np.argsort(lane_of_visit(lanes))
    order.flags.writeable = False
    return order


@functools.lru_cache(maxsize=256)
def spreads_evenly(lanes: int, ranks: int) -> bool:
    """Return whether each rank gets exactly the rows of its own lanes in full batches.

    Lanes are the sequences of row groups that an epoch interleaves; batches are assumed to begin at a multiple of
    `ranks`. Each rank then gets only its own rows if two conditions are true:

    * The number of lanes is a multiple of the number of ranks.
    * If the sequence of `lane_of_visit` is cut into pieces of `ranks` lanes, each piece has one lane of each rank.

    Example:
        >>> spreads_evenly(48, 24), spreads_evenly(48, 5), spreads_evenly(15, 5)
        (True, False, False)
    """
    if lanes % ranks:
        return False
    owners = lane_of_visit(lanes).reshape(-1, ranks) * ranks // lanes
    return bool((np.sort(owners, axis=1) == np.arange(ranks)).all())


class LaneVisits(Protocol):
    """Interface: the lane from which the row at each position of an epoch comes.

    A lane is one of the sequences of row groups that the epoch interleaves.
    """

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of rows of each lane (interleaved sequence of row groups); (lanes,)."""

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lane at each position of the epoch, and the row's index in this lane.

        Both arrays have shape (n,).
        """

    def positions(self, lane: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the epoch of rows of a lane: the inverse of `at`.

        `offsets` are the indices of the rows in the lane, shape (n,).
        """


class Rounds(LaneVisits):
    """Round-robin order of lanes: one row from each lane, then again from each lane.

    A lane is one of the sequences of row groups that an epoch interleaves.

    Example:
        >>> rounds = Rounds(num_rows=11, lanes=4)
        >>> rounds.sizes.tolist()
        [3, 3, 3, 2]
        >>> [array.tolist() for array in rounds.at(np.array([0, 1, 6, 10]))], rounds.positions(1, np.arange(2)).tolist()
        ([[0, 2, 1, 1], [0, 0, 1, 2]], [2, 6])
    """

    def __init__(self, num_rows: int, lanes: int) -> None:
        self._lanes = lanes
        # Visit v takes the rows at positions v, v + L, v + 2·L, …, so the lanes of the first N % L visits have one row
        # more than the other lanes.
        self._sizes = np.full(lanes, num_rows // lanes, dtype=np.int64)
        self._sizes[visit_of_lane(lanes) < num_rows % lanes] += 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of rows of each lane, shape (lanes,); the numbers differ by at most one."""
        return self._sizes

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lane at each position, and the row's index in this lane, both (n,)."""
        return lane_of_visit(self._lanes)[positions % self._lanes], positions // self._lanes

    def positions(self, lane: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the epoch of rows of a lane; shape (n,).

        `offsets` are the indices of the rows in the lane.
        """
        return offsets * self._lanes + visit_of_lane(self._lanes)[lane]


@dataclasses.dataclass(frozen=True, eq=False)
class LaneRuns:
    """Rows that consecutive batches take from a range of lanes, sorted by lane.

    A lane is one of the sequences of rows that an epoch interleaves.
    """

    lanes: int
    """Total number of lanes of the epoch."""

    own: range
    """Lanes to which the rows belong."""

    firsts: NDArray[np.int64]
    """Index of the first row in each lane of `own`, shape (own,).

    Rows of a lane are counted from the start of the epoch."""

    stops: NDArray[np.int64]
    """Index after the last row in each lane of `own`, shape (own,)."""

    counts: NDArray[np.int64] | None = None
    """Number of rows of each lane of `own` in each batch, shape (batches, own).

    None if rows are requested lane by lane, without batches."""

    @once
    def targets(self) -> NDArray[np.int64] | None:
        """Index of each row in batch order, for rows sorted by lane, shape (rows,).

        None if the rows are already in batch order. Computed at the first access.
        """
        if self.counts is None or len(self.own) == 1 or len(self.counts) == 1:
            return None
        return _targets(self.counts)

    @classmethod
    def between(cls, borders: NDArray[np.int64], *, lanes: int, own: range) -> tuple[LaneRuns, NDArray[np.int64]]:
        """Return the rows that some batches take from given lanes.

        Inside a batch, rows are sorted by lane.

        Args:
            borders: Batch i has the positions [borders[i], borders[i + 1]) of the epoch, shape (batches + 1,).
            lanes: Total number of lanes.
            own: Lanes whose rows to return.

        Returns:
            The runs, and the start of each batch among their rows in batch order, shape (batches + 1,).

        Example:
            >>> runs, offsets = LaneRuns.between(np.array([0, 4, 8]), lanes=4, own=range(2))
            >>> runs.firsts.tolist(), runs.stops.tolist(), runs.targets.tolist(), offsets.tolist()
            ([0, 0], [2, 2], [0, 2, 1, 3], [0, 2, 4])
            >>> runs.positions().tolist()
            [0, 2, 4, 6]
        """
        visits = visit_of_lane(lanes)[own.start : own.stop]
        # turns: (batches + 1, own) number of rows of each lane before each border
        # counts: (batches, own) number of rows of each lane in each batch
        turns = np.maximum(-((visits - borders[:, None]) // lanes), 0)
        counts = turns[1:] - turns[:-1]
        offsets = np.zeros(len(borders), dtype=np.int64)
        np.cumsum(counts.sum(axis=1), out=offsets[1:])
        return cls(lanes, own, turns[0], turns[-1], counts), offsets

    def positions(self) -> NDArray[np.int64]:
        """Return the position in the epoch of each row, in batch order; shape (rows,)."""
        visits = visit_of_lane(self.lanes)[self.own.start : self.own.stop]
        sizes = self.stops - self.firsts
        turns = np.repeat(self.firsts - (np.cumsum(sizes) - sizes), sizes)
        turns += counting(len(turns))
        lane_after_lane = turns * self.lanes + np.repeat(visits, sizes)
        if self.targets is None:
            return lane_after_lane
        positions = np.empty_like(lane_after_lane)
        positions[self.targets] = lane_after_lane
        return positions


def _targets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute `LaneRuns.targets` (index of each row in batch order) from its `counts`."""
    # The rows that a batch has of a lane are adjacent both in batch order and in lane order, so only the first of them
    # is looked up. begins: (own · batches,) index in batch order of this first row
    of_batches = counts.reshape(-1)
    begins = (np.cumsum(of_batches) - of_batches).reshape(counts.shape).T.reshape(-1)
    sizes = counts.T.reshape(-1)
    targets = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    targets += counting(len(targets))
    return targets


def _reversed_digits(lanes: int) -> NDArray[np.int64]:
    """Compute the sequence of `lane_of_visit` for a number of lanes without a table.

    Entry n is n with its mixed-radix digits reversed; the radices are the prime factors of `lanes`. Shape (lanes,).
    """
    visits, order, weight = np.arange(lanes, dtype=np.int64), np.zeros(lanes, dtype=np.int64), lanes
    for prime in _primes(lanes):
        weight //= prime
        visits, digits = np.divmod(visits, prime)
        order += digits * weight
    return order


def _primes(number: int) -> list[int]:
    """Return the prime factors of a number, ascending, with repeats."""
    primes, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            primes.append(divisor)
            number //= divisor
        divisor += 1
    return [*primes, number] if number > 1 else primes
