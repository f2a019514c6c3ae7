"""Tests of gathering rows in batch order: from a memory arena, from separately allocated arrays, or from both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.decoding.buffers import Buffers
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.plan import Span
from petastore.readers.assembly.gather import cell_gather, stack_gather
from petastore.readers.loaded.arena import Arena, Layout, Place, Stack
from petastore.readers.loaded.row_group_reader import LoadedRowGroup

NUMBER = np.dtype(np.int64)
LAYOUT = Layout((Stack(("a", "b"), NUMBER, (), True), Stack(("long",), NUMBER, (3,))), ())
IN_FILE_ORDER = Layout((Stack(("a", "b"), NUMBER, ()), Stack(("long",), NUMBER, (3,))), ())


def loaded(rows: int, group: int, read_order: Any, place: Place | None, layout: Layout = LAYOUT) -> LoadedRowGroup:
    """Return a row group with the values 1000 · group + row in column a, and their negatives in column b."""
    is_reordered = read_order is not None and layout.reorders_rows
    if place is None:
        stacks = tuple(np.empty((len(stack.names), rows, *stack.shape), stack.dtype) for stack in layout.stacks)
        place = Place(0, rows, stacks, np.empty(rows, np.int32) if is_reordered else None)
    place.write_order(read_order)
    values = 1000 * group + np.arange(rows)
    laid = values[read_order] if is_reordered else values
    place.stack(0)[0, : len(laid)], place.stack(0)[1, : len(laid)] = laid, -laid
    place.stack(1)[:] = values[:, None]
    return LoadedRowGroup(rows, place, {}, {}, {}, {}, read_order is None)


def spans_of(
    rows: list[int], room: int, seed: int, layout: Layout = LAYOUT, **order: Any
) -> Iterator[tuple[Span, dict[int, LoadedRowGroup]]]:
    """Yield the spans of a plan, each with its row groups, which are placed in one arena while they fit."""
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), Order(seed=seed, lanes=3, **order)))
    arena, held = Arena(layout, room, Buffers()), dict[int, LoadedRowGroup]()
    for span in plan.spans(7, rows_per_span=40 if seed % 2 else 8192):
        for group, read_order in zip(span.fetch, span.read_orders, strict=True):
            held[group] = loaded(rows[group], group, read_order, arena.place(rows[group]), layout)
        yield span, {group: held[group] for group in span.needed.tolist()}
        for group in span.release:
            del held[group]


def gathered(picked: GroupedRows, row_groups: dict[int, LoadedRowGroup], layout: Layout = LAYOUT) -> list[np.ndarray]:
    task_of = stack_gather(picked, row_groups, layout, Buffers())
    outs = [np.zeros((len(stack.names), picked.num_rows, *stack.shape), stack.dtype) for stack in layout.stacks]
    for number, out in enumerate(outs):
        task_of(number, out)()
    return outs


@given(
    st.lists(st.integers(1, 30) | st.integers(200, 400), min_size=1, max_size=8),
    st.sampled_from([0, 60, 10_000]),
    st.integers(0, 99),
    st.sampled_from([1, 20]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([LAYOUT, IN_FILE_ORDER]),
)
def test_rows_of_loaded_row_groups_are_gathered_in_batch_order(
    rows: list[int], room: int, seed: int, block_rows: int, shuffle_rows: bool, shuffle_row_groups: bool, layout: Layout
) -> None:
    order = {"shuffle_row_groups": shuffle_row_groups, "shuffle_rows": shuffle_rows, "block_rows": block_rows}
    for span, row_groups in spans_of(rows, room, seed, layout, **order):
        wanted = (1000 * span.groups + span.rows).tolist()
        for picked in (span.picked, GroupedRows(span.groups, span.rows, None)):
            short, long = gathered(picked, row_groups, layout)
            assert short[0].tolist() == (-short[1]).tolist() == wanted
            assert long[0, :, 0].tolist() == long[0, :, 2].tolist() == wanted
        columns = {group: pa.array(1000 * group + np.arange(count)) for group, count in enumerate(rows)}
        assert cell_gather(span.groups, span.rows, columns).to_pylist() == wanted


@pytest.mark.parametrize("room", [0, 10])
def test_gathering_rows_that_were_not_loaded_raises(room: int) -> None:
    row_group = loaded(3, 0, np.array([0, 2]), Arena(LAYOUT, room, Buffers()).place(3))
    picked = GroupedRows(np.zeros(2, np.int32), np.array([0, 1]), None)
    with pytest.raises(AssertionError, match="did not announce"):
        gathered(picked, {0: row_group})


@pytest.mark.parametrize("apart", [1, 70_000])
def test_rows_of_sparsely_numbered_row_groups_are_gathered_in_batch_order(apart: int) -> None:
    rows = np.zeros(3 * apart, dtype=np.int64)
    rows[::apart] = 10
    order: dict[str, Any] = {"shuffle_row_groups": True, "shuffle_rows": True, "block_rows": 20}
    seen: list[int] = []
    for span, row_groups in spans_of(rows.tolist(), 20, 3, **order):
        (short, _) = gathered(span.picked, row_groups)
        assert short[0].tolist() == (1000 * span.groups + span.rows).tolist()
        seen += short[0].tolist()
    assert len(set(seen)) == 30
