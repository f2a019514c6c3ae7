"""Ready-made `all_gather`s, with which ranks find out that they planned the same data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petastore.errors import MissingExtraError, RequestError

__all__ = ["horovod_all_gather", "torch_all_gather"]


def torch_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What every rank of the default process group of torch.distributed passed, in the order of ranks.

    Use it as `reader.plan.assert_agreed(torch_all_gather)`, on every rank.

    Raises:
        MissingExtraError: torch is not installed.
        RequestError: No process group was initialised.
    """
    try:
        import torch.distributed
    except ImportError:
        raise MissingExtraError("torch_all_gather", package="torch", extra="torch") from None
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise RequestError("torch.distributed has no process group yet; call init_process_group first")
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, dict(facts))
    return gathered


def horovod_all_gather(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What every rank of Horovod passed, in the order of ranks.

    Use it as `reader.plan.assert_agreed(horovod_all_gather)`, on every rank, after `hvd.init()`.

    Raises:
        RequestError: Horovod with torch is not installed, or not initialised.
    """
    try:
        import horovod.torch as hvd
    except ImportError:
        raise RequestError("horovod_all_gather needs Horovod built with torch, which is not installed here") from None
    if not hvd.is_initialized():
        raise RequestError("Horovod is not initialised yet; call hvd.init() first")
    return list(hvd.allgather_object(dict(facts)))
