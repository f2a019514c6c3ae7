"""What is explained is what happens when the plan is walked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Shard, Tail
from petastore.testing import plan_laws as laws


@given(laws.inventories(), laws.orders(), st.sampled_from([1, 2, 3, 6]), st.integers(1, 20))
def test_what_is_kept_at_hand_is_at_most_what_is_said(
    inventory: Inventory, order: Order, ranks: int, batch_size: int
) -> None:
    if inventory.num_rows < ranks * batch_size:
        return
    for plan in laws.ranks_of(inventory, order, ranks=ranks, tail=Tail.DROP):
        said = plan.explain(batch_size)
        at_hand: set[int] = set()
        for span in plan.spans(batch_size, rows_per_span=1):
            # What one batch needs in passing comes on top of what is kept from batch to batch.
            at_hand |= set(span.fetch)
            passing = sum(int(inventory.rows[group]) for group in {*span.fetch, *span.release})
            assert sum(int(inventory.rows[group]) for group in at_hand) <= said.rows_resident + passing
            at_hand -= set(span.release)


def test_reads_are_those_of_the_plan() -> None:
    inventory = Inventory.of_rows([100] * 240)
    order = Order(seed=3, shuffle_row_groups=True, shuffle_rows=True, lanes=24, block_rows=100)
    for ranks in (1, 2, 3, 4, 6, 8, 12, 24):
        plans = laws.ranks_of(inventory, order, ranks=ranks, tail=Tail.DROP)
        fetched = sum(len(span.fetch) for plan in plans for span in plan.spans(10, rows_per_span=10**6))
        assert plans[0].explain(10).reads_per_row_group == pytest.approx(fetched / 240, abs=0.01)


def test_mixing_goes_from_none_to_nearly_uniform() -> None:
    inventory = Inventory.of_rows([1000] * 200)

    def mixing(*, shuffle_rows: bool, lanes: int, block_rows: int) -> float:
        order = Order(seed=1, shuffle_row_groups=True, shuffle_rows=shuffle_rows, lanes=lanes, block_rows=block_rows)
        return Plan(inventory, ReadRequest(("id",), order)).explain(256).mixing

    uniform = Plan(inventory, ReadRequest(("id",), Order(0, True, True, 1, 1))).explain(256).mixing_uniform
    none = mixing(shuffle_rows=False, lanes=1, block_rows=1)
    some = mixing(shuffle_rows=True, lanes=24, block_rows=1000)
    much = mixing(shuffle_rows=True, lanes=48, block_rows=4000)
    whole = mixing(shuffle_rows=True, lanes=1, block_rows=200_000)
    assert none > 0.95 > some > much > whole
    assert whole == pytest.approx(uniform, abs=0.03)


def test_it_is_json_for_programs_and_lines_for_people() -> None:
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=10)
    said = Plan(Inventory.of_rows([10, 0, 20]), ReadRequest(("id",), order, Shard(0, 2))).explain(4)
    assert json.loads(json.dumps(said.as_dict()))["rows_per_rank"] == [15, 15]
    assert "2 of 3 row groups, 30 rows" in str(said)
    assert "2 ranks × 4 batches of 4 rows" in str(said)


def test_a_plan_without_rows_is_explained_too() -> None:
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=10)
    assert Plan(Inventory.of_rows([0]), ReadRequest(("id",), order)).explain(4).steps == 0
