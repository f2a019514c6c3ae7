"""Tests of ranks from context objects of TensorFlow, TensorFlowOnSpark, BigDL Orca and Spark barrier tasks."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from petastore.distributed import from_barrier, from_input_context, from_orca_config, from_tfos
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard


@pytest.mark.tf
@pytest.mark.slow
def test_tf_input_context_gives_the_shard_of_its_input_pipeline() -> None:
    import tensorflow as tf

    contexts = [tf.distribute.InputContext(3, number, 6) for number in range(3)]
    assert [from_input_context(context) for context in contexts] == [Shard(number, 3) for number in range(3)]


def test_invalid_input_context_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=r"context must be a tf\.distribute\.InputContext, got dict"):
        from_input_context({"input_pipeline_id": 0})


def ctx(executor: int, job: str, task: int, cluster: dict[str, list[str]]) -> SimpleNamespace:
    """Return an object with the attributes of a `TFNodeContext` of TensorFlowOnSpark 2.2.5."""
    workers = sum(len(tasks) for name, tasks in cluster.items() if name in ("chief", "master", "worker"))
    return SimpleNamespace(
        worker_num=executor,
        executor_id=executor,
        job_name=job,
        task_index=task,
        cluster_spec=cluster,
        num_workers=workers,
    )


@pytest.mark.parametrize(
    ("servers", "chief", "has_evaluator"), [*itertools.product([0, 1], ["", "chief", "master"], [False, True])]
)
def test_tensorflow_on_spark_executor_number_is_not_the_rank(servers: int, chief: str, has_evaluator: bool) -> None:
    """TensorFlowOnSpark assigns executors in this order: parameter servers, chief, evaluator, workers."""
    jobs = ["ps"] * servers + [chief] * bool(chief) + ["evaluator"] * has_evaluator + ["worker"] * 3
    cluster: dict[str, list[str]] = {}
    tasks = []
    for executor, job in enumerate(jobs):
        addresses = cluster.setdefault(job, [])
        tasks.append((executor, job, len(addresses)))
        addresses.append(f"host{executor}:2222")
    contexts = [ctx(*task, cluster) for task in tasks]
    training = [from_tfos(each) for each in contexts if each.job_name not in ("ps", "evaluator")]
    ranks = 3 + bool(chief)
    assert sorted(shard.index for shard in training) == list(range(ranks))
    assert {shard.count for shard in training} == {ranks}
    for each in contexts:
        if each.job_name == "evaluator":
            assert from_tfos(each) == Shard(0, 1)
        elif each.job_name == "ps":
            with pytest.raises(InvalidArgumentError, match="the TFoS ctx names a parameter server"):
                from_tfos(each)


def test_tensorflow_on_spark_parallel_workers_have_ranks() -> None:
    parallel = SimpleNamespace(worker_num=2, num_workers=5, job_name="", task_index=0, cluster_spec={})
    assert from_tfos(parallel) == Shard(2, 5)
    with pytest.raises(InvalidArgumentError, match="context must be the ctx of TensorFlowOnSpark, got dict"):
        from_tfos({})


def test_orca_config_gives_rank_and_size() -> None:
    assert from_orca_config({"rank": 1, "size": 4, "batch_size": 8}) == Shard(1, 4)
    assert from_orca_config({"rank": 1, "num_shards": 4, "num_workers": 2}) == Shard(1, 4)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "from_torch"),
        ({"rank": 0}, "from_torch"),
        ({"size": 2}, "from_torch"),
        (
            {"rank": 0, "size": 2, "num_shards": 3},
            "the same number of ranks everywhere, got {'size': 2, 'num_shards': 3}",
        ),
        ({"rank": 2, "size": 2}, "from 0 to 1"),
        ({"rank": "0", "size": 2}, "rank"),
        ({"rank": 0, "size": 0}, "size"),
        ({"rank": True, "size": 2}, "rank"),
    ],
)
def test_invalid_orca_config_raises(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        from_orca_config(config)


def test_from_barrier_raises_outside_of_spark() -> None:
    with pytest.raises(InvalidArgumentError, match=r"rdd\.barrier"):
        from_barrier()
