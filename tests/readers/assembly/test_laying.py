"""Rows are laid in the order of their span, from however many row groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.readers.assembly.laying import Laying, come_in_long_runs, placed


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.booleans(), st.booleans(), st.integers(0, 99))
def test_cells_and_values_come_in_the_order_of_the_span(
    rows: list[int], shuffle_rows: bool, shuffle_row_groups: bool, seed: int
) -> None:
    order = Order(seed=seed, shuffle_row_groups=shuffle_row_groups, shuffle_rows=shuffle_rows, lanes=3, block_rows=20)
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order))
    columns = {group: 100 * group + np.arange(count) for group, count in enumerate(rows)}
    stacks = {group: np.stack([column, -column]) for group, column in columns.items()}
    for span in plan.spans(7, rows_per_span=40):
        laying, out = Laying(GroupedRows(span.groups, span.rows, None)), np.empty((2, len(span.rows)), dtype=np.int64)
        laying.of_values(8).values(stacks, out)
        assert out[0].tolist() == (-out[1]).tolist() == (100 * span.groups + span.rows).tolist()
        cells = laying.of_cells().cells({group: pa.array(column) for group, column in columns.items()})
        assert cells.to_pylist() == out[0].tolist()


@given(
    st.lists(st.integers(1, 30) | st.integers(200, 400), min_size=1, max_size=12),
    st.integers(0, 99),
    st.sampled_from([1, 100]),
    st.sampled_from([1, 20]),
)
def test_rows_that_lie_in_turns_come_in_the_order_of_the_span(
    rows: list[int], seed: int, width: int, block_rows: int
) -> None:
    order = Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=3, block_rows=block_rows)
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order))
    places: dict[int, Any] = {}
    stacks: dict[int, Any] = {}
    for span in plan.spans(7, rows_per_span=40 if seed % 2 else 8192):
        for group, turns in zip(span.fetch, span.read_orders, strict=True):
            assert turns is not None
            places[group] = np.argsort(turns).astype(np.int32)
            stacks[group] = np.repeat(1000 * group + turns, width).reshape(1, -1, width)
        out = np.empty((1, len(span.rows), width), dtype=np.int64)
        lie = placed(GroupedRows(span.groups, span.rows, None), places)
        Laying(lie).of_values(8 * width).values(stacks, out)
        picked, grouped = span.picked, np.empty_like(out)
        lie = picked if come_in_long_runs(picked) else placed(picked, places)
        Laying(lie).of_values(8 * width).values(stacks, grouped)
        assert grouped.tolist() == out.tolist()
        assert out[0, :, 0].tolist() == out[0, :, -1].tolist() == (1000 * span.groups + span.rows).tolist()


def test_rows_that_were_not_announced_are_not_made_up() -> None:
    places = np.array([0, -1, 1], dtype=np.int32)
    rows = GroupedRows(np.zeros(2, np.int32), np.array([0, 1]), None)
    with pytest.raises(AssertionError, match="did not announce"):
        placed(rows, {0: places})


@pytest.mark.parametrize("apart", [1, 70_000])
def test_row_groups_far_apart_are_picked_alike(apart: int) -> None:
    order = Order(seed=3, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=20)
    rows = np.zeros(3 * apart, dtype=np.int64)
    rows[::apart] = 10
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order))
    columns = {number * apart: 100 * number + np.arange(10)[None] for number in range(3)}
    seen = []
    for span in plan.spans(8, rows_per_span=16):
        out = np.empty((1, len(span.rows)), dtype=np.int64)
        Laying(GroupedRows(span.groups, span.rows, None)).of_values(8).values(columns, out)
        assert out[0].tolist() == (100 * (span.groups // apart) + span.rows).tolist()
        seen += out[0].tolist()
    assert len(set(seen)) == 30
