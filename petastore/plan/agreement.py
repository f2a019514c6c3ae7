"""Check that all ranks have the same plan: raise an error instead of a deadlock in an all-reduce. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.plan.request import ReadRequest

__all__ = ["AllGather", "assert_agreed", "facts_of"]

AllGather = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Function that returns the values of all ranks, in the order of ranks: an `all_gather` of small picklable objects."""


def facts_of(request: ReadRequest, *, dataset: str, rows: int, row_groups: int) -> dict[str, Any]:
    """Return the values that must be equal on all ranks, by name, and this rank's shard: a new dict of JSON values.

    Columns are not included, because ranks may read different columns.
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
    """Raise an error on every rank if the facts of ranks differ. Call it on every rank.

    Args:
        mine: This rank's facts by name, small and picklable, with `cur_shard` and `shard_count`. All facts except
            `cur_shard` must be equal on all ranks.
        all_gather: Function that returns the values of all ranks, such as `petastore.distributed.all_gather`, which
            uses the initialized framework.

    Raises:
        InvalidArgumentError: Two ranks have different plans, or the same shard; the message has the facts of both
            ranks.

    Example:
        >>> facts = [{"seed": rank, "shard_count": 2, "cur_shard": rank} for rank in range(2)]
        >>> assert_agreed(facts[0], lambda mine: facts)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: all ranks must plan the same data, got seed is 0 on rank 0 and 1 on rank
            1. Pass the same arguments on every rank
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
        raise InvalidArgumentError(
            f"all ranks must plan the same data, got {'; '.join(differences[:3])}{more}. Pass the same arguments on "
            "every rank"
        )
    count = mine["shard_count"]
    if sorted(map(str, shards)) != sorted(map(str, range(count))):
        raise InvalidArgumentError(
            f"ranks must have the shards 0 to {count - 1}, each once, got {shards} in the order of ranks. Take "
            "cur_shard and shard_count from the launcher's rank and world size"
        )
