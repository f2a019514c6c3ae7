"""Shard of this process, detected or given by the caller.

`cur_shard="auto"` detects the shard; otherwise `cur_shard` and `shard_count` give it.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import get_args

from petastore.callers import frames_inside_petastore
from petastore.distributed.engines import live_claims
from petastore.distributed.environment import Claim, agreed, launcher_claims, plain_claims, slurm_claim
from petastore.errors import InvalidArgumentError, UnshardedReaderWarning
from petastore.plan.request import Shard, ShardWord

__all__ = ["asked_shard", "current_shard", "launched_as", "warn_of_other_shard"]


def current_shard() -> Shard:
    """Return the shard of this process; `cur_shard="auto"` calls it.

    The function first queries the frameworks that the program has imported and initialized: Horovod, torch.distributed,
    JAX, Ray Train and Spark barrier tasks. Then it reads the environment variables of launchers, as `from_environment`
    does. All sources must report the same rank and world size. One exception: a running framework takes precedence over
    environment variables, which can be stale (elastic Horovod, or variables of a Ray or Spark daemon).

    This function does not import frameworks, start backends or communicate with other ranks.

    Raises:
        InvalidArgumentError: No source reports a rank, or two sources report different ranks; the message names them.

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
            "the rank of this process is unknown: Horovod, torch.distributed, JAX, Ray Train and Spark barrier "
            "tasks are not initialized here, and RANK and WORLD_SIZE or similar variables are not set. Initialize "
            "the framework before the reader, or pass cur_shard=…, shard_count=… (0 and 1 for a single process)"
        )
    return shard


def launched_as() -> Claim | None:
    """Return the rank that a framework or launcher reports, if it has several ranks.

    Return None for a single process, or if in doubt.

    Warnings use this function: it never raises an error, imports nothing, and takes a few microseconds.
    """
    claims = live_claims() or plain_claims(os.environ)
    return next((claim for claim in claims if claim.shard.count > 1), None)


_log = logging.getLogger(__name__)


def asked_shard(cur_shard: int | Shard | ShardWord | None, shard_count: int | None) -> Shard:
    """Return the shard for a reader's parameters `cur_shard` and `shard_count`.

    Args:
        cur_shard: A rank, from 0; a shard; `"auto"` to call `current_shard`; or None.
        shard_count: Number of ranks; None unless `cur_shard` is a number.

    Raises:
        InvalidArgumentError: `cur_shard` and `shard_count` are invalid, or no framework or launcher reports a rank.

    Warns:
        UnshardedReaderWarning: No shard was passed on one of several ranks.
        UserWarning: The numbers do not fit the rank that the running framework reports. A `Shard` is not checked.

    Example:
        >>> asked_shard(1, 2), asked_shard(Shard(1, 2), None), asked_shard(None, None)
        (Shard(index=1, count=2), Shard(index=1, count=2), Shard(index=0, count=1))
    """
    if cur_shard is None and shard_count is None:
        _warn_on_one_of_several()
    if not isinstance(cur_shard, str):
        shard = Shard.parse(cur_shard, shard_count)
        if shard_count is not None:
            _warn_of_another_rank(shard)
        return shard
    if cur_shard not in get_args(ShardWord):
        advice = f"Pass {int(cur_shard)}" if cur_shard.strip().isdecimal() else "Pass the rank as an int"
        raise InvalidArgumentError(
            f"cur_shard must be an int, a Shard, 'auto' or None, got the str {cur_shard!r:.100}. {advice}"
        )
    if shard_count is not None:
        raise InvalidArgumentError(
            f"shard_count must be left out with cur_shard={cur_shard!r}, which detects it, got {shard_count!r}"
        )
    shard = current_shard()
    _log.info("cur_shard=%r is %d of %d", *get_args(ShardWord), shard.index, shard.count)
    return shard


def _warn_on_one_of_several() -> None:
    launched = launched_as()
    if launched is None:
        return
    rank, ranks = launched.shard.index, launched.shard.count
    warnings.warn(
        f"this process is rank {rank} of {ranks} ({launched.by}), but the reader has no shard, so each rank reads all "
        'rows. Pass cur_shard="auto" to divide the rows, or cur_shard=0, shard_count=1 if each rank should read all '
        "rows",
        UnshardedReaderWarning,
        stacklevel=frames_inside_petastore() + 1,
    )


def _warn_of_another_rank(shard: Shard) -> None:
    claims = live_claims()
    if not claims or any(claim.allows(shard) for claim in claims):
        return
    index, count = shard.index, shard.count
    warnings.warn(
        f"cur_shard={index}, shard_count={count} were given, but {', and '.join(map(str, claims))}: some rows may be "
        'read by several ranks, and others by none. Pass cur_shard="auto", or the global rank, such as hvd.rank() '
        "instead of hvd.local_rank(). If this is intended, pass "
        f"cur_shard=petastore.distributed.Shard({index}, {count}), which is not checked",
        UserWarning,
        stacklevel=frames_inside_petastore() + 1,
    )


def warn_of_other_shard(shard: Shard, *, stacklevel: int = 3) -> None:
    """Warn if the requested shard differs from this process's rank.

    The difference is allowed, and a shard with all rows gives no warning.

    Args:
        shard: Requested shard.
        stacklevel: As in `warnings.warn`: the frame whose line is shown.
    """
    launched = launched_as()
    if launched is None or shard.count == 1 or shard == launched.shard:
        return
    warnings.warn(
        f"this process is rank {launched.shard.index} of {launched.shard.count} ({launched.by}), but "
        f"cur_shard={shard.index} and shard_count={shard.count} were passed, so rows may be read twice or not at all. "
        'Pass cur_shard="auto"',
        UserWarning,
        stacklevel=stacklevel,
    )
