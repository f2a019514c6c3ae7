"""What is read, by whom and in what order: values made by arithmetic, without IO, frameworks or threads."""

from petastore.plan.cursor import Cursor
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.plan import Plan, Span
from petastore.plan.request import Order, ReadRequest, Shard, Tail
from petastore.plan.selection import Selection
from petastore.plan.unit import ReadUnit

__all__ = ["Cursor", "Mixture", "Order", "Plan", "ReadRequest", "ReadUnit", "Selection", "Shard", "Span", "Tail"]
