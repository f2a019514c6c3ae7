"""`run_on_dataframe` on executors, classic and Connect: every row once, equal steps, and failures with a reason."""

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
    """The facts of the steps that run on a cluster only."""
    return spark_programs.left("local-cluster", "training.on_dataframe").facts


def test_uneven_partitions_give_equal_steps_and_every_row_once_an_epoch(facts: Any) -> None:
    uneven = facts["uneven"]
    assert uneven["rows"] == 1003
    assert uneven["num_rows"] == [1003, 1003]
    assert uneven["steps"] == [64, 64]
    assert uneven["an epoch is whole"]
    assert uneven["two epochs are whole"]
    assert uneven["epochs differ"] == [True, True]


def test_ranks_find_each_other_and_know_who_they_are(facts: Any) -> None:
    uneven = facts["uneven"]
    assert uneven["ranks"] == [0, 1]
    assert uneven["shards"] == [[0, 2], [1, 2]]
    assert uneven["sums agree"]
    assert uneven["workers"] == 2


def test_each_rank_has_its_own_files_and_none_is_left(facts: Any) -> None:
    assert facts["uneven"]["own files"] == [["rank-00000"], ["rank-00001"]]
    assert facts["uneven"]["left"] == []


def test_a_dataframe_is_shuffled_into_as_many_ranks_as_asked(on_cluster: Any) -> None:
    found = on_cluster["shuffled_into_ranks"]
    assert found == {
        "ids": list(range(11)),
        "shapes": {"id": [], "track": [None], "name": []},
        "rank 0": "LocalRows",
    }


def test_a_rank_of_the_distributor_that_is_killed_ends_the_job_and_no_rank_is_begun_again(on_cluster: Any) -> None:
    killed = on_cluster["distributor_killed"]
    assert "TorchDistributor failed during training" in killed["problem"]
    assert killed["begun"] == ["begun-0-0", "begun-1-0"]


def test_the_distributor_goes_on_from_the_last_commit_when_it_is_called_again(on_cluster: Any) -> None:
    killed = on_cluster["distributor_killed"]
    assert killed["begun again"] == ["begun-0-0", "begun-0-1", "begun-1-0", "begun-1-1"]
    assert killed["went on"] == [True, True]
    assert killed["steps"] == [7, 7]
    assert killed["ids"] == list(range(103))


def test_what_cannot_be_is_told_by_the_rank_that_found_it(facts: Any) -> None:
    refused = facts["refused"]
    assert "1 row cannot be shared by 2 ranks" in refused["few"]
    assert "rank 1 of 2: column 'pose'" in refused["a value"]
    assert "gave a set, which cannot go back to the driver" in refused["a result"]
    assert "it lacks ['pose']" in refused["a column"]
    assert "but 'train.py' was given" in refused["no function"]
    assert "restarts=-1" in refused["restarts"]


def test_a_function_that_raises_ends_all_ranks_with_its_own_words(facts: Any) -> None:
    refused = facts["refused"]
    assert refused["a function"].startswith("WorkerError: run_on_dataframe ended without a result: rank 1 of 2")
    assert refused["a function"].endswith("ArithmeticError: the loss is NaN")
    assert refused["begun"] == ["begun-0-0", "begun-1-0"]


def test_a_process_that_dies_ends_all_ranks_and_its_signal_is_told(facts: Any) -> None:
    said = facts["refused"]["a death"]
    assert said.startswith("WorkerError: run_on_dataframe ended without a result: rank 1 of 2, on 127.0.0.1: ")
    assert said.endswith("the process that trains was killed by SIGKILL; what it printed is in the executor's log")


def test_a_lost_executor_ends_the_job_and_nothing_is_trained_twice_unasked(on_cluster: Any) -> None:
    lost = on_cluster["lost"]
    assert lost["problem"].startswith("WorkerError: run_on_dataframe ended without a result: ExecutorLostFailure")
    assert "\n" not in lost["problem"]
    assert lost["begun"] == ["begun-0-0", "begun-1-0"]


def test_training_goes_on_from_the_last_commit_when_asked(on_cluster: Any) -> None:
    lost = on_cluster["lost"]
    assert lost["restarts"] == [1, 1]
    assert lost["went on"] == [True, True]
    assert lost["whole"]
