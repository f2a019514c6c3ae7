"""Tests of states: small, equal on all ranks, and errors that name a difference; `test_laws.py` resumes from states."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import Cursor, Order, Plan, ReadRequest, Shard
from petastore.plan.state import dump_state, resharded, resume
from petastore.testing.training import shards_of, train

ORDER = Order(seed=2**63 - 1, shuffle_row_groups=True, shuffle_rows=True, lanes=48, block_rows=65_536)


def plan_of(rows: list[int], order: Order = ORDER, **kwargs: Any) -> Plan:
    return Plan(Inventory.of_rows(rows), ReadRequest(("id",), order, **kwargs))


def test_state_is_smaller_than_300_bytes() -> None:
    state = dump_state(plan_of([10**12]), Cursor(10**6, 10**12))
    assert len(json.dumps(state)) < 300


def test_dump_state_returns_a_new_dict_each_time() -> None:
    plan = plan_of([9])
    first, second = dump_state(plan, Cursor()), dump_state(plan, Cursor())
    assert first == second
    assert first is not second
    assert first["order"] is not second["order"]


def test_state_overrides_parameters_left_at_their_defaults() -> None:
    state = dump_state(plan_of([9, 9]), Cursor(1, 3))
    other = dataclasses.replace(ORDER, seed=1, lanes=2)
    plan, cursor = resume(plan_of([9, 9], other, chosen=frozenset({"seed", "lanes"})), state)
    assert (plan.request.order, cursor) == (ORDER, Cursor(1, 3))


@pytest.mark.parametrize(("name", "value"), [("seed", 8), ("lanes", 4), ("block_rows", 3), ("shuffle_rows", False)])
def test_state_of_another_explicit_order_raises(name: str, value: Any) -> None:
    state = dump_state(plan_of([9, 9]), Cursor())
    with pytest.raises(InvalidArgumentError, match=name):
        resume(plan_of([9, 9], dataclasses.replace(ORDER, **{name: value})), state)


def test_state_of_another_dataset_raises_and_names_both() -> None:
    state = dump_state(plan_of([9, 9]), Cursor())
    other = plan_of([9, 8])
    with pytest.raises(
        InvalidArgumentError,
        match=f"must belong to the data that is read, {other.inventory.fingerprint}, got {state['dataset']}:",
    ):
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
def test_damaged_state_raises(damage: dict[str, Any]) -> None:
    plan = plan_of([9, 9])
    with pytest.raises(InvalidArgumentError):
        resume(plan, {**dump_state(plan, Cursor()), **damage})


def test_state_is_the_same_for_every_shard() -> None:
    plans = [plan_of([50], shard=Shard(rank, 3)) for rank in range(3)]
    assert len({json.dumps(dump_state(plan, Cursor(0, 6))) for plan in plans}) == 1


def _dealt_plan(ranks: int, rank: int = 0) -> Plan:
    order = Order(7, True, False, lanes=ranks, block_rows=1, reshuffle="static", dealt_to=ranks)
    chosen = frozenset({"lanes", "dealt_to"})
    request = ReadRequest(("id",), order, Shard(rank, ranks), epochs=3, chosen=chosen)
    return Plan(Inventory.of_rows([12] * 16), request)


@pytest.mark.parametrize("ranks", [1, 3, 6])
def test_resume_mid_epoch_keeps_the_row_group_order_until_the_epoch_ends(ranks: int) -> None:
    cursor = Cursor(1, 96)
    state = json.loads(json.dumps(dump_state(_dealt_plan(4), cursor)))
    plans = [resume(_dealt_plan(ranks, rank), state)[0] for rank in range(ranks)]
    begun = train(shards_of(_dealt_plan(4), 4), 8)
    rest = train(plans, 4, after=cursor)
    given = np.concatenate(
        [
            begun.rows[(begun.epochs[begun.steps] == 1) & (begun.steps < 9)],
            rest.rows[rest.epochs[rest.steps] == 1],
        ]
    )
    assert sorted(given.tolist()) == list(range(192))
    anew = train(shards_of(_dealt_plan(ranks), ranks), 4)
    last, wanted = (each.epochs[each.steps] == 2 for each in (rest, anew))
    assert rest.rows[last].tolist() == anew.rows[wanted].tolist()
    assert rest.ranks[last].tolist() == anew.ranks[wanted].tolist()
    # The state of each epoch contains the order of that epoch.
    of_states = [dump_state(plans[0], Cursor(epoch, 4))["order"]["dealt_to"] for epoch in (1, 2)]
    assert of_states == [4, ranks]


def test_state_saved_after_resuming_on_fewer_ranks_resumes_exactly() -> None:
    cursor = Cursor(1, 96)
    plans = [resume(_dealt_plan(3, rank), dump_state(_dealt_plan(4), cursor))[0] for rank in range(3)]
    whole = train(plans, 4, after=cursor)
    after = whole.cursors[2]
    again = [resume(_dealt_plan(3, rank), json.loads(json.dumps(dump_state(plans[0], after)))) for rank in range(3)]
    rest = train([plan for plan, _ in again], 4, after=again[0][1])
    follows = whole.steps > 2
    assert rest.rows.tolist() == whole.rows[follows].tolist()
    assert rest.ranks.tolist() == whole.ranks[follows].tolist()
    assert rest.cursors == whole.cursors[3:]


def test_state_of_a_version_without_dealt_to_resumes_in_its_own_order() -> None:
    before = dataclasses.replace(_dealt_plan(4).request.order, dealt_to=None)
    plan = Plan(_dealt_plan(4).inventory, dataclasses.replace(_dealt_plan(4).request, order=before))
    state = dump_state(plan, Cursor(1, 96))
    assert set(state["order"]) == {
        "seed",
        "shuffle_row_groups",
        "shuffle_rows",
        "lanes",
        "block_rows",
        "reshuffle",
    }
    resumed, _ = resume(_dealt_plan(3), state)
    assert resumed.request.order == before
    assert resumed.request.under_way is None


def test_state_between_epochs_reassigns_row_groups() -> None:
    resumed, _ = resume(_dealt_plan(3), dump_state(_dealt_plan(4), Cursor(1, 0)))
    assert resumed.request.order == _dealt_plan(3).request.order
    assert resumed.request.under_way is None


def test_reshard_equals_resuming_a_state_on_another_number_of_ranks() -> None:
    plan = resharded(_dealt_plan(4), Shard(1, 3), Cursor(1, 96))
    resumed, _ = resume(_dealt_plan(3, 1), dump_state(_dealt_plan(4), Cursor(1, 96)))
    assert plan.request == resumed.request


def test_dealt_to_raises_unless_the_order_is_static() -> None:
    with pytest.raises(InvalidArgumentError, match=r"dealt_to must be None unless .*, got 3 with reshuffle="):
        Order(7, True, False, 1, 1, "epoch", 3)
    with pytest.raises(InvalidArgumentError, match="dealt_to"):
        Order(7, True, False, 1, 1, "static", 0)
