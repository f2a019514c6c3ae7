"""Detect the rank and world size of this process (DDP, Horovod, JAX, Ray, Spark).

The result is a `Shard`.

`make_reader(url, cur_shard="auto")` calls `current_shard`. Each `from_…` function reads the rank from one framework or
launcher: `make_reader(url, cur_shard=petastore.distributed.from_torch(mesh=mesh, mesh_dim="dp"))`. None of these
functions imports a framework, and only `from_jax` may initialize its framework.

Example:
    >>> from petastore.distributed import from_environment
    >>> from_environment({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"})
    Shard(index=3, count=8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from petastore.lazy import late_names

if TYPE_CHECKING:
    from petastore.distributed.current import current_shard
    from petastore.distributed.engines import (
        all_gather,
        barrier_all_gather,
        from_barrier,
        from_horovod,
        from_input_context,
        from_jax,
        from_orca_config,
        from_ray,
        from_tfos,
        from_torch,
        horovod_all_gather,
        jax_all_gather,
        torch_all_gather,
    )
    from petastore.distributed.environment import from_environment, from_tf_config
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

_HOMES = {
    "Shard": "petastore.plan.request",
    "all_gather": "petastore.distributed.engines",
    "barrier_all_gather": "petastore.distributed.engines",
    "current_shard": "petastore.distributed.current",
    "from_barrier": "petastore.distributed.engines",
    "from_environment": "petastore.distributed.environment",
    "from_horovod": "petastore.distributed.engines",
    "from_input_context": "petastore.distributed.engines",
    "from_jax": "petastore.distributed.engines",
    "from_orca_config": "petastore.distributed.engines",
    "from_ray": "petastore.distributed.engines",
    "from_tf_config": "petastore.distributed.environment",
    "from_tfos": "petastore.distributed.engines",
    "from_torch": "petastore.distributed.engines",
    "horovod_all_gather": "petastore.distributed.engines",
    "jax_all_gather": "petastore.distributed.engines",
    "torch_all_gather": "petastore.distributed.engines",
    "with_environment": "petastore.distributed.overrides",
}

__getattr__ = late_names(__name__, _HOMES)
