"""Tests of the order in which lanes take turns, and of rows looked up by runs of lanes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import Order, Shard
from petastore.plan.batches.epoch_batches import lanes_of
from petastore.plan.mixture.mixed_line import SourceTurns, mixed_line
from petastore.plan.order.order import EpochOrder
from petastore.plan.order.visits import LaneRuns, lane_of_visit, spreads_evenly, visit_of_lane
from tests.laws.plan_laws import check_runs_are_their_positions, inventories, orders, uneven_inventories


@given(st.integers(1, 300))
def test_interleaving_reads_from_each_lane_once_per_round(lanes: int) -> None:
    order = lane_of_visit(lanes)
    assert sorted(order.tolist()) == list(range(lanes))
    assert order[visit_of_lane(lanes)].tolist() == list(range(lanes))


@pytest.mark.parametrize("lanes", [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96])
def test_each_rank_has_its_own_lanes_if_ranks_divide_their_number(lanes: int) -> None:
    for ranks in [ranks for ranks in range(1, lanes + 1) if lanes % ranks == 0]:
        assert spreads_evenly(lanes, ranks), f"{ranks} ranks"
        for run in (lane_of_visit(lanes).reshape(-1, ranks) * ranks // lanes).tolist():
            assert sorted(run) == list(range(ranks))


def test_lane_order_is_unchanged_between_versions() -> None:
    assert lane_of_visit(12).tolist() == [1, 11, 5, 8, 7, 2, 10, 3, 6, 0, 4, 9]
    assert lane_of_visit(10).tolist() == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]


def test_lane_orders_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        lane_of_visit(48)[0] = 1
    assert np.array_equal(lane_of_visit(48), lane_of_visit(48))


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 99), st.integers(1, 24), st.integers(0, 2**31)
)
def test_lane_runs_are_sorted_by_lane_in_each_batch(sizes: list[int], start: int, lanes: int, seed: int) -> None:
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


shares = st.tuples(st.sampled_from([1, 2, 3, 5, 8]), st.integers(0, 7))
datasets = inventories() | uneven_inventories(max_groups=300)


@given(datasets, orders(), st.integers(0, 3), shares, st.lists(st.integers(1, 5000), max_size=5))
def test_rows_looked_up_by_runs_equal_rows_looked_up_one_by_one(
    inventory: Inventory, order: Order, epoch: int, share: tuple[int, int], cuts: list[int]
) -> None:
    """The lanes take turns; batches have any size and start, and cover all lanes or those of one rank."""
    found = EpochOrder(inventory.rows, order, epoch)
    own = lanes_of(Shard(share[1] % share[0], share[0]), found.lanes)
    borders = np.sort(np.array([0, *cuts, found.num_rows]) % (found.num_rows + 1))
    runs, _ = LaneRuns.between(borders, lanes=found.lanes, own=own)
    check_runs_are_their_positions(found, runs, runs.positions())
    check_runs_are_their_positions(found, runs, runs.positions(), read_lanes=range(found.lanes))


@given(datasets, orders(), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 3), st.data())
def test_rows_of_a_mixture_source_looked_up_by_runs_equal_those_one_by_one(
    inventory: Inventory, order: Order, weights: list[int], epoch: int, data: st.DataObject
) -> None:
    """The lanes of a mixture source do not take turns evenly, because they follow the turns of the source."""
    assume(inventory.num_rows)
    turns = SourceTurns(
        mixed_line(tuple(weights), 48, 3).turns(0, order.lanes), order.lanes, data.draw(st.integers(1, 2000))
    )
    visits = turns.of_epoch(epoch, inventory.num_rows)
    found = EpochOrder(inventory.rows, order, epoch, visits=visits)
    own = range(*sorted(data.draw(st.lists(st.integers(0, found.lanes), min_size=2, max_size=2, unique=True))))
    taken = np.array(
        [
            sorted(data.draw(st.tuples(*2 * [st.integers(0, size)])))
            for size in visits.sizes[own.start : own.stop].tolist()
        ]
    )
    runs = LaneRuns(found.lanes, own, taken[:, 0], taken[:, 1])
    positions = [visits.positions(lane, np.arange(*run)) for lane, run in zip(own, taken.tolist(), strict=True)]
    check_runs_are_their_positions(found, runs, np.concatenate(positions))
    check_runs_are_their_positions(found, runs, np.concatenate(positions), read_lanes=range(found.lanes))
