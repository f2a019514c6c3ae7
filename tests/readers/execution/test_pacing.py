"""How far a pass goes ahead: as far as workers are of use, or as memory allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from petastore import TransformSpec
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.pacing import beginning_of, budget_of, pace_of
from petastore.readers.execution.row_execution import execution_of_rows
from petastore.work.workers import Workers
from tests.readers.small import execution_of, plan_of, written
from tests.readers.transforms_to_send import unchanged


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("pacing")) / "data")


def bounded(dataset: Dataset, memory: int | None) -> Execution:
    return execution_of(dataset, workers=Workers("thread", 2, memory_budget=memory))


def test_without_a_budget_one_span_more_is_worked_on_than_there_are_workers(dataset: Dataset) -> None:
    for count in (1, 5):
        assert pace_of(execution_of(dataset, workers=Workers("thread", count)), 4).ahead == count + 1
    assert pace_of(execution_of(dataset), 4).ahead == 1


def test_fewer_rows_are_made_in_one_go_where_python_runs_for_each(dataset: Dataset) -> None:
    plan, workers = plan_of(dataset), Workers("dummy")
    plain = execution_of_rows(dataset, plan, workers=workers)
    called = execution_of_rows(dataset, plan, workers=workers, transform=TransformSpec(unchanged))
    assert pace_of(called, 4).rows_per_span == 4096 < pace_of(plain, 4).rows_per_span


def test_a_budget_bounds_spans_and_what_buffers_keep(dataset: Dataset) -> None:
    wide, narrow = bounded(dataset, 10**9), bounded(dataset, 60 * 10**6)
    for execution in (wide, narrow):
        budget = budget_of(execution, 4)
        assert budget.total_bytes <= (execution.workers.memory_budget or 0)
        assert pace_of(execution, 4) == (budget.rows_per_span, budget.ahead)
        assert execution.loading.memory.buffers.limit == budget.at_hand_bytes + budget.batch_bytes
    assert budget_of(narrow, 4).batch_bytes < budget_of(wide, 4).batch_bytes


def test_too_small_a_budget_is_refused_with_what_is_needed(dataset: Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match="memory_budget=1,000"):
        pace_of(bounded(dataset, 1000), 4)


def test_spans_are_begun_in_parts_only_where_memory_is_bounded(dataset: Dataset) -> None:
    free = bounded(dataset, None)
    assert beginning_of(free, 4) == free.assembly.assembler.begin
    held = bounded(dataset, 10**9)
    assert beginning_of(held, 4) != held.assembly.assembler.begin
