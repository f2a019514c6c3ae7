"""Ready-made `all_gather`s, with which ranks find out that they planned the same data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from petastore.distributed.engines import barrier_context, horovod_modules, live_claims
from petastore.errors import InvalidArgumentError, MissingExtraError

__all__ = ["all_gather", "barrier_all_gather", "horovod_all_gather", "jax_all_gather", "torch_all_gather"]


def all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What every rank passed, in the order of ranks, by the engine that is initialised in this process.

    Use it as `reader.plan.assert_agreed(petastore.distributed.all_gather)`, on every rank. Of several engines the first
    counts: Horovod, torch.distributed, JAX, Spark's barrier tasks.

    Args:
        facts: Names to JSON values.

    Raises:
        InvalidArgumentError: No such engine is initialised.
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
        "no engine is initialised here that could ask the other ranks: hvd.init(), "
        "torch.distributed.init_process_group() or jax.distributed.initialize() comes first"
    )


def torch_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What every rank of the default process group of torch.distributed passed, in the order of ranks.

    Use it as `reader.plan.assert_agreed(torch_all_gather)`, on every rank.

    Raises:
        MissingExtraError: torch is not installed.
        InvalidArgumentError: No process group was initialised.
    """
    try:
        import torch.distributed
    except ImportError:
        raise MissingExtraError("torch_all_gather", package="torch", extra="torch") from None
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise InvalidArgumentError("torch.distributed has no process group yet; call init_process_group first")
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, dict(facts))
    return gathered


def horovod_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What every rank of Horovod passed, in the order of ranks.

    Use it as `reader.plan.assert_agreed(horovod_all_gather)`, on every rank, after `hvd.init()` of its torch or
    TensorFlow module.

    Raises:
        InvalidArgumentError: Horovod is not imported, or not initialised.
    """
    modules = [module for module in horovod_modules() if hasattr(module, "allgather_object")]
    if not modules:
        raise InvalidArgumentError(
            "Horovod is not initialised here; import horovod.torch as hvd (or horovod.tensorflow), then call hvd.init()"
        )
    return list(modules[0].allgather_object(dict(facts)))


def jax_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What every process of JAX passed, in the order of processes; facts are JSON values.

    Use it as `reader.plan.assert_agreed(jax_all_gather)`, on every process, after `jax.distributed.initialize()`.

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
    """What every barrier task of Spark passed, in the order of partitions; facts are JSON values.

    Use it as `reader.plan.assert_agreed(barrier_all_gather)`, in every task of the stage.

    Raises:
        InvalidArgumentError: This process runs no barrier task.
    """
    context = barrier_context()
    if context is None:
        raise InvalidArgumentError("this process runs no barrier task of Spark; see petastore.distributed.from_barrier")
    return [json.loads(text) for text in context.allGather(json.dumps(dict(facts)))]
