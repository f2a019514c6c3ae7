"""Source order of a mixture: the source of the row at each position. No I/O.

The order is computed from a table. Weights are rounded to integers w (`proportions`) with the sum P, the *period*. In
the sequence of all rows of a mixture (the *line*), each period of P positions has exactly w[s] positions of source s:

1. Inside a period, positions are sorted by (j + u) / w[s] for the j-th position of source s, with a hash u in [0, 1).
   Each source is therefore spread evenly, within one position of its share, but its positions are not periodic.
2. Periods are rotated by hashes, so that in every P·L positions each of the L lanes of the mixture also has exactly
   w[s] positions of source s. A lane is one of the sequences of rows that the mixture interleaves; position p belongs
   to the lane of visit p % L, as in `petastore.plan.order.order`. Each rank reads its own lanes and therefore also has
   every source in proportion.
3. A table has one or more such sequences of P·L positions, each with other hashes, at least 4,096 positions in total.
   The line repeats the table.

Computing how many positions a source has before a given position, or its j-th position, needs one division and one
table lookup, without replay. Each lane of a source consists of the positions of this source in some adjacent lanes of
the mixture. The lanes of a source therefore have almost equal sizes. `SourceTurns` counts the rows of each lane of a
source.
"""

from __future__ import annotations

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
    "SourceTurns",
    "common_lanes",
    "fractions_of",
    "mixed_line",
    "proportions",
]

_USUAL_PERIOD = 4096
"""Maximum period, unless a weight would then be wrong by more than 1 %."""

LONGEST_PERIOD = 2**20
"""Maximum period: the number of positions after which each source has had its share."""

_MAX_ERROR = 0.01
"""Maximum error of the share of a source, as a part of this share."""

_SAFE_SHARE = 0.0001
"""Smallest share of a source that is always possible: 105 of 1,048,576 positions, so that rounding is below 1 %.

A smaller share is possible if some period has nearly an integer number of positions of each source."""

_PERIODS_AT_A_TIME = 256
"""Number of periods that are compared at once; each takes memory for all sources."""

MOST_SOURCES = 1024
"""Maximum number of sources of a mixture."""

_EXACT = 1e-9
"""Maximum distance from an integer at which a number counts as an integer.

The number is that of a source's positions in a period."""

_TABLE = 4096
"""Minimum number of positions after which the order of sources repeats.

Long periods and many lanes need more positions."""

_LARGEST_TABLE = 2**21
"""Maximum number of positions after which the order of sources repeats.

It also limits the number of lanes of a mixture."""

# First word that is hashed for each purpose. All first words differ, also from those of other modules, so that the
# hashes are unrelated.
_PLACES, _ROTATIONS, BATCHES = 16, 17, 18


def proportions(weights: Sequence[Any]) -> tuple[int, ...]:
    """Return small integers in the ratio of some weights, one for each source.

    Shares are wᵢ / Σw of the exact weights. The result is share · P for the smallest period P ≤ 4096 for which all
    these products are integers within 1e-9. If no such period exists, P is 4096. A source that would get less than one
    position then gets one. The other positions are divided among the other sources in proportion, rounded down. The
    remaining positions are given to the sources with the largest remainders; among equal remainders, the first source
    is preferred.

    If a source's share of these 4096 positions differs from its exact share by more than 1 %, another period is chosen:
    the shortest of at most 1,048,576 positions in which the smallest share is nearly an integer, and all shares are
    within 1 %.

    Args:
        weights: Numbers above 0: int, float or `fractions.Fraction`; 1 to 1024 of them.

    Raises:
        InvalidArgumentError: A weight is not a finite number above 0, or too small compared with the others; or there
            are no weights or too many.

    Example:
        >>> proportions([0.7, 0.2, 0.1]), proportions([1 / 3, 2 / 3]), proportions([50, 100]), proportions([8])
        ((7, 2, 1), (1, 2), (1, 2), (1,))
        >>> proportions([1_000_003, 7_654_321]), proportions([1_000_000, 100])
        ((473, 3623), (10000, 1))
    """
    shares = _shares(weights)
    as_floats = np.array([float(share) for share in shares])
    periods = np.arange(1, _USUAL_PERIOD + 1)
    # ideal: (4096, sources) positions of each source in a period of each length
    ideal = periods[:, None] * as_floats
    whole = np.rint(ideal)
    fits = (np.abs(ideal - whole) <= _EXACT).all(axis=1) & (whole >= 1).all(axis=1)
    if fits.any():
        return tuple(whole[np.argmax(fits)].astype(int).tolist())
    usual = _rounded(shares)
    return usual if _errors(np.array([usual]), as_floats)[0] <= _MAX_ERROR else _rounded_to_1_percent(as_floats)


