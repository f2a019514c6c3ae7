"""Whether ranks planned the same: seen at once, instead of as a hang in an all-reduce an hour later. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from petastore.errors import RequestError
from petastore.plan.mixture import Mixture
from petastore.plan.plan import Plan

__all__ = ["AllGather", "assert_agreed", "plan_facts"]

AllGather = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Gives what every rank passed to it, in the order of ranks: an `all_gather` of small picklable objects."""


def plan_facts(plan: Plan | Mixture) -> dict[str, Any]:
    """What ranks must agree on, by name, and which shard this one is: a new dict of JSON values, under a kilobyte.

    Columns are left out: ranks may well read different ones.
    """
    request = plan.request
    return {
        "dataset": plan.data_fingerprint,
        **(plan.facts() if isinstance(plan, Mixture) else {}),
        "rows": plan.num_rows,
        "row groups": plan.inventory.num_row_groups,
        **dataclasses.asdict(request.order),
        "num_epochs": request.epochs,
        "tail": request.tail.value,
        "shard_count": request.shard.count,
        "cur_shard": request.shard.index,
    }


def assert_agreed(plan: Plan | Mixture, all_gather: AllGather) -> None:
    """Refuses ranks that planned different data; every rank calls it, and every rank raises alike.

    Args:
        plan: This rank's plan.
        all_gather: Gives what every rank passed to it; `petastore.adapters.distributed` has it for torch.distributed
            and Horovod.

    Raises:
        RequestError: Ranks planned different data, or two of them the same shard; both sides' facts are named.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest, Shard
        >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
        >>> plans = [Plan(Inventory.of_rows([5]), ReadRequest(("id",), order, Shard(rank, 2), epochs))
        ...          for rank, epochs in enumerate([1, 2])]
        >>> assert_agreed(plans[0], lambda mine: [plan_facts(plan) for plan in plans])
        Traceback (most recent call last):
        petastore.errors.RequestError: ranks planned different data: num_epochs is 1 on rank 0 and 2 on rank 1
    """
    everybody = [dict(facts) for facts in all_gather(plan_facts(plan))]
    shards = [facts.pop("cur_shard", None) for facts in everybody]
    differences = [
        f"{name} is {everybody[0].get(name)!r} on rank 0 and {facts.get(name)!r} on rank {rank}"
        for rank, facts in enumerate(everybody)
        for name in everybody[0]
        if facts.get(name) != everybody[0][name]
    ]
    if differences:
        more = f" (and {len(differences) - 3:,} more)" if len(differences) > 3 else ""
        raise RequestError(f"ranks planned different data: {'; '.join(differences[:3])}{more}")
    count = plan.request.shard.count
    if sorted(map(str, shards)) != sorted(map(str, range(count))):
        raise RequestError(
            f"ranks must have the shards 0 to {count - 1}, each once, but ranks in turn have {shards}; "
            "give cur_shard and shard_count from the launcher's rank and world size"
        )
