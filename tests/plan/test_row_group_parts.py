"""Tests of plans that read row groups in parts: the same rows in the same order, and each part stays while needed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import LastBatch, Order, Plan, ReadRequest, Shard
from petastore.plan.request import Rest, UnderWay
from petastore.plan.row_group_parts import RowGroupParts
from petastore.plan.selection import Selection


@st.composite
def plans(draw: Any) -> tuple[Plan, RowGroupParts]:
    rows = np.array(draw(st.lists(st.integers(0, 30), min_size=1, max_size=6)), np.int64)
    ranks = draw(st.integers(1, 3))
    order = Order(draw(st.integers(0, 9)), draw(st.booleans()), False, lanes=ranks, block_rows=1)
    selections: list[Selection | None] = []
    for _ in range(2):
        flags = [
            (group, np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_))
            for group, n in enumerate(rows.tolist())
        ]
        selections.append(draw(st.none() | st.just(Selection.of_flags(flags, rows))))
    selection, left = selections
    under_way = None if left is None or left.counts.sum() < ranks else UnderWay(0, order, Rest(left, "", 0))
    request = ReadRequest(
        ("id",),
        order,
        Shard(draw(st.integers(0, ranks - 1)), ranks),
        epochs=2,
        last_batch=draw(st.sampled_from(LastBatch)),
        under_way=under_way,
    )
    rows_of_part = np.array(draw(st.lists(st.integers(1, 31), min_size=len(rows), max_size=len(rows))), np.int64)
    return Plan(Inventory.of_rows(rows), request, selection), RowGroupParts.of(rows, rows_of_part)


@given(plans(), st.integers(1, 7), st.integers(1, 20))
def test_plan_of_row_groups_in_parts_reads_the_same_rows_in_the_same_order(
    drawn: tuple[Plan, RowGroupParts], batch: int, span: int
) -> None:
    plan, parts = drawn
    if 0 < plan.num_rows < plan.request.shard.count and plan.request.last_batch is LastBatch.EVEN:
        return
    assert plan.reads_in_file_order
    in_memory: set[int] = set()
    spans = plan.spans(batch, rows_per_span=span)
    for whole, divided in zip(spans, plan.in_parts(parts).spans(batch, rows_per_span=span), strict=True):
        groups, rows = parts.in_row_groups(divided.groups, divided.rows)
        assert (groups.tolist(), rows.tolist()) == (whole.groups.tolist(), whole.rows.tolist())
        named = divided.picked.in_row_groups(parts)
        assert (named.groups.tolist(), named.rows.tolist()) == (whole.groups.tolist(), whole.rows.tolist())
        assert divided.offsets.tolist() == whole.offsets.tolist()
        assert in_memory.isdisjoint(divided.fetch)
        in_memory |= set(divided.fetch)
        assert in_memory.issuperset(divided.needed.tolist())
        in_memory -= set(divided.release)
    assert not in_memory


@given(plans())
def test_parts_cover_every_row_of_a_row_group_once(drawn: tuple[Plan, RowGroupParts]) -> None:
    plan, parts = drawn
    places = np.concatenate(
        [np.arange(first, first + rows) for first, rows in zip(parts.firsts, parts.rows, strict=True)]
    )
    assert places.tolist() == [row for rows in plan.inventory.rows.tolist() for row in range(rows)]
    assert parts.of_groups(parts.rows).tolist() == plan.inventory.rows.tolist()
    divided = parts.inventory(plan.inventory)
    assert (divided.rows == parts.rows).all()
    assert (parts.of_groups(divided.decoded_bytes) >= plan.inventory.decoded_bytes).all()


def test_reads_in_file_order_is_false_for_shuffled_rows_or_several_lanes() -> None:
    order = Order(0, True, False, lanes=1, block_rows=1)
    plan = Plan(Inventory.of_rows([10, 10]), ReadRequest(("id",), order))
    assert plan.reads_in_file_order
    for changed in ({"shuffle_rows": True}, {"lanes": 2}):
        request = dataclasses.replace(plan.request, order=dataclasses.replace(order, **changed))
        assert not dataclasses.replace(plan, request=request).reads_in_file_order
