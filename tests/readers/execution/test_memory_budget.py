"""Tests of prefetch depth: bounded by the number of workers, or by `memory_budget`."""

from __future__ import annotations

from pathlib import Path

import pytest

from petastore import TransformSpec
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.memory_budget import budget_of, pace_of
from petastore.work.pools import Workers
from tests.readers.small import execution_of, plan_of, written
from tests.readers.transforms_to_send import unchanged


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("pacing")) / "data")


def bounded(dataset: Dataset, memory: int | None) -> Execution:
    return execution_of(dataset, workers=Workers("thread", 2, memory_budget=memory))


def test_reader_without_memory_budget_prefetches_workers_plus_one_spans(dataset: Dataset) -> None:
    for count in (1, 5):
        assert pace_of(execution_of(dataset, workers=Workers("thread", count)), 4).ahead == count + 1
    assert pace_of(execution_of(dataset), 4).ahead == 1


def test_reader_plans_fewer_rows_at_once_with_a_transform(dataset: Dataset) -> None:
    plan, workers = plan_of(dataset), Workers("dummy")
    plain = build_execution(dataset, plan, workers=workers)
    called = build_execution(dataset, plan, workers=workers, transform=TransformSpec(unchanged))
    assert pace_of(called, 4).rows_per_span == 4096 < pace_of(plain, 4).rows_per_span


def test_memory_budget_bounds_prefetching_and_kept_buffers(dataset: Dataset) -> None:
    wide, narrow = bounded(dataset, 10**9), bounded(dataset, 60 * 10**6)
    for execution in (wide, narrow):
        budget = budget_of(execution, 4)
        assert budget.total_bytes <= (execution.workers.memory_budget or 0)
        assert pace_of(execution, 4)[:2] == (budget.rows_per_span, budget.ahead)
        assert execution.memory.buffers.limit == budget.resident_bytes + budget.batch_bytes
    assert budget_of(narrow, 4).batch_bytes < budget_of(wide, 4).batch_bytes


def test_too_small_memory_budget_raises_with_the_given_size(dataset: Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match=r"memory_budget must be .* got 1,000:"):
        pace_of(bounded(dataset, 1000), 4)


def test_batches_are_assembled_in_parts_only_with_a_memory_budget(dataset: Dataset) -> None:
    free = bounded(dataset, None)
    assert pace_of(free, 4).begin == free.assembler.begin
    held = bounded(dataset, 10**9)
    assert pace_of(held, 4).begin != held.assembler.begin
