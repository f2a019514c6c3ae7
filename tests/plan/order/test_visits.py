"""Visits are permutations, and spread out as promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.order.visits import lane_of_visit, spreads_evenly, visit_of_lane


@given(st.integers(1, 300))
def test_each_lane_is_visited_once_a_round(lanes: int) -> None:
    order = lane_of_visit(lanes)
    assert sorted(order.tolist()) == list(range(lanes))
    assert order[visit_of_lane(lanes)].tolist() == list(range(lanes))


@pytest.mark.parametrize("lanes", [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96])
def test_any_number_of_ranks_that_divides_the_lanes_has_lanes_of_its_own(lanes: int) -> None:
    for ranks in [ranks for ranks in range(1, lanes + 1) if lanes % ranks == 0]:
        assert spreads_evenly(lanes, ranks), f"{ranks} ranks"
        for run in (lane_of_visit(lanes).reshape(-1, ranks) * ranks // lanes).tolist():
            assert sorted(run) == list(range(ranks))


def test_orders_of_visits_never_change() -> None:
    assert lane_of_visit(12).tolist() == [1, 11, 5, 8, 7, 2, 10, 3, 6, 0, 4, 9]
    assert lane_of_visit(10).tolist() == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]


def test_orders_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        lane_of_visit(48)[0] = 1
    assert np.array_equal(lane_of_visit(48), lane_of_visit(48))
