"""Tests of memory estimates: row groups in memory at each position, compared with a simple reference implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import Order
from petastore.plan.batches.residency import buffer_rows, most_at_a_time, needed_from_to, resident_bytes
from petastore.plan.order.order import EpochOrder
from tests.laws.plan_laws import inventories, orders


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_estimated_peak_memory_equals_the_sum_at_the_fullest_position(held: list[tuple[int, int, int]]) -> None:
    first, length, weight = np.array(held, dtype=np.int64).reshape(-1, 3).T
    by_place = [sum(each for begin, more, each in held if begin <= place <= begin + more) for place in range(30)]
    assert most_at_a_time(first, first + length, weight) == max(by_place)


@given(inventories(), orders(), st.integers(0, 3))
def test_range_of_positions_of_a_row_group_covers_all_its_rows(inventory: Inventory, order: Order, epoch: int) -> None:
    found = EpochOrder(inventory.rows, order, epoch)
    groups, first, last = needed_from_to(found.pieces())
    assert groups.tolist() == np.flatnonzero(inventory.rows).tolist()
    positions = np.arange(found.num_rows)
    of_row = np.searchsorted(groups, found.rows_at(positions)[0])
    assert (first[of_row] <= positions).all()
    assert (positions <= last[of_row]).all()


@given(inventories(), orders(), st.integers(0, 50))
def test_estimated_memory_of_lanes_equals_the_row_groups_needed_at_once(
    inventory: Inventory, order: Order, early: int
) -> None:
    found = EpochOrder(inventory.rows, order, 0)
    group_bytes = 1 + np.arange(inventory.num_row_groups) % 5
    lanes = range(found.lanes // 2, found.lanes)
    pieces = found.pieces().of_lanes(lanes)
    by_position = [
        sum(
            int(group_bytes[group])
            for group in set(pieces.groups.tolist())
            if pieces.first_positions[pieces.groups == group].min() - early <= position
            and position <= pieces.last_positions[pieces.groups == group].max()
        )
        for position in sorted({0, *np.maximum(pieces.first_positions - early, 0).tolist()})
    ]
    assert resident_bytes(found, lanes, group_bytes, early) == max(by_position)


def test_unshuffled_order_holds_one_row_group_in_memory() -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    found = EpochOrder(np.array([10, 0, 10, 10]), order, 0)
    group_bytes = np.array([3, 100, 7, 5])
    assert resident_bytes(found, range(1), group_bytes, early=0) == 7
    assert resident_bytes(found, range(1), group_bytes, early=1) == 12
    assert resident_bytes(found, range(1), group_bytes, early=30) == 15


@given(st.integers(1, 60), st.integers(1, 30), st.sampled_from([1, 2, 6, 12]), st.integers(1, 200), st.integers(0, 9))
def test_equally_large_row_groups_in_memory_stay_within_the_estimate(
    groups: int, size: int, lanes: int, block_rows: int, seed: int
) -> None:
    rows = np.full(groups, size)
    order = Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=lanes, block_rows=block_rows)
    found = EpochOrder(rows, order, 0)
    room = buffer_rows(rows, found.num_rows, lanes=found.lanes, block_rows=block_rows)
    assert resident_bytes(found, range(found.lanes), rows, early=0) <= room <= rows.sum()


@pytest.mark.parametrize("rows", [[], [0, 0]])
def test_plan_without_rows_needs_no_memory(rows: list[int]) -> None:
    assert buffer_rows(np.array(rows, dtype=np.int64), 0, lanes=4, block_rows=100) == 0


def test_memory_estimate_grows_when_a_filter_leaves_few_rows_per_row_group() -> None:
    rows = np.full(100, 100)
    assert buffer_rows(rows, 10_000, lanes=2, block_rows=100) == 2 * 2 * (100 + 100)
    assert buffer_rows(rows, 1_000, lanes=2, block_rows=100) == 2 * 2 * (1000 + 100)
