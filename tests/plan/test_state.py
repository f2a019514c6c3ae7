"""States: small, the same on every rank, and refused with the difference named; `test_laws.py` goes on from them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from petastore.errors import RequestError
from petastore.inventory import Inventory
from petastore.plan import Cursor, Order, Plan, ReadRequest, Shard
from petastore.plan.state import dump_state, resume

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
