"""Tests of states of DataLoader workers: a reader's state where possible, else a count of batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard
from petastore.plan.state import resume
from petastore.plan.workers import WorkerPlan, dump_place, resume_place

ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=4, block_rows=10)
BEGIN = Cursor(1, 8, 0)


def plan_of(*, worker: int = 0, workers: int = 2, rows: int = 50) -> WorkerPlan:
    request = ReadRequest(("id",), ORDER, Shard(0, 2), epochs=3)
    return WorkerPlan(Inventory.of_rows([rows]), request, worker=Shard(worker, workers), begin=BEGIN)


def test_dataloader_state_after_a_batch_of_each_worker_loads_into_a_reader() -> None:
    state = json.loads(json.dumps(dump_place(plan_of(), 2, 4, of_all=True)))
    assert resume(plan_of(), state)[1] == Cursor(1, 8 + 2 * 4 * 2, 0)
    assert resume_place(plan_of(), state, batch_size=9, workers=5, worker=3)[1:] == (Cursor(1, 24, 0), 0)


def test_dataloader_state_between_workers_counts_batches_from_the_start() -> None:
    state = json.loads(json.dumps(dump_place(plan_of(), 3, 4, of_all=True)))
    assert resume_place(plan_of(), state, batch_size=4, workers=2, worker=None)[1:] == (BEGIN, 3)
    assert len(json.dumps(state)) < 500


def test_state_of_one_dataloader_worker_resumes_that_worker_only() -> None:
    state = json.loads(json.dumps(dump_place(plan_of(worker=1), 2, 4, of_all=False)))
    assert resume_place(plan_of(), state, batch_size=4, workers=2, worker=1)[1:] == (BEGIN, 2)
    alone = dump_place(plan_of(workers=1), 3, 4, of_all=False)
    assert resume(plan_of(), alone)[1] == Cursor(1, 8 + 3 * 8, 0)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (
            {"worker": 0},
            r"worker must be 1 to resume from this state, got 0\. Pass the same value,",
        ),
        (
            {"worker": None},
            r"worker must be 1 to resume from this state, got None\. Pass the same value,",
        ),
        (
            {"workers": 3},
            r"workers must be 2 to resume from this state, got 3\. Pass the same value,",
        ),
        (
            {"batch_size": 5},
            r"batch_size must be 4 to resume from this state, got 5\. Pass the same value,",
        ),
    ],
)
def test_worker_state_raises_for_another_worker_or_number_of_workers(now: dict[str, Any], message: str) -> None:
    state = dump_place(plan_of(worker=1), 2, 4, of_all=False)
    with pytest.raises(InvalidArgumentError, match=message):
        resume_place(plan_of(), state, **{"batch_size": 4, "workers": 2, "worker": 1, **now})


def test_dataloader_state_between_workers_raises_for_another_rank_count() -> None:
    state = dump_place(plan_of(), 3, 4, of_all=True)
    alone = Plan(Inventory.of_rows([50]), ReadRequest(("id",), ORDER, epochs=3))
    with pytest.raises(
        InvalidArgumentError,
        match=r"ranks must be 2 to resume from this state, got 1\. Pass the same value, or",
    ):
        resume_place(alone, state, batch_size=4, workers=2, worker=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "the state must be of version 1, which this release reads, got 2"),
        ({"given": -1}, "damaged"),
        ({"given": True}, "damaged"),
        ({"begin": None}, "damaged"),
        ({"begin": {}}, r"state must be what state_dict\(\) returned, got"),
        ({"format": "other"}, r"state must be what state_dict\(\) returned, got"),
    ],
)
def test_damaged_and_newer_worker_states_raise(change: dict[str, Any], message: str) -> None:
    state = dump_place(plan_of(), 3, 4, of_all=True) | change
    with pytest.raises(InvalidArgumentError, match=message):
        resume_place(plan_of(), state, batch_size=4, workers=2, worker=None)


def test_worker_state_of_another_dataset_raises() -> None:
    state = dump_place(plan_of(), 3, 4, of_all=True)
    with pytest.raises(
        InvalidArgumentError,
        match=r"the state must belong to the data that is read,.*files were rewritten, added or removed, or it is",
    ):
        resume_place(plan_of(rows=51), state, batch_size=4, workers=2, worker=None)
