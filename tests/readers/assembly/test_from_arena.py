"""Rows are found in an arena in the order of their span, whichever way their row groups lie there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.decoding.buffers import Buffers
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.readers.assembly.from_arena import rows_in_arena


@given(
    st.lists(st.integers(1, 30) | st.integers(200, 400), min_size=1, max_size=8),
    st.integers(0, 99),
    st.sampled_from([1, 20]),
    st.booleans(),
)
def test_rows_are_found_where_their_row_groups_stand(
    rows: list[int], seed: int, block_rows: int, in_read_order: bool
) -> None:
    order = Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=3, block_rows=block_rows)
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order))
    firsts = dict(enumerate((np.cumsum(rows) - rows).tolist()))
    stack, places = np.empty(sum(rows), np.int64), np.empty(sum(rows), np.int32)
    for span in plan.spans(7, rows_per_span=40 if seed % 2 else 8192):
        for group, turns in zip(span.fetch, span.read_orders, strict=True):
            assert turns is not None
            here = slice(firsts[group], firsts[group] + rows[group])
            stack[here] = 1000 * group + (turns if in_read_order else np.arange(rows[group]))
            places[here] = np.argsort(turns)
        wanted = (1000 * span.groups + span.rows).tolist()
        for picked in (span.picked, GroupedRows(span.groups, span.rows, None)):
            index = rows_in_arena(picked, firsts, places if in_read_order else None, Buffers())
            assert stack[index].tolist() == wanted


def test_rows_that_were_not_announced_are_not_made_up() -> None:
    picked = GroupedRows(np.zeros(2, np.int32), np.array([0, 1]), None)
    with pytest.raises(AssertionError, match="did not announce"):
        rows_in_arena(picked, {0: 0}, np.array([0, -1, 1], np.int32), Buffers())
