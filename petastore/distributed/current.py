"""Which rank this process is, asked of whoever can tell."""

from __future__ import annotations

import os

from petastore.distributed.claim import Claim, agreed
from petastore.distributed.engines import live_claims
from petastore.distributed.environment import launcher_claims, plain_claims, slurm_claim
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

__all__ = ["current_shard", "launched_as"]


def current_shard() -> Shard:
    """The shard of this process; what `cur_shard="auto"` reads.

    It asks engines that the program has imported and initialised: Horovod, torch.distributed, JAX, Ray Train and
    Spark's barrier tasks. Then it asks launchers, by their variables, as `from_environment` does. All that is said must
    be the same; but Horovod and torch.distributed overrule their own variables, which are as old as the process, and
    Ray and Spark those that their daemons were started with.

    Imports nothing, starts nothing, and talks to no other process.

    Raises:
        InvalidArgumentError: Nobody can tell; or two of them disagree, who are named.

    Example:
        >>> from unittest import mock
        >>> with mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "4"}):  # torchrun sets these
        ...     current_shard()
        Shard(index=1, count=4)
    """
    live = live_claims()
    overruled = frozenset().union(*(claim.overrules for claim in live))
    around = None if "slurm" in overruled else slurm_claim(os.environ)
    shard = agreed([*live, *launcher_claims(os.environ, overruled)], around)
    if shard is None:
        raise InvalidArgumentError(
            "nobody can tell which rank this process is: no Horovod, torch.distributed, JAX, Ray Train or barrier task "
            "of Spark is initialised here, and no launcher has set RANK and WORLD_SIZE or the like; initialise the "
            "engine before the reader, or give cur_shard=…, shard_count=… (0 and 1 for one process alone)"
        )
    return shard


def launched_as() -> Claim | None:
    """What is plainly said of this process, as one of several ranks; None for one alone, and where there is doubt.

    It is for warnings: never raises, imports nothing, and takes some microseconds.
    """
    claims = live_claims() or plain_claims(os.environ)
    return next((claim for claim in claims if claim.shard.count > 1), None)
