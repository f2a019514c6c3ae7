"""Tests of plans with a selection: exactly the selected rows are read, in equal steps."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Selection, Shard
from petastore.plan.selection import Pruned
from tests.laws import plan_laws as laws


@st.composite
def selections(draw: Any, inventory: Inventory) -> tuple[Selection, list[int]]:
    """Draw a selection, and return it with the numbers of its rows in the dataset."""
    chosen = draw(st.lists(st.booleans(), min_size=inventory.num_rows, max_size=inventory.num_rows))
    per_group = np.split(np.array(chosen, dtype=np.bool_), np.cumsum(inventory.rows)[:-1])
    bitmaps = {group: bits for group, bits in enumerate(per_group) if 0 < bits.sum() < len(bits)}
    counts = np.array([bits.sum() for bits in per_group])
    return Selection(counts, bitmaps), np.flatnonzero(chosen).tolist()


@given(st.data(), laws.inventories(max_groups=10, max_rows=20), laws.orders(), st.sampled_from([1, 2, 3]))
def test_plan_reads_exactly_the_selected_rows(
    data: st.DataObject, inventory: Inventory, order: Order, ranks: int
) -> None:
    selection, wanted = data.draw(selections(inventory))
    assume(not wanted or len(wanted) >= ranks)
    plans = [Plan(inventory, ReadRequest(("id",), order, Shard(rank, ranks)), selection) for rank in range(ranks)]
    laws.check_equal_steps(plans, 4)
    for plan in plans:
        laws.check_row_groups_at_hand(plan, 4)
    seen = collections.Counter(row for plan in plans for batch in laws.walk(plan, 4) for row in batch.rows.tolist())
    assert seen == collections.Counter(wanted)


def test_plan_fingerprint_depends_on_the_selection() -> None:
    inventory = Inventory.of_rows([2, 2])
    request = ReadRequest(("id",), Order(seed=0, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1))
    some = [
        None,
        Selection(np.array([1, 2]), {0: np.array([True, False])}),
        Selection(np.array([1, 2]), {0: np.array([False, True])}),
    ]
    assert len({Plan(inventory, request, one).fingerprint for one in some}) == 3


def test_selection_equality_ignores_the_counts_of_skipped_rows() -> None:
    told = Selection(np.array([0, 2]), {}, (Pruned("statistics", 1, 2),))
    untold = Selection(np.array([0, 2]), {})
    assert told == untold
    assert (told.fingerprint, hash(told)) == (untold.fingerprint, hash(untold))
    assert told.pruned == (Pruned("statistics", 1, 2),)
    assert untold.pruned == ()


@pytest.mark.parametrize(
    ("by", "row_groups", "rows", "message"),
    [
        ("chance", 1, 2, "by must be one of .*'filter'.*, got 'chance'"),
        ("filter", -1, 2, "got row_groups=-1 and rows=2"),
        ("filter", 3, 2, "rows at least row_groups, got row_groups=3 and rows=2"),
    ],
)
def test_invalid_counts_of_skipped_rows_raise(by: str, row_groups: int, rows: int, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Pruned(by, row_groups, rows)  # type: ignore[arg-type]


def test_selection_bitmap_that_does_not_match_its_count_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=r"row group 1 .* got 1 True where counts\[1\] is 2"):
        Selection(np.array([1, 2]), {1: np.array([True, False, False])})


@given(data=st.data())
def test_removing_rows_from_a_selection_keeps_all_other_rows(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6), label="rows")
    selected = [data.draw(arrays_of_flags(size)) for size in rows]
    counts = np.array(rows)
    before = Selection.of_flags(enumerate(selected), counts, pruned=())
    named = data.draw(st.sets(st.integers(0, len(rows) - 1)), label="groups with excluded rows")
    excluded = {group: data.draw(arrays_of_flags(rows[group])) for group in named}
    left = before.without(excluded, counts, by="bad rows")
    expected = [flags & ~excluded.get(group, np.zeros_like(flags)) for group, flags in enumerate(selected)]
    assert left == Selection.of_flags(enumerate(expected), counts)
    left_out = int(before.counts.sum() - left.counts.sum())
    assert [(step.by, step.rows) for step in left.pruned] == ([("bad rows", left_out)] if left_out else [])


def arrays_of_flags(size: int) -> st.SearchStrategy[Any]:
    return st.lists(st.booleans(), min_size=size, max_size=size).map(lambda flags: np.array(flags, np.bool_))
