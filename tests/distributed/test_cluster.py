"""TensorFlow's tasks have ranks as TensorFlow itself numbers them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from petastore.distributed.cluster import rank_in_cluster
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard


@pytest.mark.parametrize(
    ("chief", "servers", "has_evaluator", "workers"),
    list(itertools.product(["", "chief", "master"], [0, 1], [0, 1], [1, 3])),
)
def test_tasks_that_train_have_each_rank_once(chief: str, servers: int, has_evaluator: int, workers: int) -> None:
    cluster = {"worker": ["host:1"] * workers, "ps": ["host:1"] * servers, "evaluator": ["host:1"] * has_evaluator}
    cluster |= {chief: ["host:1"]} if chief else {}
    tasks = [(job, task) for job in cluster if job not in ("ps", "evaluator") for task in range(len(cluster[job]))]
    shards = [rank_in_cluster(cluster, job, task, said_by="it") for job, task in tasks]
    ranks = workers + bool(chief)
    assert sorted(shard.index for shard in shards) == list(range(ranks))
    assert {shard.count for shard in shards} == {ranks}
    if chief:
        assert rank_in_cluster(cluster, chief, 0, said_by="it").index == 0


def test_an_evaluator_has_all_rows() -> None:
    assert rank_in_cluster({"worker": ["a:1", "b:1"]}, "evaluator", 0, said_by="it") == Shard(0, 1)


@pytest.mark.parametrize(
    ("cluster", "job", "task", "said"),
    [
        ({"worker": ["a:1"], "ps": ["b:1"]}, "ps", 0, "parameter server"),
        ({"worker": ["a:1"]}, "worker", 1, "task 1 of the job worker, which has 1"),
        ({"worker": ["a:1"]}, "chief", 0, "task 0 of the job chief, which has 0"),
        ({"worker": ["a:1"]}, "worker", -1, "at least 0"),
        ({"worker": ["a:1"]}, "worker", "one", "whole number"),
        ({"worker": ["a:1"]}, "worker", 0.0, "whole number"),
        ({"worker": ["a:1"]}, "driver", 0, "none of chief"),
        ({"worker": ["a:1"]}, ["worker"], 0, "none of chief"),
        ({"chief": ["a:1"], "master": ["b:1"]}, "chief", 0, "a chief and a master"),
        ({"worker": {"1": "a:1"}}, "worker", 1, "list the addresses"),
        ({"worker": "a:1"}, "worker", 0, "list the addresses"),
    ],
)
def test_what_is_no_task_that_trains_is_refused_and_says_whose_words(
    cluster: Any, job: Any, task: Any, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as refused:
        rank_in_cluster(cluster, job, task, said_by="TF_CONFIG")
    assert "TF_CONFIG" in str(refused.value)
