"""The shard that a reader's two parameters ask for, settled once, at the call."""

from __future__ import annotations

import logging
import warnings
from typing import get_args

from petastore.callers import frames_inside_petastore
from petastore.distributed.current import current_shard, launched_as
from petastore.distributed.engines import live_claims
from petastore.errors import InvalidArgumentError, UnshardedReaderWarning
from petastore.plan.request import Shard, ShardWord, known_word

__all__ = ["asked_shard"]

_log = logging.getLogger(__name__)


def asked_shard(cur_shard: int | Shard | ShardWord | None, shard_count: int | None) -> Shard:
    """The shard of a reader's two parameters.

    Args:
        cur_shard: A rank, from 0; a shard; `"auto"` for what `current_shard` says; or None.
        shard_count: Ranks; None unless `cur_shard` is a number.

    Raises:
        InvalidArgumentError: They cannot be so, or nobody can tell.

    Warns:
        UnshardedReaderWarning: Nothing was said on one of several ranks, at the line outside petastore.
        UserWarning: Numbers were given that are this rank's in no division of the ranks of the engine that runs here,
            at the same line. A `Shard` is taken as it is.

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
    known_word(cur_shard, ShardWord, name="cur_shard")
    if shard_count is not None:
        raise InvalidArgumentError(
            f"cur_shard={cur_shard!r} finds the number of ranks, too, but shard_count={shard_count!r} was given; leave "
            "it out"
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
        f"this process is rank {rank} of {ranks} ({launched.by}), but the reader was told no shard, so each rank reads "
        'all rows. Write cur_shard="auto" for its part of them, or cur_shard=0, shard_count=1 where each rank is to '
        "read everything",
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
        'read by several ranks, and others by none. Write cur_shard="auto", or the rank among all, such as hvd.rank(), '
        "where hvd.local_rank() is that on one host. If it is meant so, "
        f"cur_shard=petastore.distributed.Shard({index}, {count}) is taken as it is",
        UserWarning,
        stacklevel=frames_inside_petastore() + 1,
    )
