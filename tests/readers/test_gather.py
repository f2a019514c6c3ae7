"""Picks give the cells of a span in its order, from however many row groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest
from petastore.readers.gather import Picks


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.booleans(), st.booleans(), st.integers(0, 99))
def test_cells_and_values_come_in_the_order_of_the_span(
    rows: list[int], shuffle_rows: bool, shuffle_row_groups: bool, seed: int
) -> None:
    order = Order(seed=seed, shuffle_row_groups=shuffle_row_groups, shuffle_rows=shuffle_rows, lanes=3, block_rows=20)
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order))
    columns = {group: 100 * group + np.arange(count) for group, count in enumerate(rows)}
    for span in plan.spans(7, rows_per_span=40):
        picks, out = Picks.of_span(span), np.empty(len(span.rows), dtype=np.int64)
        picks.values(columns, out)
        assert out.tolist() == (100 * span.groups + span.rows).tolist()
        cells = picks.cells({group: pa.array(column) for group, column in columns.items()})
        assert cells.to_pylist() == out.tolist()


@pytest.mark.parametrize("apart", [1, 70_000])
def test_row_groups_far_apart_are_picked_alike(apart: int) -> None:
    order = Order(seed=3, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=20)
    rows = np.zeros(3 * apart, dtype=np.int64)
    rows[::apart] = 10
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order))
    columns = {number * apart: 100 * number + np.arange(10) for number in range(3)}
    seen = []
    for span in plan.spans(8, rows_per_span=16):
        out = np.empty(len(span.rows), dtype=np.int64)
        Picks.of_span(span).values(columns, out)
        assert out.tolist() == (100 * (span.groups // apart) + span.rows).tolist()
        seen += out.tolist()
    assert len(set(seen)) == 30
