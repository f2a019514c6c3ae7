"""Runs of lanes are the positions that looking each of them up would find."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.order.lane_runs import LaneRuns
from petastore.plan.order.visits import lane_of_visit


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 99), st.integers(1, 24), st.integers(0, 2**31)
)
def test_runs_are_the_positions_of_their_lanes_sorted_by_lane_in_each_batch(
    sizes: list[int], start: int, lanes: int, seed: int
) -> None:
    first, stop = sorted(np.random.RandomState(seed).randint(0, lanes + 1, 2).tolist())
    own = range(first, max(stop, first + 1)) if first < lanes else range(lanes)
    borders = start + np.cumsum([0, *sizes])
    runs, offsets = LaneRuns.between(borders, lanes=lanes, own=own)
    expected = []
    for begin, end in itertools.pairwise(borders):
        positions = np.arange(begin, end)
        of_lane = lane_of_visit(lanes)[positions % lanes]
        in_order = np.argsort(of_lane, kind="stable")
        expected.append(positions[in_order][np.isin(of_lane[in_order], own)])
    assert runs.positions().tolist() == np.concatenate(expected).tolist()
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
