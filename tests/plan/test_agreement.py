"""Tests of `assert_agreed`: all ranks raise if ranks planned different data."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import LastBatch, Order, Plan, ReadRequest, Shard
from petastore.plan.request import assert_agreed

ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=5)


def plan_of(rank: int, **changes: Any) -> Plan:
    request = ReadRequest(("id",), ORDER, Shard(rank, 3))
    return Plan(Inventory.of_rows(changes.pop("rows", [5, 6, 7])), dataclasses.replace(request, **changes))


def all_ask(plans: list[Plan]) -> set[str]:
    """Return the set of results of all ranks: "agreed", or the message of the error."""
    said = set()
    for plan in plans:
        try:
            assert_agreed(plan.facts(), lambda _: [one.facts() for one in plans])
        except InvalidArgumentError as problem:
            said.add(str(problem))
        else:
            said.add("agreed")
    return said


def test_assert_agreed_accepts_equal_plans() -> None:
    assert all_ask([plan_of(rank) for rank in range(3)]) == {"agreed"}


def test_assert_agreed_accepts_ranks_that_read_different_columns() -> None:
    assert all_ask([plan_of(0), plan_of(1, columns=("id", "more")), plan_of(2)]) == {"agreed"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rows": [5, 6, 8]}, "dataset"),
        ({"order": dataclasses.replace(ORDER, seed=8)}, "seed is 7 on rank 0 and 8 on rank 1"),
        ({"order": dataclasses.replace(ORDER, lanes=3)}, "lanes"),
        ({"last_batch": LastBatch.DROP}, "last_batch is 'even' on rank 0 and 'drop' on rank 1"),
        ({"epochs": 2}, "num_epochs"),
        ({"shard": Shard(1, 4)}, "shard_count"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_assert_agreed_names_the_differing_rank_on_every_rank(changes: dict[str, Any], name: str) -> None:
    (said,) = all_ask([plan_of(0), plan_of(1, **changes), plan_of(2)])
    assert name in said


def test_assert_agreed_raises_when_two_ranks_have_the_same_shard() -> None:
    (said,) = all_ask([plan_of(0), plan_of(1), plan_of(1)])
    assert "[0, 1, 1]" in said


def test_facts_exchanged_by_assert_agreed_are_below_1_kib_of_json() -> None:
    assert len(json.dumps(plan_of(0).facts())) < 1024
