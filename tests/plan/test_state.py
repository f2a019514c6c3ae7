"""States: small, the same on every rank, and refused with the difference named."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import RequestError
from petastore.inventory import Inventory
from petastore.plan import Cursor, Order, Plan, ReadRequest, Shard, Tail
from petastore.plan.state import dump_state, resume
from petastore.testing import plan_laws as laws

ORDER = Order(seed=2**63 - 1, shuffle_row_groups=True, shuffle_rows=True, lanes=48, block_rows=65_536)


def plan_of(rows: list[int], order: Order = ORDER, **kwargs: Any) -> Plan:
    return Plan(Inventory.of_rows(rows), ReadRequest(("id",), order, **kwargs))


def test_a_state_is_smaller_than_300_bytes() -> None:
    state = dump_state(plan_of([10**12]), Cursor(10**6, 10**12))
    assert len(json.dumps(state)) < 300


def test_a_state_is_a_fresh_object_each_time() -> None:
    plan = plan_of([9])
    first, second = dump_state(plan, Cursor()), dump_state(plan, Cursor())
    assert first == second
    assert first is not second
    assert first["order"] is not second["order"]


def rows_after(inventory: Inventory, plans: list[Plan], cursor: Cursor, batch_size: int) -> list[list[int]]:
    """Global batches from a cursor on, as sorted rows with their epoch."""
    starts = np.cumsum(inventory.rows) - inventory.rows
    steps: list[list[int]] = []
    for rank, plan in enumerate(plans):
        step = 0
        for span in plan.spans(batch_size, rows_per_span=64, after=cursor):
            numbers = (starts[span.groups] + span.rows).tolist()
            for first, stop in zip(span.offsets[:-1].tolist(), span.offsets[1:].tolist(), strict=True):
                if rank == 0:
                    steps.append([])
                steps[step] += [row + span.epoch * inventory.num_rows for row in numbers[first:stop]]
                step += 1
        assert step == len(steps)
    return [sorted(step) for step in steps]


@given(
    laws.inventories(max_groups=8, max_rows=15),
    laws.orders(),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 5]), st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=5),
    st.sampled_from([1, 2, 4]),
)
def test_every_row_comes_once_whatever_ranks_and_batch_sizes_follow_each_other(
    inventory: Inventory, order: Order, log: list[tuple[int, int, int]], last_ranks: int
) -> None:
    """A log of (ranks, batch size, steps), and then the rest of two epochs by other ranks."""
    if 0 < inventory.num_rows < 5:
        return
    cursor, seen = Cursor(), []
    for ranks, batch_size, steps in [*log, (last_ranks, 3, 10**6)]:
        plans = laws.ranks_of(inventory, order, ranks=ranks, tail=Tail.EVEN, epochs=2)
        state = json.loads(json.dumps(dump_state(plans[-1], cursor)))
        resumed = [resume(plan, state) for plan in plans]
        assert {at for _, at in resumed} == {cursor}
        batches = rows_after(inventory, [plan for plan, _ in resumed], cursor, batch_size)
        for batch in batches[:steps]:
            seen += batch
        cursors = [
            span.cursor_after(place)
            for span in resumed[0][0].spans(batch_size, rows_per_span=64, after=cursor)
            for place in range(span.num_batches)
        ]
        cursor = [cursor, *cursors][min(steps, len(cursors))]
    assert sorted(seen) == list(range(2 * inventory.num_rows))


def test_what_nobody_asked_for_is_taken_from_the_state() -> None:
    state = dump_state(plan_of([9, 9]), Cursor(1, 3))
    other = dataclasses.replace(ORDER, seed=1, lanes=2)
    plan, cursor = resume(plan_of([9, 9], other, chosen=frozenset({"seed", "lanes"})), state)
    assert (plan.request.order, cursor) == (ORDER, Cursor(1, 3))


@pytest.mark.parametrize(("name", "value"), [("seed", 8), ("lanes", 4), ("block_rows", 3), ("shuffle_rows", False)])
def test_an_order_that_was_asked_for_must_agree(name: str, value: Any) -> None:
    state = dump_state(plan_of([9, 9]), Cursor())
    with pytest.raises(RequestError, match=name):
        resume(plan_of([9, 9], dataclasses.replace(ORDER, **{name: value})), state)


def test_a_state_of_another_dataset_is_refused_with_both_named() -> None:
    state = dump_state(plan_of([9, 9]), Cursor())
    other = plan_of([9, 8])
    with pytest.raises(RequestError, match=f"{state['dataset']}.*{other.inventory.fingerprint}"):
        resume(other, state)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "other"},
        {"version": 2},
        {"epoch": -1},
        {"position": "7"},
        {"position": 10**9},
        {"order": {"seed": 7}},
        {"order": None},
        {"dataset": None},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused(damage: dict[str, Any]) -> None:
    plan = plan_of([9, 9])
    with pytest.raises(RequestError):
        resume(plan, {**dump_state(plan, Cursor()), **damage})


def test_another_shard_is_no_other_state() -> None:
    plans = [plan_of([50], shard=Shard(rank, 3)) for rank in range(3)]
    assert len({json.dumps(dump_state(plan, Cursor(0, 6))) for plan in plans}) == 1
