"""Which rank this process is in an engine that runs in it: Horovod, torch.distributed, JAX, Ray Train, Spark.

An engine is asked only where the program has imported it: nothing is imported here, and no backend is started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from petastore.distributed.claim import Claim, agreed
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["barrier_context", "from_horovod", "from_jax", "from_ray", "from_torch", "horovod_modules", "live_claims"]

# Their tasks are started by daemons, in the environment of whatever had started those.
_OF_DAEMONS: Final = frozenset({"openmpi", "mpich", "slurm"})


def from_horovod(process_set: Any = None) -> Shard:
    """The shard of this rank of Horovod, by its API: right also after a reset of elastic Horovod.

    Args:
        process_set: An `hvd.ProcessSet` of ranks that divide the rows among them; None is all ranks.

    Raises:
        InvalidArgumentError: Horovod is not imported or not initialised, or this rank is not in the set.
    """
    shard = agreed(list(_horovod()))
    if shard is None:
        raise InvalidArgumentError(
            "Horovod is not initialised; import horovod.torch as hvd (or horovod.tensorflow), then hvd.init()"
        )
    if process_set is None:
        return shard
    if process_set.process_set_id is None:
        raise InvalidArgumentError(
            "Horovod does not know this process set; give it to hvd.init() or hvd.add_process_set() first"
        )
    if not process_set.included():
        raise InvalidArgumentError(
            f"rank {shard.index} is not in the process set of ranks {list(process_set.ranks)}, so it reads "
            "none of its rows; open the reader on those ranks alone"
        )
    return Shard(process_set.rank(), process_set.size())


def from_torch(
    group: ProcessGroup | None = None,
    *,
    mesh: DeviceMesh | None = None,
    mesh_dim: str | int | Sequence[str | int] | None = None,
) -> Shard:
    """The shard of this rank of torch.distributed, or of its place in a device mesh.

    Ranks of a mesh that differ only in other dimensions, such as tensor-parallel peers, get the same shard and so the
    same batches.

    Args:
        group: A process group whose ranks divide the rows; None is the default one.
        mesh: A device mesh; not together with `group`.
        mesh_dim: The dimension of the mesh that divides the rows, by name or number; or several, outermost first, such
            as `("dp_replicate", "dp_shard")`. A mesh of one dimension needs none.

    Raises:
        InvalidArgumentError: There is no process group, this rank is not in it, or the mesh has no such dimension.
    """
    distributed = _torch_distributed()
    if distributed is None:
        raise InvalidArgumentError("torch.distributed has no process group yet; call init_process_group first")
    if mesh is not None:
        if group is not None:
            raise InvalidArgumentError("group= and mesh= were both given; give the one whose ranks divide the rows")
        return _in_mesh(mesh, mesh_dim)
    if mesh_dim is not None:
        raise InvalidArgumentError(f"mesh_dim={mesh_dim!r} needs mesh=…, the device mesh that has it")
    rank = distributed.get_rank(group)
    if rank < 0:
        raise InvalidArgumentError(
            "this rank is not in the process group, so it reads none of its rows; open no reader on it"
        )
    return Shard(rank, distributed.get_world_size(group))


def from_jax() -> Shard:
    """The shard of this process of JAX.

    Before `jax.distributed.initialize` it asks `jax.process_index()`, which starts JAX's backend.

    Raises:
        InvalidArgumentError: JAX is not imported.
    """
    claim = next(_jax(), None)
    if claim is not None:
        return claim.shard
    jax = sys.modules.get("jax")
    if jax is None:
        raise InvalidArgumentError(
            "JAX is not imported; import jax, and call jax.distributed.initialize() where it is needed"
        )
    return Shard(jax.process_index(), jax.process_count())


def from_ray() -> Shard:
    """The shard of this worker of Ray Train: for the function that a trainer runs.

    Raises:
        InvalidArgumentError: This process is no such worker.
    """
    claim = next(_ray(), None)
    if claim is None:
        raise InvalidArgumentError(
            "this is no worker of Ray Train; open the reader inside the function that is given to the trainer"
        )
    return claim.shard


def live_claims() -> list[Claim]:
    """What engines that run in this process say of its rank; takes microseconds."""
    return [claim for ask in (_horovod, _torch, _jax, _ray, _barrier) for claim in ask()]


def horovod_modules() -> list[Any]:
    """Horovod's modules in which it is initialised: each framework's has ranks of its own."""
    names = ("horovod.torch", "horovod.tensorflow", "horovod.mxnet")
    modules = [module for name in names if (module := sys.modules.get(name)) is not None]
    return [module for module in modules if hasattr(module, "is_initialized") and module.is_initialized()]


def barrier_context() -> Any:
    """The context of the barrier task of Spark that this process runs; None elsewhere."""
    module = sys.modules.get("pyspark.taskcontext")
    if module is None or not isinstance(module.TaskContext.get(), module.BarrierTaskContext):
        return None
    return module.TaskContext.get()


def _horovod() -> Iterator[Claim]:
    for hvd in horovod_modules():
        # Its variables are of the time before the last reset.
        yield Claim(Shard(hvd.rank(), hvd.size()), hvd.__name__, frozenset({"horovod"}))


def _torch_distributed() -> Any:
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)  # not there in builds without it
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
    except (RuntimeError, DeprecationWarning):  # on the driver, and inside Ray Tune
        return
    if not type(context).__module__.startswith("ray.train.v2"):
        # Its first version, which some still switch on, says 0 of 1 to whoever is no worker.
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
            "this rank is not in the device mesh, so it reads none of its rows; open no reader on it"
        )
    index, count = 0, 1
    for dimension in _dimensions(mesh, mesh_dim):
        index, count = index * mesh.size(dimension) + place[dimension], count * mesh.size(dimension)
    return Shard(index, count)


def _dimensions(mesh: DeviceMesh, mesh_dim: str | int | Sequence[str | int] | None) -> list[int]:
    """Numbers of the dimensions that are asked for, in that order."""
    names = list(mesh.mesh_dim_names or ())
    known = f"its dimensions are {names or list(range(mesh.ndim))}"
    if mesh_dim is None:
        if mesh.ndim != 1:
            raise InvalidArgumentError(f"which dimension of the device mesh divides the rows? Give mesh_dim=…; {known}")
        return [0]
    asked = [mesh_dim] if isinstance(mesh_dim, (str, int)) else list(mesh_dim)
    found = [names.index(name) if isinstance(name, str) and name in names else name for name in asked]
    for name, number in zip(asked, found, strict=True):
        if isinstance(number, (str, bool)) or not isinstance(number, int) or not 0 <= number < mesh.ndim:
            raise InvalidArgumentError(f"mesh_dim={name!r}: the device mesh has no such dimension; {known}")
    if not found or len(set(found)) != len(found):
        raise InvalidArgumentError(f"mesh_dim={mesh_dim!r} must name dimensions of the device mesh, each once; {known}")
    return [int(number) for number in found]
