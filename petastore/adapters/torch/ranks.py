"""Rank of this process in torch.distributed, and checks of sharding.

A warning is shown if ranks were started after the loader was created.
"""

from __future__ import annotations

import os
import warnings

import torch.distributed

from petastore.callers import frames_inside_petastore
from petastore.distributed.current import launched_as
from petastore.errors import InvalidArgumentError, UnshardedReaderWarning
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Shard

__all__ = ["ranks_known", "refuse_unequal_rows", "shard_of_this_process", "warn_of_ranks_since"]


def ranks_known() -> int:
    """Return the number of ranks that a framework or launcher reports; 1 if unknown.

    Opening a reader without a shard warns if there are several ranks.
    """
    claim = launched_as()
    return 1 if claim is None else claim.shard.count


def warn_of_ranks_since(known: int, shard: Shard) -> None:
    """Warn if ranks were started after the loader was created.

    Each rank would then read all rows. Opening a reader already warns if there are several ranks. A trainer that starts
    the ranks itself, such as Lightning, has them only when the loader is iterated.

    Args:
        known: Result of `ranks_known` when the loader was created.
        shard: Shard that the loader reads.
    """
    if shard.count > 1 or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    ranks = torch.distributed.get_world_size()
    if ranks > known:
        warnings.warn(
            f"torch.distributed was initialized with {ranks} ranks after this loader was made, so each rank reads all "
            "rows. Open the reader after the ranks were started, such as in train_dataloader of a LightningModule, "
            "with cur_shard=self.trainer.global_rank, shard_count=self.trainer.world_size. If each rank should read "
            "all rows, pass cur_shard=0, shard_count=1",
            UnshardedReaderWarning,
            stacklevel=frames_inside_petastore() + 1,
        )


def shard_of_this_process(num_replicas: int | None, rank: int | None) -> Shard:
    """Return the shard of this process: the given rank, or that in torch.distributed.

    Return rank 0 of 1 if neither exists.

    Raises:
        InvalidArgumentError: Only one of `num_replicas` and `rank` is given; or the environment variable `WORLD_SIZE`
            announces several ranks, but torch.distributed is not initialized.
    """
    if (num_replicas is None) != (rank is None):
        raise InvalidArgumentError(
            f"num_replicas and rank must be given together, got num_replicas={num_replicas!r} and rank={rank!r}. "
            "Give both, or neither"
        )
    if num_replicas is not None and rank is not None:
        return Shard(rank, num_replicas)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Shard(torch.distributed.get_rank(), torch.distributed.get_world_size())
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InvalidArgumentError(
            f"torch.distributed must be initialized, because WORLD_SIZE is {os.environ['WORLD_SIZE']}, and the rank "
            "is unknown. Call torch.distributed.init_process_group first, or pass num_replicas and rank"
        )
    return Shard()


def refuse_unequal_rows(plan: Plan) -> None:
    """Raise an error if ranks have different numbers of rows.

    If torch makes batches of single rows, such ranks could have different numbers of batches.

    Raises:
        InvalidArgumentError: Ranks would have different numbers of rows.
    """
    ranks = plan.request.shard.count
    if plan.request.last_batch is LastBatch.EVEN and plan.num_rows % ranks:
        raise InvalidArgumentError(
            f"batch_size must be given where {plan.num_rows:,} rows do not divide equally among {ranks} ranks: a "
            "rank with one row more may have one batch more, and would wait forever for the others. Pass "
            "batch_size, which gives equal numbers of batches, or last_batch='drop' or 'wrap'"
        )
