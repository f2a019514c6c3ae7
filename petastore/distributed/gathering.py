"""`all_gather` functions, by which ranks check that their plans agree.

Each function uses one framework. A plan determines the rows of each batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from petastore.distributed.engines import barrier_context, horovod_modules, live_claims
from petastore.errors import InvalidArgumentError, MissingExtraError

__all__ = ["all_gather", "barrier_all_gather", "horovod_all_gather", "jax_all_gather", "torch_all_gather"]


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
