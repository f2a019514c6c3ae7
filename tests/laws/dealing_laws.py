"""Laws for assignments of row groups to ranks when the number of ranks changes, for Hypothesis: no I/O, no mocks.

A row moves if another rank reads it after the change. With N rows and equal shares, a change from R to S ranks moves
at least the rows of the added or removed ranks: N · |R − S| / max(R, S).

Example:
    >>> order = Order(7, True, False, lanes=1, block_rows=1, reshuffle="static", dealt_to=1)
    >>> plan = Plan(Inventory.of_rows([10] * 64), ReadRequest(("id",), order, epochs=2))
    >>> check_ranks_keep_their_rows(dealt(plan, 4), batch_size=8)
    >>> check_few_change_hands(plan, before=4, after=3, batch_size=8)
    >>> fewest_moved(plan, before=4, after=3), moved(plan, before=4, after=3, batch_size=8)
    (160.0, 164)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import Inventory
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest
from petastore.testing.training import shards_of, train

__all__ = [
    "Inventory",
    "Order",
    "Plan",
    "ReadRequest",
    "check_few_change_hands",
    "check_ranks_keep_their_rows",
    "dealt",
    "fewest_moved",
    "moved",
]


def dealt(plan: Plan, ranks: int) -> list[Plan]:
    """Return the plans of all ranks with row groups assigned to ranks; one lane per rank if rows are not shuffled."""
    order = plan.request.order
    lanes = order.lanes if order.shuffle_rows else ranks
    order = dataclasses.replace(order, dealt_to=ranks, lanes=lanes)
    return shards_of(dataclasses.replace(plan, request=dataclasses.replace(plan.request, order=order)), ranks)


def check_ranks_keep_their_rows(plans: Sequence[Plan], batch_size: int) -> None:
    """Check that each rank reads the same rows in every epoch.

    Args:
        plans: Plans of all ranks, in order. Their number divides the lanes, and no epoch drops rows.
        batch_size: Batch size of one rank.
    """
    first, *others = [_owners(plans, batch_size, epoch) for epoch in range(plans[0].request.epochs or 0)]
    for epoch, owners in enumerate(others, 1):
        strayed = np.flatnonzero(owners != first)
        assert len(strayed) == 0, f"{len(strayed):,} rows change hands in epoch {epoch}, such as {strayed[:5].tolist()}"


def check_few_change_hands(plan: Plan, *, before: int, after: int, batch_size: int) -> None:
    """Check that few rows move: the minimum, and those of row groups that are divided between two ranks.

    Args:
        plan: The plan of any rank.
        before: Number of ranks before the change; divides the lanes.
        after: Number of ranks after the change; divides the lanes.
        batch_size: Batch size of one rank.
    """
    least, cut = fewest_moved(plan, before=before, after=after), (before + after) * int(plan.rows.max(initial=0))
    found = moved(plan, before=before, after=after, batch_size=batch_size)
    assert found <= least + cut, (
        f"from {before} ranks to {after} of them {found:,} rows change hands, where {least:,.1f} must and {cut:,} may "
        "besides"
    )


def fewest_moved(plan: Plan, *, before: int, after: int) -> float:
    """Return the minimum number of rows that move if all ranks have equal shares."""
    return plan.num_rows * abs(before - after) / max(before, after)


def moved(plan: Plan, *, before: int, after: int, batch_size: int) -> int:
    """Return the number of rows that move to another rank when the number of ranks changes."""
    first, second = (_owners(dealt(plan, ranks), batch_size, 0) for ranks in (before, after))
    return int((first != second).sum())


def _owners(plans: Sequence[Plan], batch_size: int, epoch: int) -> NDArray[np.int64]:
    """Return the rank that reads each row in an epoch, shape (rows of the dataset,); −1 for none."""
    training = train(plans, batch_size)
    owners = np.full(plans[0].inventory.num_rows, -1)
    chosen = training.valid & (training.epochs[training.steps] == epoch)
    owners[training.rows[chosen]] = training.ranks[chosen]
    return owners
