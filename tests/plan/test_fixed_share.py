"""Tests of fixed shares: ranks without common epochs have disjoint, equally large parts of a dataset."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import NoDataAvailableError
from petastore.inventory import Inventory
from petastore.plan.fixed_share import fixed_share
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard
from petastore.plan.selection import Selection

ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=3, block_rows=1)


def plan_of(rows: list[int], shard: Shard, kept: list[np.ndarray] | None = None) -> Plan:
    selection = None
    if kept is not None:
        bitmaps = {group: bitmap for group, bitmap in enumerate(kept) if 0 < bitmap.sum() < len(bitmap)}
        selection = Selection(np.array([int(bitmap.sum()) for bitmap in kept]), bitmaps)
    return Plan(Inventory.of_rows(rows), ReadRequest(("id",), ORDER, shard, chosen=frozenset({"lanes"})), selection)


def rows_of(plan: Plan) -> list[tuple[int, int]]:
    """Return the row group and the row of each selected row."""
    groups = np.repeat(np.arange(len(plan.rows), dtype=np.int32), plan.rows)
    places = np.concatenate([np.arange(count) for count in plan.rows]).astype(np.int64)
    rows = places if plan.selection is None else plan.selection.rows_at(groups, places)
    return list(zip(groups.tolist(), rows.tolist(), strict=True))


@given(st.data(), st.lists(st.integers(0, 7), min_size=1, max_size=9), st.integers(2, 5))
def test_fixed_shares_of_ranks_are_disjoint_and_equally_large(data: st.DataObject, rows: list[int], ranks: int) -> None:
    kept = [np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_) for n in rows]
    for of_groups in (None, kept):
        whole = rows_of(plan_of(rows, Shard(), of_groups))
        if len(whole) < ranks:
            with pytest.raises(
                NoDataAvailableError,
                match=rf"each rank must have at least one row, got {len(whole)} rows? for {ranks} ranks",
            ):
                fixed_share(plan_of(rows, Shard(0, ranks), of_groups))
            continue
        shares = [fixed_share(plan_of(rows, Shard(rank, ranks), of_groups)) for rank in range(ranks)]
        assert {share.num_rows for share in shares} == {len(whole) // ranks}
        assert [row for share in shares for row in rows_of(share)] == whole[: len(whole) // ranks * ranks]
        assert {(share.request.shard, share.request.order.lanes) for share in shares} == {(Shard(), 1)}


def test_fixed_share_of_a_single_rank_is_its_plan() -> None:
    plan = plan_of([3, 4], Shard())
    assert fixed_share(plan) is plan
