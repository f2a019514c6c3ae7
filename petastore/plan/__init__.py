"""Read plans: the rows that each rank reads, and their order.

Plans are computed without I/O, frameworks or threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from petastore.lazy import late_names

if TYPE_CHECKING:
    from petastore.inventory import ReadUnit
    from petastore.plan.cursor import Cursor
    from petastore.plan.mixture.mixture import Mixture
    from petastore.plan.plan import Plan, Span
    from petastore.plan.request import LastBatch, Order, ReadRequest, Shard
    from petastore.plan.selection import Selection

__all__ = ["Cursor", "LastBatch", "Mixture", "Order", "Plan", "ReadRequest", "ReadUnit", "Selection", "Shard", "Span"]

_HOMES = {
    "Cursor": "petastore.plan.cursor",
    "Mixture": "petastore.plan.mixture.mixture",
    "Order": "petastore.plan.request",
    "Plan": "petastore.plan.plan",
    "ReadRequest": "petastore.plan.request",
    "ReadUnit": "petastore.inventory",
    "Selection": "petastore.plan.selection",
    "Shard": "petastore.plan.request",
    "Span": "petastore.plan.plan",
    "LastBatch": "petastore.plan.request",
}

__getattr__ = late_names(__name__, _HOMES)
