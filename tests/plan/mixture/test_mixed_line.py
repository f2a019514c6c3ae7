"""Tests of mixture weights: reduced to small integers, and exact in every period and on every lane."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.plan.mixture.mixed_line import (
    LONGEST_PERIOD,
    MixedLine,
    SourceTurns,
    common_lanes,
    mixed_line,
    proportions,
)
from petastore.plan.order.visits import lane_of_visit


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1, 1], (1, 1)),
        ([4, 2], (2, 1)),
        ([0.5, 0.25, 0.25], (2, 1, 1)),
        ([0.1] * 10, (1,) * 10),
        ([Fraction(1, 3), 1], (1, 3)),
        ([np.float32(0.25), np.int64(1)], (1, 4)),
        ([1e300, 1e300], (1, 1)),
        ([10**400, 10**400], (1, 1)),
        ([0.999, 0.001], (999, 1)),
        ([4095, 1], (4095, 1)),
        ([10**6, 100], (10**4, 1)),
        ([1, 1e-4], (10**4, 1)),
        ([1, 1e-6], (10**6, 1)),
        ([3, 0.0002], (15_000, 1)),
        # Rounded to 4,096 positions, no weight is wrong by more than 1 %.
        ([1_000_003, 7_654_321], (473, 3623)),
        ([2.5], (1,)),
    ],
)
def test_mixture_weights_are_reduced_to_the_smallest_integers(weights: list[Any], expected: tuple[int, ...]) -> None:
    assert proportions(weights) == expected


@given(st.lists(st.floats(1e-12, 1e12) | st.floats(1e-3, 1), min_size=1, max_size=40))
def test_mixture_weights_are_rounded_within_a_bound(weights: list[float]) -> None:
    total = sum(map(Fraction, weights))
    try:
        found = proportions(weights)
    except InvalidArgumentError:
        assert min(map(Fraction, weights)) / total < Fraction(1, 10_000)
        return
    period = sum(found)
    assert period <= LONGEST_PERIOD
    assert min(found) >= 1
    for weight, count in zip(weights, found, strict=True):
        assert abs(Fraction(count, period) / (Fraction(weight) / total) - 1) <= Fraction(101, 10_000)


@pytest.mark.parametrize("weights", [[1, 1e-9], [10**9, 1], [10**400, 1], [1, 1e-5, 1.23e-6]])
def test_mixture_weights_that_no_period_represents_raise(weights: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"got a share of .* for source [12]\. Increase .* at least 0\.0001"):
        proportions(weights)


@pytest.mark.parametrize("weights", [[], [0], [-1, 2], ["1"], [None], [True], [float("inf")], [1] * 1025, [1j]])
def test_invalid_mixture_weights_raise(weights: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        proportions(weights)


shapes = st.tuples(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.sampled_from([1, 2, 3, 6, 7, 12, 48]))


@given(shapes, st.integers(-(2**70), 2**70))
def test_each_cycle_and_lane_of_a_mixture_has_sources_by_weight(shape: tuple[list[int], int], seed: int) -> None:
    counts, lanes = tuple(shape[0]), shape[1]
    period = sum(counts)
    stretch = period * lanes
    sources, _ = MixedLine(counts, lanes, seed).at(np.arange(3 * stretch))
    for one in sources.reshape(-1, period):
        assert tuple(np.bincount(one, minlength=len(counts))) == counts
    lane = lane_of_visit(lanes)[np.arange(stretch) % lanes]
    for many in sources.reshape(-1, stretch):
        for number in range(lanes):
            assert tuple(np.bincount(many[lane == number], minlength=len(counts))) == counts


@given(shapes, st.integers(0, 10**6))
def test_source_counts_and_positions_in_a_mixture_agree(shape: tuple[list[int], int], first: int) -> None:
    line = mixed_line(tuple(shape[0]), shape[1], 3)
    sources, places = line.at(np.arange(first, first + 60))
    for number, (source, place) in enumerate(zip(sources.tolist(), places.tolist(), strict=True), start=first):
        assert line.position(source, place) == number
        assert line.count(source, number) == place
        assert sum(line.counts(number)) == number


@given(shapes, st.integers(1, 500), st.integers(1, 400))
def test_rows_per_lane_of_a_mixture_source_are_counted_across_epochs(
    shape: tuple[list[int], int], rows: int, num_rows: int
) -> None:
    line = mixed_line(tuple(shape[0]), shape[1], 3)
    lanes = min(shape[1], 6)
    turns = SourceTurns(line.turns(0, lanes), lanes, rows)
    places = np.arange(1200)
    lane, before = turns.at(places)
    for number in range(lanes):
        assert before[lane == number].tolist() == list(range(int((lane == number).sum())))
        assert turns.places(number, before[lane == number]).tolist() == places[lane == number].tolist()
    assert turns.before(1100).tolist() == np.bincount(lane[:1100], minlength=lanes).tolist()
    visits = turns.of_epoch(2, num_rows)
    assert int(visits.sizes.sum()) == num_rows
    own_lanes, offsets = visits.at(np.arange(num_rows))
    assert (offsets < visits.sizes[own_lanes]).all()
    assert len({*zip(own_lanes.tolist(), offsets.tolist(), strict=True)}) == num_rows
    for position in range(0, num_rows, 37):
        again = visits.positions(int(own_lanes[position]), offsets[position : position + 1])
        assert again.tolist() == [position]


def test_source_shares_are_balanced_at_every_position_of_a_mixture() -> None:
    line = mixed_line((50, 30, 20), 12, 9)
    sources, _ = line.at(np.arange(5000))
    for source, share in enumerate((0.5, 0.3, 0.2)):
        given_so_far = np.cumsum(sources == source)
        assert np.abs(given_so_far - share * np.arange(1, 5001)).max() < 4


def test_mixture_lane_count_is_a_common_multiple_of_source_lanes_if_small() -> None:
    assert common_lanes([48, 6, 4, 1], 3) == 48
    assert common_lanes([4, 6], 3) == 12
    assert common_lanes([1009, 1013, 1019], 8) == 1019
    assert common_lanes([10**7], 2) == 2**20


def test_mixture_source_order_is_unchanged_between_versions() -> None:
    sources, _ = mixed_line((3, 1, 2), 4, 5).at(np.arange(24))
    assert sources.tolist() == [2, 1, 0, 2, 0, 0, 2, 1, 0, 2, 0, 0, 0, 2, 1, 0, 2, 0, 0, 2, 1, 0, 2, 0]
