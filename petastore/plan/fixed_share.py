"""Derive a plan from another plan: a fixed part of its rows, or shuffled rows.

`fixed_share` returns the plan of the contiguous part of the rows that one rank reads in every epoch.
`with_rows_shuffled` returns a plan of the same rows in shuffled order.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from petastore.errors import NoDataAvailableError
from petastore.plan.plan import Plan
from petastore.plan.request import DEFAULT_SHUFFLE_BUFFER_BYTES, Shard, in_memory, shuffled_lanes
from petastore.plan.selection import RowBitmaps, Selection

__all__ = ["fixed_share", "with_rows_shuffled"]


def fixed_share(plan: Plan) -> Plan:
    """Return a plan that reads the same contiguous part of the rows in every epoch.

    The part is that of this plan's rank.

    Rank r has the r-th part of the dataset, so that few row groups are split. All ranks have the same number of rows:
    if the rows do not divide evenly, the remaining rows (fewer than ranks) are dropped. The plan of a single rank is
    returned unchanged.

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
        raise NoDataAvailableError(
            f"each rank must have at least one row, got {plan.num_rows:,} rows for {shard.count:,} ranks. Use fewer "
            "ranks"
        )
    order = request.order
    own = dataclasses.replace(
        order,
        lanes=1 if "lanes" in request.chosen and not order.shuffle_rows else order.lanes,
        dealt_to=None if order.dealt_to is None else 1,
    )
    alone = dataclasses.replace(request, shard=Shard(), order=own)
    return dataclasses.replace(plan, request=alone, selection=_part(plan, rows * shard.index, rows))


def _part(plan: Plan, first: int, rows: int) -> Selection:
    """Return a selection of `rows` consecutive rows of the plan, in dataset order.

    `first` is the number of the first one among all selected rows of the plan, from 0.
    """
    before = np.cumsum(plan.rows) - plan.rows
    begins, ends = (np.clip(place - before, 0, plan.rows) for place in (first, first + rows))

    def bitmap(group: int) -> NDArray[np.bool_]:
        flags = np.zeros(int(plan.inventory.rows[group]), dtype=np.bool_)
        places = np.arange(begins[group], ends[group])
        if plan.selection is not None:
            places = plan.selection.rows_at(np.full(len(places), group, np.int32), places)
        flags[places] = True
        return flags

    partial = np.flatnonzero((ends > begins) & (ends - begins < plan.inventory.rows)).tolist()
    bitmaps = RowBitmaps.pack((group, bitmap(group)) for group in partial)
    return Selection(ends - begins, bitmaps, () if plan.selection is None else plan.selection.pruned)


def with_rows_shuffled(plan: Plan) -> Plan:
    """Return the plan with rows shuffled across row groups, as by `shuffle_rows=True`.

    A plan that already shuffles rows is returned unchanged. Seed, shard and all options that the user set stay the
    same. Use the new plan only from the start, because a position means other rows in the new order.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
        >>> plan = Plan(Inventory.of_rows([5] * 12), ReadRequest(("id",), order, chosen=frozenset({"lanes"})))
        >>> with_rows_shuffled(plan).request.order.shuffle_rows
        True
    """
    request, order = plan.request, plan.request.order
    if order.shuffle_rows:
        return plan
    lanes, block_rows = shuffled_lanes(
        in_memory(plan.inventory, plan.rows),
        shuffle_buffer_bytes=DEFAULT_SHUFFLE_BUFFER_BYTES,
        lanes=None if "lanes" in request.chosen else order.lanes,
        block_rows=None if "block_rows" in request.chosen else order.block_rows,
    )
    shuffled = dataclasses.replace(order, shuffle_rows=True, lanes=lanes, block_rows=block_rows)
    return dataclasses.replace(plan, request=dataclasses.replace(request, order=shuffled))
