"""Detect the rank of this process from a framework, and gather values from all ranks with it.

The frameworks are Horovod, torch.distributed, JAX, Ray Train, Spark, TensorFlow and BigDL Orca.

`from_input_context`, `from_barrier`, `from_tfos` and `from_orca_config` read the rank from the object that the
framework passes to the user's function. By the `all_gather` functions, ranks check that their plans agree; a plan
determines the rows of each batch.

A framework is used only if the program has imported it. This module does not import frameworks, and only `from_jax`
may start a backend.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from petastore.distributed.environment import Claim, agreed, rank_in_cluster
from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.plan.request import Shard, whole_number

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

__all__ = [
    "all_gather",
    "barrier_all_gather",
    "barrier_context",
    "from_barrier",
    "from_horovod",
    "from_input_context",
    "from_jax",
    "from_orca_config",
    "from_ray",
    "from_tfos",
    "from_torch",
    "horovod_all_gather",
    "horovod_modules",
    "jax_all_gather",
    "live_claims",
    "torch_all_gather",
]

# Launchers whose variables are ignored in tasks of Ray and Spark: a daemon starts these tasks, and passes them its own
# environment variables.
_OF_DAEMONS: Final = frozenset({"openmpi", "mpich", "slurm"})


def from_horovod(process_set: Any = None) -> Shard:
    """Return the shard of this Horovod rank, from Horovod's API.

    The shard is correct also after a reset of elastic Horovod.

    Args:
        process_set: `hvd.ProcessSet` whose ranks share the rows; None means all ranks.

    Raises:
        InvalidArgumentError: Horovod is not imported or not initialised, or this rank is not in the process set.
    """
    shard = agreed(list(_horovod()))
    if shard is None:
        raise InvalidArgumentError(
            "Horovod is not initialized. Import horovod.torch as hvd (or horovod.tensorflow), then call hvd.init()"
        )
    if process_set is None:
        return shard
    if process_set.process_set_id is None:
        raise InvalidArgumentError(
            "process_set must be registered with Horovod, got an unknown one. Pass it to hvd.init() or "
            "hvd.add_process_set() first"
        )
    if not process_set.included():
        raise InvalidArgumentError(
            f"process_set must include this rank, got rank {shard.index} and the ranks {list(process_set.ranks)}. "
            "Open the reader on those ranks only"
        )
    return Shard(process_set.rank(), process_set.size())


def from_torch(
    group: ProcessGroup | None = None,
    *,
    mesh: DeviceMesh | None = None,
    mesh_dim: str | int | Sequence[str | int] | None = None,
) -> Shard:
    """Return the shard of this torch.distributed rank.

    Pass a device mesh for FSDP and other parallelism in several dimensions. The shard is then the rank's coordinate
    along `mesh_dim`, and the size of this dimension.

    Ranks that differ only in other mesh dimensions, such as tensor-parallel peers, get the same shard and the same
    batches.

    Args:
        group: Process group whose ranks share the rows; None means the default group.
        mesh: A device mesh, instead of `group`.
        mesh_dim: Name or number of the mesh dimension along which the rows are divided; or several, outermost first,
            such as `("dp_replicate", "dp_shard")`. Optional for a mesh of one dimension.

    Raises:
        InvalidArgumentError: No process group is initialized, this rank is not in the group, or the mesh does not have
            the dimension.
    """
    distributed = _torch_distributed()
    if distributed is None:
        raise InvalidArgumentError("torch.distributed is not initialized. Call init_process_group first")
    if mesh is not None:
        if group is not None:
            raise InvalidArgumentError(
                "group and mesh must not both be given. Pass the one whose ranks divide the rows"
            )
        return _in_mesh(mesh, mesh_dim)
    if mesh_dim is not None:
        raise InvalidArgumentError(
            f"mesh must be given with mesh_dim={mesh_dim!r}. Pass the device mesh that has this dimension"
        )
    rank = distributed.get_rank(group)
    if rank < 0:
        raise InvalidArgumentError(
            "group must include this rank, got a group without it. Open the reader on the ranks of the group only"
        )
    return Shard(rank, distributed.get_world_size(group))


def from_jax() -> Shard:
    """Return the shard of this JAX process.

    If `jax.distributed.initialize` was not called, this function calls `jax.process_index()`, which starts JAX's
    backend.

    Raises:
        InvalidArgumentError: JAX is not imported.
    """
    claim = next(_jax(), None)
    if claim is not None:
        return claim.shard
    jax = sys.modules.get("jax")
    if jax is None:
        raise InvalidArgumentError(
            "JAX is not imported. Import jax, and call jax.distributed.initialize() with several processes"
        )
    return Shard(jax.process_index(), jax.process_count())


def from_ray() -> Shard:
    """Return the shard of this Ray Train worker, in the function that a trainer runs.

    Raises:
        InvalidArgumentError: This process is not a Ray Train worker.
    """
    claim = next(_ray(), None)
    if claim is None:
        raise InvalidArgumentError(
            "this process is not a Ray Train worker. Open the reader inside the function that the trainer runs"
        )
    return claim.shard


def live_claims() -> list[Claim]:
    """Return the rank that each framework running in this process reports.

    This takes microseconds.
    """
    return [claim for ask in (_horovod, _torch, _jax, _ray, _barrier) for claim in ask()]


def horovod_modules() -> list[Any]:
    """Return the initialized modules of Horovod, one for each framework.

    The module of each framework has its own ranks.
    """
    names = ("horovod.torch", "horovod.tensorflow", "horovod.mxnet")
    modules = [module for name in names if (module := sys.modules.get(name)) is not None]
    return [module for module in modules if hasattr(module, "is_initialized") and module.is_initialized()]


def barrier_context() -> Any:
    """Return the context of the Spark barrier task that this process runs.

    Return None outside of a barrier task.
    """
    module = sys.modules.get("pyspark.taskcontext")
    if module is None or not isinstance(module.TaskContext.get(), module.BarrierTaskContext):
        return None
    return module.TaskContext.get()


def _horovod() -> Iterator[Claim]:
    for hvd in horovod_modules():
        # Horovod's environment variables have the old rank after an elastic reset.
        yield Claim(Shard(hvd.rank(), hvd.size()), hvd.__name__, frozenset({"horovod"}))


def _torch_distributed() -> Any:
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)  # missing in torch builds without distributed
    return distributed if is_initialized is not None and is_initialized() else None


def _torch() -> Iterator[Claim]:
    distributed = _torch_distributed()
    if distributed is not None:
        shard = Shard(distributed.get_rank(), distributed.get_world_size())
        yield Claim(shard, "torch.distributed", frozenset({"torchrun"}))


def _jax() -> Iterator[Claim]:
    # `jax.process_index()` would start the backend, and wait until all other processes start theirs.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is not None and state.client is not None:
        yield Claim(Shard(state.process_id, state.num_processes), "jax.distributed")


def _ray() -> Iterator[Claim]:
    train = sys.modules.get("ray.train")
    if train is None or not hasattr(train, "get_context"):
        return
    try:
        context = train.get_context()
    except (RuntimeError, DeprecationWarning):  # Ray raises this on the driver, and inside Ray Tune
        return
    if not type(context).__module__.startswith("ray.train.v2"):
        # Ray Train v1, which some programs still enable, reports rank 0 of 1 outside of workers.
        session = sys.modules.get("ray.train._internal.session")
        if session is None or session.get_session() is None:
            return
    rank, size = context.get_world_rank(), context.get_world_size()
    if rank is not None and size is not None:
        yield Claim(Shard(rank, size), "Ray Train", _OF_DAEMONS)


def _barrier() -> Iterator[Claim]:
    context = barrier_context()
    if context is not None:
        shard = Shard(context.partitionId(), len(context.getTaskInfos()))
        yield Claim(shard, "Spark's BarrierTaskContext", _OF_DAEMONS)


def _in_mesh(mesh: DeviceMesh, mesh_dim: str | int | Sequence[str | int] | None) -> Shard:
    place = mesh.get_coordinate()
    if place is None:
        raise InvalidArgumentError(
            "mesh must include this rank, got a mesh without it. Open the reader on the ranks of the mesh only"
        )
    index, count = 0, 1
    for dimension in _dimensions(mesh, mesh_dim):
        index, count = index * mesh.size(dimension) + place[dimension], count * mesh.size(dimension)
    return Shard(index, count)


def _dimensions(mesh: DeviceMesh, mesh_dim: str | int | Sequence[str | int] | None) -> list[int]:
    """Return the indices of the requested mesh dimensions, in the requested order."""
    names = list(mesh.mesh_dim_names or ())
    known = f"its dimensions are {names or list(range(mesh.ndim))}"
    if mesh_dim is None:
        if mesh.ndim != 1:
            raise InvalidArgumentError(
                f"mesh_dim must name the dimensions that divide the rows of a {mesh.ndim}-dimensional mesh, got None; "
                f"{known}"
            )
        return [0]
    dimensions = [mesh_dim] if isinstance(mesh_dim, (str, int)) else list(mesh_dim)
    found = [names.index(name) if isinstance(name, str) and name in names else name for name in dimensions]
    for name, number in zip(dimensions, found, strict=True):
        if isinstance(number, (str, bool)) or not isinstance(number, int) or not 0 <= number < mesh.ndim:
            raise InvalidArgumentError(f"mesh_dim must be a dimension of the device mesh, got {name!r}; {known}")
    if not found or len(set(found)) != len(found):
        raise InvalidArgumentError(
            f"mesh_dim must name dimensions of the device mesh, each once, got {mesh_dim!r}; {known}"
        )
    return [int(number) for number in found]


def from_input_context(context: Any) -> Shard:
    """Return the shard of a TensorFlow input pipeline.

    Call this function in the function that you pass to `distribute_datasets_from_function`.

    Args:
        context: The `tf.distribute.InputContext` that TensorFlow passes to the function.

    Raises:
        InvalidArgumentError: `context` is not an `InputContext`.

    Example:
        >>> from types import SimpleNamespace
        >>> from_input_context(SimpleNamespace(input_pipeline_id=1, num_input_pipelines=4))
        Shard(index=1, count=4)
    """
    if not hasattr(context, "input_pipeline_id") or not hasattr(context, "num_input_pipelines"):
        raise InvalidArgumentError(f"context must be a tf.distribute.InputContext, got {type(context).__name__}")
    return Shard(context.input_pipeline_id, context.num_input_pipelines)


def from_barrier(context: Any = None) -> Shard:
    """Return the shard of a Spark barrier task: its partition is its rank.

    Args:
        context: The `pyspark.BarrierTaskContext`; None calls `BarrierTaskContext.get()`.

    Raises:
        InvalidArgumentError: This process does not run a barrier task.
    """
    context = barrier_context() if context is None else context
    if context is None:
        raise InvalidArgumentError(
            "this process does not run a Spark barrier task. Start the tasks with rdd.barrier().mapPartitions(…) or "
            "df.mapInArrow(…, barrier=True), and open the reader inside"
        )
    if not hasattr(context, "getTaskInfos"):
        raise InvalidArgumentError(
            f"context must be a BarrierTaskContext, got {type(context).__name__}: other tasks do not know their "
            "number. Start "
            "the tasks with rdd.barrier().mapPartitions(…)"
        )
    return Shard(context.partitionId(), len(context.getTaskInfos()))


def from_tfos(context: Any) -> Shard:
    """Return the shard of a TensorFlowOnSpark node.

    Use it in the function that you pass to `TFCluster.run` or `TFParallel.run`. Do not use `ctx.worker_num` as the
    rank, because that number also counts parameter servers and evaluators.

    Args:
        context: The `ctx` argument of the function.

    Raises:
        InvalidArgumentError: The node is a parameter server, which reads no data.

    Example:
        >>> from types import SimpleNamespace
        >>> cluster = {"ps": ["a:1"], "chief": ["b:1"], "worker": ["c:1"]}
        >>> from_tfos(SimpleNamespace(worker_num=2, job_name="worker", task_index=0, cluster_spec=cluster))
        Shard(index=1, count=2)
    """
    if not hasattr(context, "job_name") or not hasattr(context, "cluster_spec"):
        raise InvalidArgumentError(f"context must be the ctx of TensorFlowOnSpark, got {type(context).__name__}")
    if not context.cluster_spec:  # independent workers of TFParallel have a number, but no cluster
        return Shard(context.worker_num, context.num_workers)
    return rank_in_cluster(context.cluster_spec, context.job_name, context.task_index, said_by="the TFoS ctx")


def from_orca_config(config: Mapping[str, Any]) -> Shard:
    """Return the shard of a BigDL Orca worker.

    Call this function in a data creator, which receives `config` from Orca.

    Args:
        config: The `config` of Orca's `data_creator(config, batch_size)`, with `rank`, and `size` or `num_shards`.

    Raises:
        InvalidArgumentError: `config` has no rank, as in Orca's torch backends.

    Example:
        >>> from_orca_config({"rank": 1, "size": 2, "lr": 0.1})
        Shard(index=1, count=2)
    """
    sizes = {name: config[name] for name in ("size", "num_shards") if name in config}
    if "rank" not in config or not sizes:
        raise InvalidArgumentError(
            "config must have rank and size, as with Orca's TensorFlow backends, got the keys "
            f"{sorted(map(str, config))}. With torch use petastore.distributed.from_torch()"
        )
    counts = {whole_number(size, name=f"config[{name!r}]", least=1) for name, size in sizes.items()}
    if len(counts) > 1:
        raise InvalidArgumentError(f"config of Orca must have the same number of ranks everywhere, got {sizes}")
    return Shard(whole_number(config["rank"], name="config['rank']", least=0), counts.pop())


def all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Gather a JSON value from every rank, in the order of ranks.

    The function uses the framework that is initialized. Pass it to
    `reader.plan.assert_agreed(petastore.distributed.all_gather)` on every rank. If several frameworks are initialized,
    the first of Horovod, torch.distributed, JAX and Spark barrier tasks is used.

    Args:
        facts: Dict of JSON values from this rank.

    Raises:
        InvalidArgumentError: No such framework is initialized.
    """
    by = {claim.by for claim in live_claims()}
    if horovod_modules():
        return horovod_all_gather(facts)
    if "torch.distributed" in by:
        return torch_all_gather(facts)
    if "jax.distributed" in by:
        return jax_all_gather(facts)
    if barrier_context() is not None:
        return barrier_all_gather(facts)
    raise InvalidArgumentError(
        "no framework is initialized to gather from all ranks. Call hvd.init(), "
        "torch.distributed.init_process_group() or jax.distributed.initialize() first"
    )


