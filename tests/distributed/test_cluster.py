"""Tests of ranks from `TF_CONFIG`: training tasks are numbered as TensorFlow numbers them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from petastore.distributed.environment import rank_in_cluster
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard


@pytest.mark.parametrize(
    ("chief", "servers", "has_evaluator", "workers"),
    list(itertools.product(["", "chief", "master"], [0, 1], [0, 1], [1, 3])),
)
def test_tf_config_training_tasks_have_distinct_ranks(
    chief: str, servers: int, has_evaluator: int, workers: int
) -> None:
    cluster = {"worker": ["host:1"] * workers, "ps": ["host:1"] * servers, "evaluator": ["host:1"] * has_evaluator}
    cluster |= {chief: ["host:1"]} if chief else {}
    tasks = [(job, task) for job in cluster if job not in ("ps", "evaluator") for task in range(len(cluster[job]))]
    shards = [rank_in_cluster(cluster, job, task, said_by="it") for job, task in tasks]
    ranks = workers + bool(chief)
    assert sorted(shard.index for shard in shards) == list(range(ranks))
    assert {shard.count for shard in shards} == {ranks}
    if chief:
        assert rank_in_cluster(cluster, chief, 0, said_by="it").index == 0


def test_tf_config_evaluator_reads_all_rows() -> None:
    assert rank_in_cluster({"worker": ["a:1", "b:1"]}, "evaluator", 0, said_by="it") == Shard(0, 1)


@pytest.mark.parametrize(
    ("cluster", "job", "task", "said"),
    [
        ({"worker": ["a:1"], "ps": ["b:1"]}, "ps", 0, "parameter server"),
        (
            {"worker": ["a:1"]},
            "worker",
            1,
            "TF_CONFIG must have a task below 1, the number of tasks of job worker, got 1",
        ),
        (
            {"worker": ["a:1"]},
            "chief",
            0,
            "TF_CONFIG must have a task below 0, the number of tasks of job chief, got 0",
        ),
        ({"worker": ["a:1"]}, "worker", -1, "at least 0"),
        ({"worker": ["a:1"]}, "worker", "one", "the task's index in TF_CONFIG must be an int of at least 0, got"),
        ({"worker": ["a:1"]}, "worker", 0.0, "the task's index in TF_CONFIG must be an int of at least 0, got"),
        ({"worker": ["a:1"]}, "driver", 0, "the task type in TF_CONFIG must be 'chief', 'master', .* or 'ps', got"),
        ({"worker": ["a:1"]}, ["worker"], 0, "the task type in TF_CONFIG must be 'chief', 'master', .* or 'ps', got"),
        (
            {"chief": ["a:1"], "master": ["b:1"]},
            "chief",
            0,
            "TF_CONFIG must have a chief or a master, got both, which are names of the same job",
        ),
        ({"worker": {"1": "a:1"}}, "worker", 1, "list the addresses"),
        ({"worker": "a:1"}, "worker", 0, "list the addresses"),
    ],
)
def test_tf_config_parameter_server_raises(cluster: Any, job: Any, task: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as refused:
        rank_in_cluster(cluster, job, task, said_by="TF_CONFIG")
    assert "TF_CONFIG" in str(refused.value)
