"""A plan whose rows are shuffled, made of one whose rows are not."""

from __future__ import annotations

import dataclasses

from petastore.plan.lanes import DEFAULT_SHUFFLE_BUFFER_BYTES, in_memory, shuffled_lanes
from petastore.plan.plan import Plan

__all__ = ["with_rows_shuffled"]


def with_rows_shuffled(plan: Plan) -> Plan:
    """The plan with rows permuted over row groups, as `shuffle_rows=True` of a reader has them; itself if they are.

    Seed, shard and what else was asked stay. It is for a beginning: places in the one order are none in the other.

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
