"""Tests of the order of an epoch: each row group once, and each lane has one part of the dataset."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest
from petastore.plan.order.line import line_of_groups
from petastore.plan.order.order import EpochOrder
from petastore.plan.order.visits import visit_of_lane
from tests.laws import plan_laws as laws

ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=24, block_rows=1)


@given(laws.inventories(max_groups=200), laws.orders(), st.integers(0, 5), st.sampled_from([1, 2, 5, 24, 96]))
def test_order_has_each_row_group_with_rows_once(inventory: Inventory, order: Order, epoch: int, lanes: int) -> None:
    line = line_of_groups(inventory.rows, order, epoch=epoch, lanes=lanes)
    assert sorted(line.tolist()) == np.flatnonzero(inventory.rows).tolist()


def test_lanes_read_other_parts_of_the_dataset_in_the_next_epoch() -> None:
    parts = []
    for epoch in range(2):
        line = line_of_groups(np.full(240, 5), ORDER, epoch=epoch, lanes=24).reshape(24, 10)
        assert (line // 10 == line[:, :1] // 10).all()
        parts.append((line[:, 0] // 10).tolist())
        turns = {(visit - part) % 24 for part, visit in zip(parts[-1], visit_of_lane(24).tolist(), strict=True)}
        assert len(turns) == 1  # the parts are in the order of the lanes, rotated
    assert parts[0] != parts[1]


def test_lanes_of_a_rank_are_spread_over_the_whole_dataset() -> None:
    line = line_of_groups(np.full(240, 5), ORDER, epoch=0, lanes=24).reshape(24, 10)[:, 0] // 10
    for ranks in (2, 3, 4, 6, 8, 12):
        for of_rank in np.split(line, ranks):
            assert len({int(part) // ranks for part in of_rank}) == 24 // ranks


def test_reshuffle_static_keeps_the_row_group_order_in_each_epoch() -> None:
    static = dataclasses.replace(ORDER, reshuffle="static")
    lines = [line_of_groups(np.full(240, 5), static, epoch=epoch, lanes=24).tolist() for epoch in range(2)]
    assert lines[0] == lines[1]


def test_consecutive_rows_come_from_row_groups_of_the_whole_dataset() -> None:
    order = EpochOrder(np.full(240, 50), ORDER, 0)
    for position in (0, 3000, 9000):
        groups, _ = order.rows_at(np.arange(position, position + 24))
        assert sorted((groups // 10).tolist()) == list(range(24))


def test_order_mixes_sorted_data_better_than_a_shuffle_buffer() -> None:
    """The plan has 1,000,000 rows in 1,000 row groups, and batches of 256 rows.

    A shuffle buffer of 96,000 rows has a distance of 0.36, row groups without strata 0.40, a uniform shuffle 0.25.
    """
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=96, block_rows=1)
    said = Plan(Inventory.of_rows([1000] * 1000), ReadRequest(("id",), order)).explain(256)
    assert said.rows_resident <= 100_000
    assert said.mixing < 0.33
