"""Tests of `run_on_dataframe` on classic and Connect: every row once, equal steps, failures, restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(params=["local-cluster", "connect"])
def facts(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Any:
    return spark_programs.left(request.param, "training.on_dataframe").facts


@pytest.fixture
def on_cluster(spark_programs: SparkPrograms) -> Any:
    """Return the facts of the steps that run only on a cluster."""
    return spark_programs.left("local-cluster", "training.on_dataframe").facts


def test_run_on_dataframe_has_equal_steps_for_uneven_partitions(facts: Any) -> None:
    uneven = facts["uneven"]
    assert uneven["rows"] == 1003
    assert uneven["num_rows"] == [1003, 1003]
    assert uneven["steps"] == [64, 64]
    assert uneven["an epoch is whole"]
    assert uneven["two epochs are whole"]
    assert uneven["epochs differ"] == [True, True]


def test_run_on_dataframe_gives_each_process_its_rank_and_shard(facts: Any) -> None:
    uneven = facts["uneven"]
    assert uneven["ranks"] == [0, 1]
    assert uneven["shards"] == [[0, 2], [1, 2]]
    assert uneven["sums agree"]
    assert uneven["workers"] == 2


def test_run_on_dataframe_deletes_the_files_of_each_rank(facts: Any) -> None:
    assert facts["uneven"]["own files"] == [["rank-00000"], ["rank-00001"]]
    assert facts["uneven"]["left"] == []


def test_run_on_dataframe_with_num_proc_passes_all_rows_to_ranks(on_cluster: Any) -> None:
    found = on_cluster["shuffled_into_ranks"]
    assert found == {
        "ids": list(range(11)),
        "shapes": {"id": [], "track": [None], "name": []},
        "rank 0": "LocalRows",
    }


def test_killed_rank_of_torch_distributor_ends_the_job(on_cluster: Any) -> None:
    killed = on_cluster["distributor_killed"]
    assert "TorchDistributor failed during training" in killed["problem"]
    assert killed["begun"] == ["begun-0-0", "begun-1-0"]


def test_distributor_resumes_from_the_last_commit_when_it_is_called_again(on_cluster: Any) -> None:
    killed = on_cluster["distributor_killed"]
    assert killed["begun again"] == ["begun-0-0", "begun-0-1", "begun-1-0", "begun-1-1"]
    assert killed["went on"] == [True, True]
    assert killed["steps"] == [7, 7]
    assert killed["ids"] == list(range(103))


def test_run_on_dataframe_reports_the_failing_rank(facts: Any) -> None:
    refused = facts["refused"]
    assert "each rank must have at least one row, got 1 row" in refused["few"]
    assert "rank 1 of 2: column 'pose'" in refused["a value"]
    assert "lists and dicts of these, got set" in refused["a result"]
    assert "['pose'] missing" in refused["a column"]
    assert "train_fn must be callable with the rows of a rank, got 'train.py'" in refused["no function"]
    assert "restarts must be an int of at least 0, got -1" in refused["restarts"]


def test_run_on_dataframe_exception_ends_all_ranks(facts: Any) -> None:
    refused = facts["refused"]
    assert refused["a function"].startswith("WorkerError: run_on_dataframe ended without a result: rank 1 of 2")
    assert refused["a function"].endswith("ArithmeticError: the loss is NaN")
    assert refused["begun"] == ["begun-0-0", "begun-1-0"]


def test_run_on_dataframe_reports_the_signal_of_a_killed_rank(facts: Any) -> None:
    said = facts["refused"]["a death"]
    assert said.startswith("WorkerError: run_on_dataframe ended without a result: rank 1 of 2, on 127.0.0.1: ")
    assert said.endswith("the training process was killed by SIGKILL. Read its output in the executor's log")


def test_run_on_dataframe_does_not_retry_a_lost_executor(on_cluster: Any) -> None:
    lost = on_cluster["lost"]
    assert lost["problem"].startswith("WorkerError: run_on_dataframe ended without a result: ExecutorLostFailure")
    assert "\n" not in lost["problem"]
    assert lost["begun"] == ["begun-0-0", "begun-1-0"]


def test_run_on_dataframe_restarts_resume_from_a_saved_state(on_cluster: Any) -> None:
    lost = on_cluster["lost"]
    assert lost["restarts"] == [1, 1]
    assert lost["went on"] == [True, True]
    assert lost["whole"]
