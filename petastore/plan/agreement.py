"""Whether ranks planned the same: seen at once, instead of as a hang in an all-reduce an hour later. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.plan.request import ReadRequest

__all__ = ["AllGather", "assert_agreed", "facts_of"]

AllGather = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Gives what every rank passed to it, in the order of ranks: an `all_gather` of small picklable objects."""


def facts_of(request: ReadRequest, *, dataset: str, rows: int, row_groups: int) -> dict[str, Any]:
    """What ranks must agree on, by name, and which shard this one is: a new dict of JSON values, under a kilobyte.

    Columns are left out: ranks may well read different ones.
    """
    return {
        "dataset": dataset,
        "rows": rows,
        "row groups": row_groups,
        **request.order.as_dict(),
        "num_epochs": request.epochs,
        "last_batch": request.last_batch.value,
        "shard_count": request.shard.count,
        "cur_shard": request.shard.index,
    }


def assert_agreed(mine: Mapping[str, Any], all_gather: AllGather) -> None:
    """Refuses ranks whose facts differ; every rank calls it, and every rank raises alike.

    Args:
        mine: This rank's facts by name, small and picklable, `cur_shard` and `shard_count` among them: all but the
            first must be the same on all ranks.
        all_gather: Gives what every rank passed to it; `petastore.distributed.all_gather` does, by whatever
            engine is initialised.

    Raises:
        InvalidArgumentError: Ranks planned different data, or two of them the same shard; both sides' facts are named.

    Example:
        >>> facts = [{"seed": rank, "shard_count": 2, "cur_shard": rank} for rank in range(2)]
        >>> assert_agreed(facts[0], lambda mine: facts)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: ranks planned different data: seed is 0 on rank 0 and 1 on rank 1
    """
    everybody = [dict(facts) for facts in all_gather(mine)]
    shards = [facts.pop("cur_shard", None) for facts in everybody]
    differences = [
        f"{name} is {everybody[0].get(name)!r} on rank 0 and {facts.get(name)!r} on rank {rank}"
        for rank, facts in enumerate(everybody)
        for name in everybody[0]
        if facts.get(name) != everybody[0][name]
    ]
    if differences:
        more = f" (and {len(differences) - 3:,} more)" if len(differences) > 3 else ""
        raise InvalidArgumentError(f"ranks planned different data: {'; '.join(differences[:3])}{more}")
    count = mine["shard_count"]
    if sorted(map(str, shards)) != sorted(map(str, range(count))):
        raise InvalidArgumentError(
            f"ranks must have the shards 0 to {count - 1}, each once, but ranks in turn have {shards}; "
            "give cur_shard and shard_count from the launcher's rank and world size"
        )
