"""Which rank this process is, as a `Shard`: asked of whoever can tell, or of one engine by name.

`make_reader(url, cur_shard="auto")` asks `current_shard`. Each `from_…` asks one engine or launcher, or an object that
an engine gives: `make_reader(url, cur_shard=petastore.distributed.from_torch(mesh=mesh, mesh_dim="dp"))`. No engine is
imported by asking, and none is started but by `from_jax`.

Example:
    >>> from_environment({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"})
    Shard(index=3, count=8)
"""

from __future__ import annotations

from petastore.distributed.contexts import from_barrier, from_input_context, from_orca_config, from_tfos
from petastore.distributed.current import current_shard
from petastore.distributed.engines import from_horovod, from_jax, from_ray, from_torch
from petastore.distributed.environment import from_environment, from_tf_config
from petastore.distributed.gathering import (
    all_gather,
    barrier_all_gather,
    horovod_all_gather,
    jax_all_gather,
    torch_all_gather,
)
from petastore.distributed.overrides import with_environment
from petastore.plan.request import Shard

__all__ = [
    "Shard",
    "all_gather",
    "barrier_all_gather",
    "current_shard",
    "from_barrier",
    "from_environment",
    "from_horovod",
    "from_input_context",
    "from_jax",
    "from_orca_config",
    "from_ray",
    "from_tf_config",
    "from_tfos",
    "from_torch",
    "horovod_all_gather",
    "jax_all_gather",
    "torch_all_gather",
    "with_environment",
]
