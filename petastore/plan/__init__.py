"""What is read, by whom and in what order: values made by arithmetic, without IO, frameworks or threads."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from petastore.plan.cursor import Cursor
    from petastore.plan.mixture.mixture import Mixture
    from petastore.plan.plan import Plan, Span
    from petastore.plan.request import Order, ReadRequest, Shard, Tail
    from petastore.plan.selection import Selection
    from petastore.plan.unit import ReadUnit

__all__ = ["Cursor", "Mixture", "Order", "Plan", "ReadRequest", "ReadUnit", "Selection", "Shard", "Span", "Tail"]

_HOMES = {
    "Cursor": "petastore.plan.cursor",
    "Mixture": "petastore.plan.mixture.mixture",
    "Order": "petastore.plan.request",
    "Plan": "petastore.plan.plan",
    "ReadRequest": "petastore.plan.request",
    "ReadUnit": "petastore.plan.unit",
    "Selection": "petastore.plan.selection",
    "Shard": "petastore.plan.request",
    "Span": "petastore.plan.plan",
    "Tail": "petastore.plan.request",
}


def __getattr__(name: str) -> Any:
    """Names are loaded on first use: a reader needs few of the modules that have them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'petastore.plan' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
