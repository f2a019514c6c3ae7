"""States of workers: a reader's wherever a cursor says it, else where the pass began and what was made since."""

from __future__ import annotations

import json
from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard
from petastore.plan.sharing.worker_state import dump_place, resume_place
from petastore.plan.sharing.workers import WorkerPlan
from petastore.plan.state import resume

ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=4, block_rows=10)
BEGIN = Cursor(1, 8, 0)


def plan_of(*, worker: int = 0, workers: int = 2, rows: int = 50) -> WorkerPlan:
    request = ReadRequest(("id",), ORDER, Shard(0, 2), epochs=3)
    return WorkerPlan(Inventory.of_rows([rows]), request, worker=Shard(worker, workers), begin=BEGIN)


def test_after_a_round_it_is_the_state_of_any_reader() -> None:
    state = json.loads(json.dumps(dump_place(plan_of(), 2, 4, of_all=True)))
    assert resume(plan_of(), state)[1] == Cursor(1, 8 + 2 * 4 * 2, 0)
    assert resume_place(plan_of(), state, batch_size=9, workers=5, worker=3)[1:] == (Cursor(1, 24, 0), 0)


def test_inside_a_round_it_counts_from_where_the_pass_began() -> None:
    state = json.loads(json.dumps(dump_place(plan_of(), 3, 4, of_all=True)))
    assert resume_place(plan_of(), state, batch_size=4, workers=2, worker=None)[1:] == (BEGIN, 3)
    assert len(json.dumps(state)) < 500


def test_the_state_of_one_worker_is_for_that_worker() -> None:
    state = json.loads(json.dumps(dump_place(plan_of(worker=1), 2, 4, of_all=False)))
    assert resume_place(plan_of(), state, batch_size=4, workers=2, worker=1)[1:] == (BEGIN, 2)
    alone = dump_place(plan_of(workers=1), 3, 4, of_all=False)
    assert resume(plan_of(), alone)[1] == Cursor(1, 8 + 3 * 8, 0)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"worker": 0}, "with worker=1, but here it is 0"),
        ({"worker": None}, "with worker=1, but here it is None"),
        ({"workers": 3}, "with workers=2, but here it is 3; .* after a multiple of 2 batches"),
        ({"batch_size": 5}, "with batch_size=4, but here it is 5"),
    ],
)
def test_others_than_then_are_refused(now: dict[str, Any], message: str) -> None:
    state = dump_place(plan_of(worker=1), 2, 4, of_all=False)
    with pytest.raises(InvalidArgumentError, match=message):
        resume_place(plan_of(), state, **{"batch_size": 4, "workers": 2, "worker": 1, **now})


def test_another_number_of_ranks_is_refused_inside_a_round() -> None:
    state = dump_place(plan_of(), 3, 4, of_all=True)
    alone = Plan(Inventory.of_rows([50]), ReadRequest(("id",), ORDER, epochs=3))
    with pytest.raises(InvalidArgumentError, match="with ranks=2, but here it is 1"):
        resume_place(alone, state, batch_size=4, workers=2, worker=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "of version 2, and this release of petastore reads 1"),
        ({"given": -1}, "damaged"),
        ({"given": True}, "damaged"),
        ({"begin": None}, "damaged"),
        ({"begin": {}}, "is no state of a reader"),
        ({"format": "other"}, "is no state of a reader"),
    ],
)
def test_damaged_and_newer_states_are_refused(change: dict[str, Any], message: str) -> None:
    state = dump_place(plan_of(), 3, 4, of_all=True) | change
    with pytest.raises(InvalidArgumentError, match=message):
        resume_place(plan_of(), state, batch_size=4, workers=2, worker=None)


def test_a_state_of_other_data_is_refused() -> None:
    state = dump_place(plan_of(), 3, 4, of_all=True)
    with pytest.raises(InvalidArgumentError, match="the state was taken over"):
        resume_place(plan_of(rows=51), state, batch_size=4, workers=2, worker=None)