def torch_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Gather a JSON value from every torch.distributed rank, in the order of ranks.

    The ranks are those of the default process group.

    Pass it to `reader.plan.assert_agreed(torch_all_gather)` on every rank.

    Raises:
        MissingExtraError: torch is not installed.
        InvalidArgumentError: The process group is not initialized.
    """
    try:
        import torch.distributed
    except ImportError:
        raise MissingExtraError("torch_all_gather", package="torch", extra="torch") from None
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise InvalidArgumentError("torch.distributed is not initialized. Call init_process_group first")
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, dict(facts))
    return gathered


def horovod_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Gather a JSON value from every Horovod rank, in the order of ranks.

    Pass it to `reader.plan.assert_agreed(horovod_all_gather)` on every rank, after `hvd.init()` of Horovod's torch or
    TensorFlow module.

    Raises:
        InvalidArgumentError: Horovod is not imported, or not initialised.
    """
    modules = [module for module in horovod_modules() if hasattr(module, "allgather_object")]
    if not modules:
        raise InvalidArgumentError(
            "Horovod is not initialized. Import horovod.torch as hvd (or horovod.tensorflow), then call hvd.init()"
        )
    return list(modules[0].allgather_object(dict(facts)))


def jax_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Gather a JSON value from every JAX process, in the order of processes.

    Pass it to `reader.plan.assert_agreed(jax_all_gather)` on every process, after `jax.distributed.initialize()`.

    Raises:
        MissingExtraError: JAX is not installed.
    """
    try:
        from jax.experimental.multihost_utils import process_allgather
    except ImportError:
        raise MissingExtraError("jax_all_gather", package="jax", extra="jax") from None
    mine = np.frombuffer(json.dumps(dict(facts)).encode(), dtype=np.uint8)
    lengths = np.asarray(process_allgather(np.array(len(mine), dtype=np.int32))).reshape(-1)
    padded = np.zeros(int(lengths.max()), dtype=np.uint8)
    padded[: len(mine)] = mine
    rows = np.asarray(process_allgather(padded)).reshape(len(lengths), -1)
    return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]


def barrier_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Gather a JSON value from every Spark barrier task, in the order of partitions.

    Pass it to `reader.plan.assert_agreed(barrier_all_gather)` in every task of the stage.

    Raises:
        InvalidArgumentError: This process does not run a barrier task.
    """
    context = barrier_context()
    if context is None:
        raise InvalidArgumentError(
            "this process must run a Spark barrier task, got another process. Start the tasks with "
            "rdd.barrier().mapPartitions(…), and call barrier_all_gather inside"
        )
    return [json.loads(text) for text in context.allGather(json.dumps(dict(facts)))]
