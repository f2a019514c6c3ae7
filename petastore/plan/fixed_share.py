"""What a rank has of a plan once and for all, where ranks do not share its epochs."""

from __future__ import annotations

import dataclasses

import numpy as np

from petastore.errors import NoDataAvailableError
from petastore.plan.plan import Plan
from petastore.plan.request import Shard
from petastore.plan.selection import Selection

__all__ = ["fixed_share"]


def fixed_share(plan: Plan) -> Plan:
    """A plan of one rank alone, with the same rows in each epoch: as many as every other rank has.

    Row groups stay together as far as they can: rank r has the r-th part of the dataset. Rows that cannot be shared
    evenly, fewer than there are ranks, are left out. A plan for one rank is itself.

    Raises:
        NoDataAvailableError: There are fewer rows than ranks.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
        >>> plan = Plan(Inventory.of_rows([5, 5, 5, 2]), ReadRequest(("id",), order, Shard(1, 3)))
        >>> fixed_share(plan).rows.tolist()
        [0, 5, 0, 0]
    """
    request, shard = plan.request, plan.request.shard
    if shard.count == 1:
        return plan
    rows = plan.num_rows // shard.count
    if rows == 0:
        raise NoDataAvailableError(f"{plan.num_rows:,} rows cannot be shared by {shard.count:,} ranks: there are fewer")
    order = request.order
    own = dataclasses.replace(
        order,
        lanes=1 if "lanes" in request.chosen and not order.shuffle_rows else order.lanes,
        dealt_to=None if order.dealt_to is None else 1,
    )
    alone = dataclasses.replace(request, shard=Shard(), order=own)
    return dataclasses.replace(plan, request=alone, selection=_part(plan, rows * shard.index, rows))


def _part(plan: Plan, first: int, rows: int) -> Selection:
    """Of the rows that are meant, so many from one of them on, counted in the order of the dataset."""
    before = np.cumsum(plan.rows) - plan.rows
    begins, ends = (np.clip(place - before, 0, plan.rows) for place in (first, first + rows))
    bitmaps = {}
    for group in np.flatnonzero((ends > begins) & (ends - begins < plan.inventory.rows)).tolist():
        bitmap = np.zeros(int(plan.inventory.rows[group]), dtype=np.bool_)
        places = np.arange(begins[group], ends[group])
        if plan.selection is not None:
            places = plan.selection.rows_at(np.full(len(places), group, np.int32), places)
        bitmap[places] = True
        bitmaps[group] = bitmap
    return Selection(ends - begins, bitmaps, () if plan.selection is None else plan.selection.pruned)