def _errors(counts: NDArray[Any], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest relative error of a source's share in each of some periods, shape (periods,).

    Args:
        counts: Positions of each source in each period, shape (periods, sources).
        shares: Exact share of each source, shape (sources,).
    """
    # A weight such as 1e-320 has the share 0.
    in_periods = counts / counts.sum(axis=1, keepdims=True)
    return np.abs(in_periods / np.maximum(shares, np.finfo(np.float64).tiny) - 1).max(axis=1)


def _rounded_to_1_percent(shares: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the positions of each source in the shortest period in which all shares are within 1 %.

    In each of the compared periods, the source with the smallest share has nearly an integer number of positions.
    """
    least = shares.min()
    for first in range(1, int(LONGEST_PERIOD * least) + 1, _PERIODS_AT_A_TIME):
        periods = np.rint(np.arange(first, first + _PERIODS_AT_A_TIME) / least)
        counts = np.rint(periods[:, None] * shares)
        fits = (_errors(counts, shares) <= _MAX_ERROR) & (counts.sum(axis=1) <= LONGEST_PERIOD)
        if fits.any():
            return tuple(counts[np.argmax(fits)].astype(int).tolist())
    raise InvalidArgumentError(
        f"weights must give each source a share that a pattern of {LONGEST_PERIOD:,} rows represents within 1 %, got a "
        f"share of {least:.3g} for source {int(np.argmin(shares))}. Increase this weight to a share of at least "
        f"{_SAFE_SHARE}, or leave the source out"
    )


def _rounded(shares: Sequence[Fraction]) -> tuple[int, ...]:
    """Round shares to integers above 0 whose sum is 4096.

    The ratio of the integers is close to that of the shares.
    """
    small: set[int] = set()
    while True:
        rest = _USUAL_PERIOD - len(small)
        total = sum(share for source, share in enumerate(shares) if source not in small)
        wanted = [Fraction(1) if source in small else share * rest / total for source, share in enumerate(shares)]
        smaller = {source for source, positions in enumerate(wanted) if positions < 1}
        if not smaller:
            break
        small |= smaller
    counts = [math.floor(positions) for positions in wanted]
    by_remainder = sorted(range(len(counts)), key=lambda source: (counts[source] - wanted[source], source))
    for source in by_remainder[: _USUAL_PERIOD - sum(counts)]:
        counts[source] += 1
    return tuple(counts)


def _shares(weights: Sequence[Any]) -> list[Fraction]:
    """Return the exact share of each source.

    Raise an error if a weight or the number of weights is invalid.
    """
    if not 1 <= len(weights) <= MOST_SOURCES:
        raise InvalidArgumentError(
            f"weights must have 1 to {MOST_SOURCES:,} numbers, one per source, got {len(weights):,}"
        )
    exact = [_exact(weight, source) for source, weight in enumerate(weights)]
    return [weight / sum(exact) for weight in exact]


def _exact(weight: Any, source: int) -> Fraction:
    """Return the weight of a source as an exact fraction.

    Raise an error if the weight is not a finite number above 0.
    """
    exact = Fraction(0)
    if isinstance(weight, numbers.Rational):
        exact = Fraction(weight)
    elif isinstance(weight, numbers.Real) and math.isfinite(weight):
        exact = Fraction(float(weight))
    if exact <= 0 or isinstance(weight, bool):
        raise InvalidArgumentError(
            f"weights must be finite numbers above 0, got {weight!r} for source {source}. Leave out sources that are "
            "not to be read"
        )
    return exact


def fractions_of(state: int, words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Hash each integer of an array to a fraction in [0, 1), shape (n,).

    Args:
        state: Hash of all integers, such as a seed, that are combined with each of `words`; from `mix`.
        words: Integers to hash, shape (n,).
    """
    return (mix_array(state, words.astype(np.uint64)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class MixedLine:
    """Source of the row at each position of a mixture.

    A position is the index of a row in an epoch of the mixture. Thread-safe and immutable. `mixed_line` returns objects
    from a cache.

    Args:
        proportions: Ratio of the sources, as integers. In each *period* (P positions, where P is the sum of these
            integers), source s has `proportions[s]` positions.
        lanes: Number of lanes of the mixture. A lane is one of the sequences of rows that the mixture interleaves.
        seed: Seed of the order of sources.

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
        """Number of positions of each source in a period."""
        self.lanes = lanes
        """Number of lanes of the mixture.

        A lane is one of the sequences of rows that the mixture interleaves; lanes are divided among ranks."""
        period = sum(proportions)
        stretches = -(-_TABLE // (period * lanes))
        self._sources = np.concatenate([self._stretch(number, seed) for number in range(stretches)])
        self._places = [np.flatnonzero(self._sources == source) for source in range(len(proportions))]
        # before: (table,) for each position of the table, the number of earlier positions of the same source
        self._before = np.empty(len(self._sources), dtype=np.int64)
        for places in self._places:
            self._before[places] = np.arange(len(places))
        self._counts = np.array([len(places) for places in self._places], dtype=np.int64)
        # A small dtype makes lookups faster, of which there are millions per second.
        self._sources = self._sources.astype(np.int16)

    def _stretch(self, number: int, seed: int) -> NDArray[np.int64]:
        """Return the source at each of period · lanes consecutive positions.

        Among these positions, each lane of the mixture has all sources in their exact proportions.

        Args:
            number: Number of such ranges before this range; it is hashed, so that each range has another order.
            seed: Seed of the order.
        """
        period = sum(self.proportions)
        keys = np.concatenate(
            [
                (np.arange(count) + fractions_of(mix(_PLACES, seed, number, source), np.arange(count))) / count
                for source, count in enumerate(self.proportions)
            ]
        )
        owners = np.repeat(np.arange(len(self.proportions)), self.proportions)
        table = owners[np.argsort(keys, kind="stable")]
        # L consecutive positions belong to L different lanes. If d is the greatest common divisor of L and the period,
        # a lane would only have those places of the period that are equal modulo d. The period is therefore rotated by
        # each number below d, so that every lane has all places of the period equally often.
        shared = math.gcd(period, self.lanes)
        rotations = np.array(
            [hashed_permutation(mix(_ROTATIONS, seed, number, place), shared) for place in range(self.lanes // shared)]
        )
        positions = np.arange(period * self.lanes)
        again, inside = np.divmod(positions, period * self.lanes // shared)
        return table[(positions % period + rotations[inside // period, again]) % period]

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Return each position's source, and how many earlier positions this source has.

        Both arrays have shape (n,).
        """
        rounds, inside = _divided(positions, len(self._sources))
        sources = self._sources.take(inside, mode="clip")
        places = self._counts.take(sources, mode="clip")
        places *= rounds
        places += self._before.take(inside, mode="clip")
        return sources, places

    def count(self, source: int, position: int) -> int:
        """Return how many of the first `position` positions belong to a source."""
        rounds, inside = divmod(position, len(self._sources))
        return rounds * int(self._counts[source]) + int(np.searchsorted(self._places[source], inside))

    def counts(self, position: int) -> tuple[int, ...]:
        """Return how many of the first `position` positions belong to each source."""
        return tuple(self.count(source, position) for source in range(len(self.proportions)))

    def counts_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many positions before each given position belong to each source.

        Shape (positions, sources).
        """
        rounds, inside = _divided(positions, len(self._sources))
        in_table = np.stack([np.searchsorted(places, inside) for places in self._places], axis=1)
        return rounds[:, None] * self._counts + in_table

    def position(self, source: int, place: int) -> int:
        """Return the position in the mixture of a row of a source.

        `place` is the number of the row in the source's order, from 0.
        """
        rounds, inside = divmod(place, int(self._counts[source]))
        return rounds * len(self._sources) + int(self._places[source][inside])

    def positions(self, source: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the mixture of several rows of a source.

        This is the inverse of `at`. `places` are the numbers of the rows in the source's order, from 0, shape (n,).
        """
        rounds, inside = _divided(places, int(self._counts[source]))
        return rounds * len(self._sources) + self._places[source][inside]

    @property
    def table_size(self) -> int:
        """Number of positions in the table; after them, the source order repeats."""
        return len(self._sources)

    def places(self, source: int) -> NDArray[np.int64]:
        """Return the positions of a source before the order of sources repeats, ascending, shape (positions,)."""
        return self._places[source]

    def turns(self, source: int, lanes: int) -> NDArray[np.int64]:
        """Return the lane of a source to which each of its positions belongs; (positions,).

        The positions are those of `places(source)`. A lane is one of several sequences of rows that are interleaved. A
        lane of the source consists of its positions in some adjacent lanes of the mixture.

        Args:
            source: Number of the source.
            lanes: Number of lanes of the source.
        """
        return lane_of_visit(self.lanes)[self._places[source] % self.lanes] * lanes // self.lanes


@functools.lru_cache(maxsize=8)
def mixed_line(proportions: tuple[int, ...], lanes: int, seed: int) -> MixedLine:
    """Return the source order of a mixture, from a cache if possible.

    Equal arguments give equal orders on every platform and in every release.
    """
    return MixedLine(proportions, lanes, seed)


def common_lanes(lanes: Sequence[int], period: int) -> int:
    """Return the number of lanes of a mixture.

    A lane is one of the sequences of rows that the mixture interleaves. The number is the least common multiple of
    `lanes`. It is smaller if the order of sources would otherwise repeat only after more than 2,097,152 positions.

    Args:
        lanes: Number of lanes of each source.
        period: Number of positions in which the proportions of the sources are exact.

    Example:
        >>> common_lanes([48, 6, 4], 3), common_lanes([4095, 4096], 4)
        (48, 4096)
    """
    most = max(_LARGEST_TABLE // period, 1)
    multiple = math.lcm(*lanes)
    return multiple if multiple <= most else min(max(lanes), most)


class SourceTurns:
    """Lane from which each row of a source comes, through all epochs of a mixture.

    A lane is one of the sequences of row groups that the source interleaves. The *place* of a row is the number of rows
    that the source has yielded before it since the first epoch. In each epoch of the mixture, the source yields `rows`
    rows, from its lanes in the same order.

    Args:
        turns: Lane of each of the first n rows of a mixture epoch, shape (n,). Until the end of the epoch, the same
            sequence of lanes is repeated.
        lanes: Number of lanes of the source.
        rows: Number of rows that the source yields in an epoch of the mixture, at least 1.
    """

    def __init__(self, turns: NDArray[np.int64], lanes: int, rows: int) -> None:
        self.lanes = lanes
        self.rows = rows
        self._turns = turns
        self._in_table = np.bincount(turns, minlength=lanes).astype(np.int64)
        # by_lane: indices in `turns` of lane 0, then of lane 1, …; those of a lane begin at lane_starts[lane]
        self._by_lane = np.argsort(turns, kind="stable")
        self._lane_starts = np.cumsum(self._in_table) - self._in_table
        self._turns_before = np.empty(len(turns), dtype=np.int64)
        self._turns_before[self._by_lane] = np.arange(len(turns)) - np.repeat(self._lane_starts, self._in_table)
        self.in_epoch = self._in_one_epoch(rows)
        """Number of rows that each lane has in an epoch of the mixture, shape (lanes,).

        Lanes are the sequences of row groups that the source interleaves."""
        self.before = functools.lru_cache(maxsize=4)(self._before)
        """Function that returns how many of the source's first rows each lane has; cached.

        Its argument is the number of these rows, counted since the first epoch of the mixture. Its result has shape
        (lanes,). Lanes are the sequences of row groups that the source interleaves."""

    def _in_one_epoch(self, place: int) -> NDArray[np.int64]:
        """Return how many of the source's first `place` rows in an epoch come from each lane.

        The rows are counted in an epoch of the mixture; shape (lanes,).
        """
        if self.lanes == 1:
            return np.array([place])
        rounds, inside = divmod(place, len(self._turns))
        return rounds * self._in_table + np.bincount(self._turns[:inside], minlength=self.lanes)

    def _before(self, place: int) -> NDArray[np.int64]:
        """Compute, without the cache, how many of the first `place` rows come from each lane.

        These are rows of the source since the first epoch of the mixture. Shape (lanes,), read-only.
        """
        epochs, inside = divmod(place, self.rows)
        turns = epochs * self.in_epoch + self._in_one_epoch(inside)
        turns.flags.writeable = False
        return turns

    def at(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lane of the row at each place, and the row's index in this lane.

        Both arrays have shape (n,).
        """
        epochs, in_epoch = _divided(places, self.rows)
        rounds, inside = _divided(in_epoch, len(self._turns))
        lanes = self._turns[inside]
        return lanes, epochs * self.in_epoch[lanes] + rounds * self._in_table[lanes] + self._turns_before[inside]

    def places(self, lane: int, turns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of rows of a lane, shape (n,): the inverse of `at`.

        `turns` are the indices of the rows in the lane, from 0.
        """
        in_epoch, in_table = max(int(self.in_epoch[lane]), 1), max(int(self._in_table[lane]), 1)
        epochs, left = _divided(turns, in_epoch)
        rounds, inside = _divided(left, in_table)
        return epochs * self.rows + rounds * len(self._turns) + self._by_lane[self._lane_starts[lane] + inside]

    def of_epoch(self, epoch: int, num_rows: int) -> LaneVisits:
        """Return the lane of each row in one epoch of the source.

        `num_rows` is the number of rows of a source epoch.
        """
        return _EpochTurns(self, epoch * num_rows, num_rows)


def _divided(numbers: NDArray[np.int64], by: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the quotients and remainders of non-negative integers.

    Remainders are computed from quotients, because this is many times faster in NumPy.
    """
    quotients = numbers // by
    return quotients, numbers - quotients * by


class _EpochTurns(LaneVisits):
    """Lane of each row in one epoch of a source.

    These are the rows [start, start + num_rows) of the source, counted since the first epoch of the mixture.
    """

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
