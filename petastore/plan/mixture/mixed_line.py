"""The line of a mixture: which source stands at which position, as arithmetic over a table. Pure.

Weights become small whole numbers w (`proportions`) with the sum P, the *period*. Along the line, each run of P
positions that begins at a multiple of P holds exactly w[s] positions of source s:

1. Inside a period, the j-th position of source s stands where (j + u) / w[s] sorts it, u being a hash in [0, 1). So the
   sources come evenly, within one position each of their share, but without a beat.
2. Periods are rotated by hashes, chosen so that in every P·L positions each of the L lanes of the mixture, too, has
   exactly w[s] positions of source s: position p belongs to the lane of visit p % L, as in
   `petastore.plan.order.order`. So each rank, which has lanes of its own, has every source in proportion.
3. A table holds as many such P·L positions, each with hashes of its own, as make some thousands; the line repeats it.

How many positions of a source lie before a position, and which position is its j-th, is a division and a look into the
table: nothing is replayed. The lanes of a source have their turns when its positions come, so they are lanes of almost
equal size, which `SourceTurns` counts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.plan.order.mix import hashed_permutation, mix, mix_array
from petastore.plan.order.visits import LaneVisits, lane_of_visit

__all__ = [
    "BATCHES",
    "LONGEST_PERIOD",
    "MOST_SOURCES",
    "MixedLine",
    "SourceRows",
    "SourceTurns",
    "common_lanes",
    "fractions_of",
    "mixed_line",
    "proportions",
]

LONGEST_PERIOD = 4096
"""Positions within which proportions are exact, at most."""

MOST_SOURCES = 1024
"""Sources of a mixture, at most."""

_EXACT = 1e-9
_TABLE = 4096
"""Positions of the table at least; more where a period and the lanes need more."""

_LARGEST_TABLE = 2**21

# What a hash is for; `petastore.plan.order.order` has those below.
_PLACES, _ROTATIONS, BATCHES = 16, 17, 18


def proportions(weights: Sequence[Any]) -> tuple[int, ...]:
    """Small whole numbers in the proportion of some weights.

    With shares wᵢ / Σw, of the exact values of the weights: the smallest period P ≤ 4096 for which every share · P is a
    whole number, give or take 1e-9, gives the numbers share · P. Where there is none, P is 4096: sources that would get
    less than one position get one, the others divide the rest in proportion, rounded down, and the positions that are
    left go to the largest remainders, first come first served among equals.

    Args:
        weights: Numbers above 0: int, float or `fractions.Fraction`; 1 to 1024 of them.

    Raises:
        InvalidArgumentError: A weight is no finite number above 0, or there are none or too many.

    Example:
        >>> proportions([0.7, 0.2, 0.1]), proportions([1 / 3, 2 / 3]), proportions([50, 100]), proportions([8])
        ((7, 2, 1), (1, 2), (1, 2), (1,))
        >>> proportions([1_000_003, 7_654_321, 1])
        (473, 3622, 1)
    """
    shares = _shares(weights)
    periods = np.arange(1, LONGEST_PERIOD + 1)
    # ideal: (4096, sources) positions of each source in a period of each length
    ideal = periods[:, None] * np.array([float(share) for share in shares])
    whole = np.rint(ideal)
    fits = (np.abs(ideal - whole) <= _EXACT).all(axis=1) & (whole >= 1).all(axis=1)
    if fits.any():
        return tuple(whole[np.argmax(fits)].astype(int).tolist())
    return _rounded(shares)


def _rounded(shares: Sequence[Fraction]) -> tuple[int, ...]:
    small: set[int] = set()
    while True:
        rest = LONGEST_PERIOD - len(small)
        total = sum(share for source, share in enumerate(shares) if source not in small)
        wanted = [Fraction(1) if source in small else share * rest / total for source, share in enumerate(shares)]
        smaller = {source for source, positions in enumerate(wanted) if positions < 1}
        if not smaller:
            break
        small |= smaller
    counts = [math.floor(positions) for positions in wanted]
    by_remainder = sorted(range(len(counts)), key=lambda source: (counts[source] - wanted[source], source))
    for source in by_remainder[: LONGEST_PERIOD - sum(counts)]:
        counts[source] += 1
    return tuple(counts)


def _shares(weights: Sequence[Any]) -> list[Fraction]:
    if not 1 <= len(weights) <= MOST_SOURCES:
        raise InvalidArgumentError(
            f"{len(weights):,} weights were given, but a mixture has 1 to {MOST_SOURCES:,} sources"
        )
    exact = [_exact(weight, source) for source, weight in enumerate(weights)]
    return [weight / sum(exact) for weight in exact]


def _exact(weight: Any, source: int) -> Fraction:
    exact = Fraction(0)
    if isinstance(weight, numbers.Rational):
        exact = Fraction(weight)
    elif isinstance(weight, numbers.Real) and math.isfinite(weight):
        exact = Fraction(float(weight))
    if exact <= 0 or isinstance(weight, bool):
        raise InvalidArgumentError(
            f"the weight of source {source} is {weight!r}, but a weight is a finite number above 0; leave out what is "
            "not to be read"
        )
    return exact


def fractions_of(state: int, words: NDArray[np.int64]) -> NDArray[np.float64]:
    """A fraction in [0, 1) hashed from each word, shape (n,); `state` is what `mix` gave for the words before."""
    return (mix_array(state, words.astype(np.uint64)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SourceRows:
    """The rows of one source among some rows of a mixture."""

    source: int
    """Its number."""

    targets: NDArray[np.int64]
    """Where they stand among these rows, ascending, shape (n,)."""

    places: NDArray[np.int64]
    """How many rows the source gives before each of them in this epoch of the mixture, shape (n,)."""


class MixedLine:
    """Which source stands at which position.

    Thread-safe and immutable; get one from `mixed_line`, which remembers the last ones.

    Example:
        >>> line = mixed_line((2, 1), 1, seed=0)
        >>> sources, places = line.at(np.arange(9))
        >>> sources.tolist(), places.tolist()
        ([0, 1, 0, 1, 0, 0, 1, 0, 0], [0, 0, 1, 1, 2, 3, 2, 4, 5])
        >>> line.count(1, 6), line.position(1, 2)
        (2, 6)
    """

    def __init__(self, proportions: tuple[int, ...], lanes: int, seed: int) -> None:
        self.proportions = proportions
        """Positions of each source in a period."""
        self.lanes = lanes
        """Lanes of the mixture, among which its positions go round."""
        period = sum(proportions)
        stretches = -(-_TABLE // (period * lanes))
        self._sources = np.concatenate([self._stretch(number, seed) for number in range(stretches)])
        self._places = [np.flatnonzero(self._sources == source) for source in range(len(proportions))]
        # before: (table,) how many positions of the same source lie before each position of the table
        self._before = np.empty(len(self._sources), dtype=np.int64)
        for places in self._places:
            self._before[places] = np.arange(len(places))
        self._counts = np.array([len(places) for places in self._places], dtype=np.int64)
        self._sources = self._sources.astype(np.int16)  # few bytes: millions of rows a second look into it

    def _stretch(self, number: int, seed: int) -> NDArray[np.int64]:
        """Period · lanes positions, in which each lane has each source in proportion: their sources."""
        period = sum(self.proportions)
        keys = np.concatenate(
            [
                (np.arange(count) + fractions_of(mix(_PLACES, seed, number, source), np.arange(count))) / count
                for source, count in enumerate(self.proportions)
            ]
        )
        owners = np.repeat(np.arange(len(self.proportions)), self.proportions)
        table = owners[np.argsort(keys, kind="stable")]
        # Round after round a lane meets the places ≡ its visit (mod shared) of a period, in L / shared periods; then
        # all comes again, `shared` times. Each time such a period is rotated by another number below `shared`.
        shared = math.gcd(period, self.lanes)
        rotations = np.array(
            [hashed_permutation(mix(_ROTATIONS, seed, number, place), shared) for place in range(self.lanes // shared)]
        )
        positions = np.arange(period * self.lanes)
        again, inside = np.divmod(positions, period * self.lanes // shared)
        return table[(positions % period + rotations[inside // period, again]) % period]

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Of each position: its source, and how many positions of that source lie before it."""
        rounds, inside = _divided(positions, len(self._sources))
        sources = self._sources.take(inside, mode="clip")
        places = self._counts.take(sources, mode="clip")
        places *= rounds
        places += self._before.take(inside, mode="clip")
        return sources, places

    def count(self, source: int, position: int) -> int:
        """How many positions of a source lie before a position."""
        rounds, inside = divmod(position, len(self._sources))
        return rounds * int(self._counts[source]) + int(np.searchsorted(self._places[source], inside))

    def counts(self, position: int) -> tuple[int, ...]:
        """How many positions of each source lie before a position."""
        return tuple(self.count(source, position) for source in range(len(self.proportions)))

    def counts_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same of several positions, shape (positions, sources)."""
        rounds, inside = _divided(positions, len(self._sources))
        in_table = np.stack([np.searchsorted(places, inside) for places in self._places], axis=1)
        return rounds[:, None] * self._counts + in_table

    def position(self, source: int, place: int) -> int:
        """The position before which a source has `place` positions, and which is its own."""
        rounds, inside = divmod(place, int(self._counts[source]))
        return rounds * len(self._sources) + int(self._places[source][inside])

    @property
    def table_size(self) -> int:
        """Positions after which the line repeats itself."""
        return len(self._sources)

    def places(self, source: int) -> NDArray[np.int64]:
        """The positions of a source in the table, ascending, shape (positions,)."""
        return self._places[source]

    def turns(self, source: int, lanes: int) -> NDArray[np.int64]:
        """The lane of each position of a source in the table, if the source has so many lanes; shape (positions,).

        A lane of the source belongs to lanes of the mixture that are neighbours.
        """
        return lane_of_visit(self.lanes)[self._places[source] % self.lanes] * lanes // self.lanes


@functools.lru_cache(maxsize=8)
def mixed_line(proportions: tuple[int, ...], lanes: int, seed: int) -> MixedLine:
    """The line of a mixture; equal arguments give equal lines on every platform and release."""
    return MixedLine(proportions, lanes, seed)


def common_lanes(lanes: Sequence[int], period: int) -> int:
    """Lanes of a mixture whose sources have so many lanes: a multiple of all, unless the table grew too large.

    Example:
        >>> common_lanes([48, 6, 4], 3), common_lanes([4095, 4096], 4)
        (48, 4096)
    """
    most = max(_LARGEST_TABLE // period, 1)
    multiple = math.lcm(*lanes)
    return multiple if multiple <= most else min(max(lanes), most)


class SourceTurns:
    """Which lane of a source has its turn at which place, through all epochs of a mixture.

    A *place* counts the rows that the source has given since the first epoch. In each epoch of the mixture it gives
    `rows` of them, and its lanes have their turns in the same order again.

    Args:
        turns: Lanes that have their turns one after the other, again and again, shape (n,).
        lanes: Lanes of the source.
        rows: Rows that it gives in an epoch of the mixture, at least 1.
    """

    def __init__(self, turns: NDArray[np.int64], lanes: int, rows: int) -> None:
        self.lanes = lanes
        self.rows = rows
        self._turns = turns
        self._in_table = np.bincount(turns, minlength=lanes).astype(np.int64)
        # by_lane: the turns of lane 0, of lane 1, …; those of a lane begin at lane_starts[lane]
        self._by_lane = np.argsort(turns, kind="stable")
        self._lane_starts = np.cumsum(self._in_table) - self._in_table
        self._turns_before = np.empty(len(turns), dtype=np.int64)
        self._turns_before[self._by_lane] = np.arange(len(turns)) - np.repeat(self._lane_starts, self._in_table)
        self.in_epoch = self._in_one_epoch(rows)
        """Turns that each lane has in an epoch of the mixture, shape (lanes,)."""
        self.before = functools.lru_cache(maxsize=4)(self._before)
        """Turns that each lane had before a place, read-only, shape (lanes,); it is asked about the same ones again."""

    def _in_one_epoch(self, place: int) -> NDArray[np.int64]:
        if self.lanes == 1:
            return np.array([place])
        rounds, inside = divmod(place, len(self._turns))
        return rounds * self._in_table + np.bincount(self._turns[:inside], minlength=self.lanes)

    def _before(self, place: int) -> NDArray[np.int64]:
        epochs, inside = divmod(place, self.rows)
        turns = epochs * self.in_epoch + self._in_one_epoch(inside)
        turns.flags.writeable = False
        return turns

    def at(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each place: the lane that has its turn, and how many it had before."""
        epochs, in_epoch = _divided(places, self.rows)
        rounds, inside = _divided(in_epoch, len(self._turns))
        lanes = self._turns[inside]
        return lanes, epochs * self.in_epoch[lanes] + rounds * self._in_table[lanes] + self._turns_before[inside]

    def places(self, lane: int, turns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of some turns of a lane, given by how many it had before."""
        in_epoch, in_table = max(int(self.in_epoch[lane]), 1), max(int(self._in_table[lane]), 1)
        epochs, left = _divided(turns, in_epoch)
        rounds, inside = _divided(left, in_table)
        return epochs * self.rows + rounds * len(self._turns) + self._by_lane[self._lane_starts[lane] + inside]

    def of_epoch(self, epoch: int, num_rows: int) -> LaneVisits:
        """The visits of one epoch of the source, which has so many rows."""
        return _EpochTurns(self, epoch * num_rows, num_rows)


def _divided(numbers: NDArray[np.int64], by: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Quotients and remainders; NumPy divides by one number many times faster than it takes remainders."""
    quotients = numbers // by
    return quotients, numbers - quotients * by


class _EpochTurns(LaneVisits):
    """The turns of one epoch of a source: those of the places [start, start + num_rows)."""

    def __init__(self, turns: SourceTurns, start: int, num_rows: int) -> None:
        self._turns = turns
        self._start = start
        self._before = turns.before(start)
        self._sizes = turns.before(start + num_rows) - self._before

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self._sizes

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if len(self._sizes) == 1:
            return np.zeros_like(positions), positions
        lanes, turns = self._turns.at(positions + self._start)
        return lanes, turns - self._before[lanes]

    def positions(self, lane: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(self._sizes) == 1:
            return offsets
        return self._turns.places(lane, offsets + self._before[lane]) - self._start
