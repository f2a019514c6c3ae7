"""Horovod's own estimator trains on images through petastore's data module and store, on Spark 4."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from neighbours.horovod.estimators import ROWS, SIDE, VALIDATION

pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory, run: Callable[..., str]) -> Any:
    """What each training saw."""
    folder = tmp_path_factory.mktemp("estimators")
    run(["python", "-m", "neighbours.horovod.estimators", folder], seconds=300)
    return json.loads((folder / "facts.json").read_text())


def epochs_of(processes: list[list[list[int]]]) -> list[list[int]]:
    """Rows of each of two epochs, over all processes."""
    halves = [(batches[: len(batches) // 2], batches[len(batches) // 2 :]) for batches in processes]
    return [sorted(number for half in halves for batch in half[epoch] for number in batch) for epoch in range(2)]


@pytest.mark.parametrize("name", ["in place", "still", "from a DataFrame"])
def test_each_row_is_trained_on_once_an_epoch_by_one_of_two_processes(facts: Any, name: str) -> None:
    found = facts[name]
    assert len(found["train"]) == 2
    assert [len(batches) for batches in found["train"]] == [2 * ROWS // 16] * 2
    assert epochs_of(found["train"]) == [list(range(ROWS))] * 2
    assert found["shape"] == [SIDE, SIDE]
    assert found["finite"]
    assert found["epochs"] == 2


def test_each_validation_row_comes_once_an_epoch(facts: Any) -> None:
    assert epochs_of(facts["in place"]["val"]) == [list(range(ROWS, ROWS + VALIDATION))] * 2
    assert facts["still"]["val"] == []


def test_options_of_the_data_module_reach_the_processes(facts: Any) -> None:
    first = sorted(batches[0] for batches in facts["still"]["train"])
    assert first == [list(range(8)), list(range(ROWS // 2, ROWS // 2 + 8))]
    assert sorted(batches[0] for batches in facts["in place"]["train"]) != first
