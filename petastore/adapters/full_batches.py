"""Whether all batches of a reader are full, as arrays that lie over many devices need them. Knows no framework."""

from __future__ import annotations

from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard, Tail

__all__ = ["refuse_unequal_batches"]


def refuse_unequal_batches(reader: Any, batch_size: int, *, parts: int) -> None:
    """Refuses batches that cannot be divided over devices: each has to have `batch_size` rows, in equal parts.

    Args:
        reader: Gives the batches.
        batch_size: Rows of a batch of this rank.
        parts: Into how many parts each batch is divided; 1 where that does not matter, except between ranks.

    Raises:
        InvalidArgumentError: They are not, by `last_batch`, or `batch_size` has no such parts; the message names the
            tails that fit.
    """
    if batch_size % parts:
        raise InvalidArgumentError(
            f"batches of {batch_size:,} rows have no {parts:,} equal parts, one for each device of this process; give "
            f"a batch_size that is a multiple of {parts:,}"
        )
    if reader.plan.request.last_batch is not Tail.EVEN or reader.shard.count * parts == 1:
        return
    full, plan = batch_size * reader.steps_per_epoch(batch_size), reader.plan
    ranks = range(reader.shard.count)
    if all(plan.for_shard(Shard(rank, len(ranks))).rows_per_epoch(batch_size) == full for rank in ranks):
        return
    raise InvalidArgumentError(
        "last_batch='even' has each rank take its share of what is left for the last batch of an epoch, and shares "
        "differ, but arrays over many devices have equal parts; ask make_reader for last_batch='drop', which leaves "
        "the rest out, last_batch='pad', which fills it up with repeats that the column 'valid' marks, or "
        "last_batch='wrap', which fills it up with rows of the epoch's beginning"
    )
