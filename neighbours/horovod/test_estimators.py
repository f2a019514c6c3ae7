"""Tests of Horovod's torch estimator on images, with petastore's data module and store, on Spark 4 executors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neighbours.horovod.estimators import BATCH, ROWS, VALIDATION

pytestmark = pytest.mark.timeout(420)

EXACT = ["in place", "still", "from a DataFrame"]
SPLIT = "split by chance"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory, run: Callable[..., str]) -> Any:
    """Run the estimators, and return the records of each training run."""
    folder = tmp_path_factory.mktemp("estimators")
    run(["python", "-m", "neighbours.horovod.estimators", folder], seconds=300)
    return json.loads((folder / "facts.json").read_text())


def epochs_of(processes: list[list[list[int]]]) -> list[list[int]]:
    """Return the rows of each of two epochs, over all processes."""
    halves = [(batches[: len(batches) // 2], batches[len(batches) // 2 :]) for batches in processes]
    return [sorted(number for half in halves for batch in half[epoch] for number in batch) for epoch in range(2)]


@pytest.mark.parametrize("name", EXACT)
def test_torch_estimator_trains_on_each_row_once_per_epoch(facts: Any, name: str) -> None:
    found = facts[name]
    assert [len(batches) for batches in found["train"]] == [ROWS // BATCH] * 2  # over two epochs
    assert epochs_of(found["train"]) == [list(range(ROWS))] * 2


@pytest.mark.parametrize("name", [*EXACT, SPLIT])
def test_torch_estimator_returns_the_loss_of_each_epoch(facts: Any, name: str) -> None:
    assert len(facts[name]["losses"]) == 2
    assert np.isfinite(facts[name]["losses"]).all()


def test_torch_estimator_validates_each_row_once_per_epoch(facts: Any) -> None:
    assert epochs_of(facts["in place"]["val"]) == [list(range(ROWS, ROWS + VALIDATION))] * 2
    assert facts["still"]["val"] == []


def test_data_module_options_reach_the_training_processes(facts: Any) -> None:
    first = sorted(batches[0] for batches in facts["still"]["train"])
    assert first == [list(range(BATCH)), list(range(ROWS // 2, ROWS // 2 + BATCH))]
    assert sorted(batches[0] for batches in facts["in place"]["train"]) != first


def test_validation_split_is_read_once_per_epoch_and_never_trained_on(facts: Any) -> None:
    train, val = facts["stored for train"], facts["stored for val"]
    assert sorted(train + val) == list(range(ROWS))
    for epoch in epochs_of(facts[SPLIT]["train"]):
        assert len(epoch) == len(set(epoch)) == len(train) // (2 * BATCH) * 2 * BATCH
        assert set(epoch) <= set(train)
    assert epochs_of(facts[SPLIT]["val"]) == [val] * 2


@pytest.mark.parametrize("name", ["from a DataFrame", SPLIT])
def test_sample_weight_applies_to_the_loss_of_its_row(facts: Any, name: str) -> None:
    assert facts[name]["losses"] == pytest.approx([1, 1])
