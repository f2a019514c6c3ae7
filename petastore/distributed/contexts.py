"""Which rank this process is, by an object that an engine gives to the function that trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petastore.distributed.cluster import rank_in_cluster
from petastore.distributed.engines import barrier_context
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard, whole_number

__all__ = ["from_barrier", "from_input_context", "from_orca_config", "from_tfos"]


def from_input_context(context: Any) -> Shard:
    """The shard of an input pipeline of TensorFlow, in a function for `distribute_datasets_from_function`.

    Args:
        context: The `tf.distribute.InputContext` that TensorFlow gives to the function.

    Raises:
        InvalidArgumentError: It is something else.

    Example:
        >>> from types import SimpleNamespace
        >>> from_input_context(SimpleNamespace(input_pipeline_id=1, num_input_pipelines=4))
        Shard(index=1, count=4)
    """
    if not hasattr(context, "input_pipeline_id") or not hasattr(context, "num_input_pipelines"):
        raise InvalidArgumentError(
            f"from_input_context takes a tf.distribute.InputContext, not a {type(context).__name__}"
        )
    return Shard(context.input_pipeline_id, context.num_input_pipelines)


def from_barrier(context: Any = None) -> Shard:
    """The shard of a barrier task of Spark: its partition is its rank.

    Args:
        context: What `pyspark.BarrierTaskContext.get()` gives; None asks for it.

    Raises:
        InvalidArgumentError: This process runs no barrier task.
    """
    context = barrier_context() if context is None else context
    if context is None:
        raise InvalidArgumentError(
            "this process runs no barrier task of Spark; start the tasks with rdd.barrier().mapPartitions(…) or "
            "df.mapInArrow(…, barrier=True), and open the reader inside"
        )
    if not hasattr(context, "getTaskInfos"):
        raise InvalidArgumentError(
            f"from_barrier takes a BarrierTaskContext, not a {type(context).__name__}: tasks that are no barrier stage "
            "run one after the other, and do not know how many they are"
        )
    return Shard(context.partitionId(), len(context.getTaskInfos()))


def from_tfos(context: Any) -> Shard:
    """The shard of a node of TensorFlowOnSpark, in the function that `TFCluster.run` or `TFParallel.run` calls.

    `ctx.worker_num` is the number of the Spark executor and no rank: parameter servers and evaluators count, too.

    Args:
        context: The `ctx` that the function is given.

    Raises:
        InvalidArgumentError: It is a parameter server's, which has no reader.

    Example:
        >>> from types import SimpleNamespace
        >>> cluster = {"ps": ["a:1"], "chief": ["b:1"], "worker": ["c:1"]}
        >>> from_tfos(SimpleNamespace(worker_num=2, job_name="worker", task_index=0, cluster_spec=cluster))
        Shard(index=1, count=2)
    """
    if not hasattr(context, "job_name") or not hasattr(context, "cluster_spec"):
        raise InvalidArgumentError(f"from_tfos takes the ctx of TensorFlowOnSpark, not a {type(context).__name__}")
    if not context.cluster_spec:  # TFParallel's independent workers have no cluster, and these numbers alone
        return Shard(context.worker_num, context.num_workers)
    return rank_in_cluster(context.cluster_spec, context.job_name, context.task_index, said_by="the TFoS ctx")


def from_orca_config(config: Mapping[str, Any]) -> Shard:
    """The shard of a worker of BigDL Orca, in a data creator that is given `config`.

    Args:
        config: What Orca gives to `data_creator(config, batch_size)`: with `rank`, and `size` or `num_shards`.

    Raises:
        InvalidArgumentError: It does not say the rank, as under Orca's torch backends.

    Example:
        >>> from_orca_config({"rank": 1, "size": 2, "lr": 0.1})
        Shard(index=1, count=2)
    """
    sizes = {name: config[name] for name in ("size", "num_shards") if name in config}
    if "rank" not in config or not sizes:
        raise InvalidArgumentError(
            "this config of Orca does not say rank and size, as its TensorFlow backends do; under torch use "
            "petastore.distributed.from_torch()"
        )
    counts = {whole_number(size, name=f"config[{name!r}]", least=1) for name, size in sizes.items()}
    if len(counts) > 1:
        raise InvalidArgumentError(f"the config of Orca disagrees with itself: {sizes}")
    return Shard(whole_number(config["rank"], name="config['rank']", least=0), counts.pop())
