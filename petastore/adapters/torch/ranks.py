"""Ranks that a trainer starts when a loader is there already, and of which its reader knows nothing."""

from __future__ import annotations

import warnings

import torch.distributed

from petastore.callers import frames_inside_petastore
from petastore.distributed.current import launched_as
from petastore.errors import UnshardedReaderWarning
from petastore.plan.request import Shard

__all__ = ["ranks_known", "warn_of_ranks_since"]


def ranks_known() -> int:
    """How many ranks an engine has, or a launcher says that there will be; 1 where nobody plainly says anything.

    Who opens a reader without a shard is warned of these.
    """
    claim = launched_as()
    return 1 if claim is None else claim.shard.count


def warn_of_ranks_since(known: int, shard: Shard) -> None:
    """Warns where ranks are there that were not known, and each of them reads all rows.

    Who opens a reader on one of several ranks is warned there. A trainer that starts the ranks itself, as Lightning
    does, has them only when the loader is iterated.

    Args:
        known: What `ranks_known` said when the loader was made.
        shard: What the loader reads.
    """
    if shard.count > 1 or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    ranks = torch.distributed.get_world_size()
    if ranks > known:
        warnings.warn(
            f"torch.distributed has {ranks} ranks, which it had not when this loader was made, and each of them reads "
            "all rows. Open the reader where the ranks are there, such as in train_dataloader of a LightningModule, "
            "with cur_shard=self.trainer.global_rank, shard_count=self.trainer.world_size; or with cur_shard=0, "
            "shard_count=1 where each rank is to read everything",
            UnshardedReaderWarning,
            stacklevel=frames_inside_petastore() + 1,
        )
