"""Resume in the middle of an epoch after some rows were excluded (`exclude_rows=`, `on_error=`). No I/O.

The position of a saved state counts rows in an order that still includes the excluded rows. The remaining rows of the
epoch therefore become a `Selection` without the excluded rows, and get a new order. Later epochs have all rows that are
not excluded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from petastore.plan.cursor import Cursor
from petastore.plan.order.order import EpochOrder
from petastore.plan.plan import Plan
from petastore.plan.request import Rest, UnderWay
from petastore.plan.selection import Selection

__all__ = ["plans_with_excluded_rows", "with_rest"]

_AT_ONCE = 2**20
"""Number of rows that are looked up at a time."""


def plans_with_excluded_rows(plan: Plan) -> Iterator[Plan]:
    """Yield the plan as it was before each exclusion of rows, the latest exclusion first."""
    selection = plan.selection
    while selection is not None and selection.before is not None:
        selection = selection.before
        is_whole = np.array_equal(selection.counts, plan.inventory.rows)
        request = dataclasses.replace(plan.request, under_way=None)
        yield dataclasses.replace(plan, request=request, selection=None if is_whole else selection)


def with_rest(plan: Plan, begun: Plan, cursor: Cursor) -> Plan:
    """Return a plan that finishes an epoch that was begun with another plan, which had more rows.

    Args:
        plan: Plan of the later epochs, without the excluded rows.
        begun: Plan of the saved state, which includes the excluded rows.
        cursor: Position in `begun`, inside an epoch.
    """
    order = begun.order_in(cursor.epoch)
    left = _rows_left(begun, cursor)
    if plan.selection is not None:
        excluded = {}
        for group in np.flatnonzero(left.counts).tolist():
            excluded[group] = ~_flags(plan, group)
        left = left.without(excluded, plan.inventory.rows, by="excluded rows")
    left = dataclasses.replace(left, before=None)
    rest = UnderWay(cursor.epoch, order, Rest(left, begun.data_fingerprint, cursor.position))
    request = dataclasses.replace(plan.request, order=begun.request.order, under_way=rest)
    return dataclasses.replace(plan, request=request)


def _rows_left(plan: Plan, cursor: Cursor) -> Selection:
    """Return the rows that an epoch reads after a position, over all ranks."""
    order = EpochOrder(plan.rows, plan.order_in(cursor.epoch), cursor.epoch)
    flags: dict[int, NDArray[np.bool_]] = {}
    for first in range(cursor.position, plan.num_rows, _AT_ONCE):
        # All rows of each block are needed, so whole blocks are permuted, as for reading.
        groups, rows = order.by_lane(np.arange(first, min(first + _AT_ONCE, plan.num_rows))).in_order()
        if plan.selection is not None:
            rows = plan.selection.rows_at(groups, rows)
        by_group = np.argsort(groups, kind="stable")
        runs = np.flatnonzero(np.diff(groups[by_group], prepend=-1))
        for of_group in np.split(by_group, runs[1:]):
            group = int(groups[of_group[0]])
            flags.setdefault(group, np.zeros(plan.inventory.rows[group], np.bool_))[rows[of_group]] = True
    return Selection.of_flags(sorted(flags.items()), plan.inventory.rows)


def _flags(plan: Plan, group: int) -> NDArray[np.bool_]:
    """Return, for each row of a row group, whether the plan selects this row; shape (rows,)."""
    rows = int(plan.inventory.rows[group])
    if plan.selection is None:
        return np.ones(rows, np.bool_)
    return plan.selection.bitmaps.get(group, np.full(rows, plan.selection.counts[group] > 0))
