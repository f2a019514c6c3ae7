"""A plan over a selection keeps every law, on the rows that are meant."""

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
from petastore.testing import plan_laws as laws


@st.composite
def selections(draw: Any, inventory: Inventory) -> tuple[Selection, list[int]]:
    """A selection, and the numbers of its rows in the dataset."""
    chosen = draw(st.lists(st.booleans(), min_size=inventory.num_rows, max_size=inventory.num_rows))
    per_group = np.split(np.array(chosen, dtype=np.bool_), np.cumsum(inventory.rows)[:-1])
    bitmaps = {group: bits for group, bits in enumerate(per_group) if 0 < bits.sum() < len(bits)}
    counts = np.array([bits.sum() for bits in per_group])
    return Selection(counts, bitmaps), np.flatnonzero(chosen).tolist()


@given(st.data(), laws.inventories(max_groups=10, max_rows=20), laws.orders(), st.sampled_from([1, 2, 3]))
def test_the_rows_that_are_meant_come_once_and_no_others(
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


def test_plans_over_other_selections_are_other_plans() -> None:
    inventory = Inventory.of_rows([2, 2])
    request = ReadRequest(("id",), Order(seed=0, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1))
    some = [
        None,
        Selection(np.array([1, 2]), {0: np.array([True, False])}),
        Selection(np.array([1, 2]), {0: np.array([False, True])}),
    ]
    assert len({Plan(inventory, request, one).fingerprint for one in some}) == 3


def test_what_left_rows_out_is_told_and_makes_no_other_selection() -> None:
    told = Selection(np.array([0, 2]), {}, (Pruned("statistics", 1, 2),))
    untold = Selection(np.array([0, 2]), {})
    assert told == untold
    assert (told.fingerprint, hash(told)) == (untold.fingerprint, hash(untold))
    assert told.pruned == (Pruned("statistics", 1, 2),)
    assert untold.pruned == ()


@pytest.mark.parametrize(("by", "row_groups", "rows"), [("chance", 1, 2), ("filter", -1, 2), ("filter", 3, 2)])
def test_an_account_must_be_possible(by: str, row_groups: int, rows: int) -> None:
    with pytest.raises(InvalidArgumentError, match="Pruned"):
        Pruned(by, row_groups, rows)  # type: ignore[arg-type]


def test_a_bitmap_must_hold_the_rows_that_are_counted() -> None:
    with pytest.raises(InvalidArgumentError, match="row group 1"):
        Selection(np.array([1, 2]), {1: np.array([True, False, False])})
