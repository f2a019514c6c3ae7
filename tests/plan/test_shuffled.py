"""Tests of shuffling an existing plan: it equals a plan that is made with shuffling."""

from __future__ import annotations

import dataclasses

import pytest

from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.fixed_share import with_rows_shuffled
from petastore.plan.plan import Plan
from petastore.plan.request import DEFAULT_SHUFFLE_BUFFER_BYTES, Order, ReadRequest, Shard, shuffled_lanes

ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=3, block_rows=1)
INVENTORY = Inventory.of_rows([5] * 12)


def test_shuffling_a_plan_chooses_lanes_and_block_rows_from_the_dataset() -> None:
    request = ReadRequest(("id",), ORDER, Shard(1, 3), chosen=frozenset({"lanes", "block_rows"}))
    plan = with_rows_shuffled(Plan(INVENTORY, request))
    lanes, block_rows = shuffled_lanes(
        INVENTORY, shuffle_buffer_bytes=DEFAULT_SHUFFLE_BUFFER_BYTES, lanes=None, block_rows=None
    )
    assert plan.request.order == dataclasses.replace(ORDER, shuffle_rows=True, lanes=lanes, block_rows=block_rows)
    assert plan.request.shard == Shard(1, 3)


def test_shuffling_a_plan_keeps_explicit_lanes_and_block_rows() -> None:
    plan = with_rows_shuffled(Plan(INVENTORY, ReadRequest(("id",), ORDER)))
    assert (plan.request.order.lanes, plan.request.order.block_rows) == (3, 1)


def test_shuffling_an_already_shuffled_plan_returns_it() -> None:
    plan = with_rows_shuffled(Plan(INVENTORY, ReadRequest(("id",), ORDER)))
    assert with_rows_shuffled(plan) is plan


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_ranks_of_a_shuffled_plan_read_each_row_once(ranks: int) -> None:
    request = ReadRequest(("id",), ORDER, Shard(0, ranks), chosen=frozenset({"lanes", "block_rows"}))
    plan = with_rows_shuffled(Plan(INVENTORY, request))
    assert sum(plan.for_shard(Shard(rank, ranks)).rows_per_epoch(4) for rank in range(ranks)) == 60
    assert plan.steps_left(4, Cursor()) == plan.steps_per_epoch(4)
