"""Tests of prepared datasets: each rank reads only its own part, for any order and batch size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import NoDataAvailableError
from petastore.inventory import Inventory
from petastore.plan.order.parts import Parts
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Order, ReadRequest, Shard


@given(st.data())
def test_ranks_read_only_their_own_part_of_a_prepared_dataset(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, 13))
    parts = Parts.of(data.draw(st.integers(ranks, 400)), ranks=ranks)
    groups, owners = [], []
    for rank, rows in enumerate(parts.rows):
        cuts = sorted(data.draw(st.sets(st.integers(0, rows), max_size=4)))
        sizes = [end - begin for begin, end in itertools.pairwise([0, *cuts, rows])]
        groups += sizes
        owners += [rank] * len(sizes)
    order = Order(
        seed=data.draw(st.integers(0, 9)),
        shuffle_row_groups=False,
        shuffle_rows=data.draw(st.booleans()),
        lanes=parts.lanes,
        block_rows=data.draw(st.sampled_from([1, 7, 50, 1000])),
    )
    last_batch = data.draw(st.sampled_from([LastBatch.EVEN, LastBatch.DROP]))
    batch_size = data.draw(st.integers(1, 30))
    for rank in range(ranks):
        plan = Plan(Inventory.of_rows(groups), ReadRequest(("id",), order, Shard(rank, ranks), 2, last_batch))
        touched = set(plan.row_groups(0).tolist())
        for span in plan.spans(batch_size, rows_per_span=64):
            touched |= set(span.fetch) | set(span.groups.tolist())
        assert {owners[group] for group in touched} <= {rank}


@given(st.integers(1, 200), st.integers(0, 5000))
def test_parts_of_a_prepared_dataset_differ_by_at_most_one_row(ranks: int, more: int) -> None:
    parts = Parts.of(ranks + more, ranks=ranks)
    assert sum(parts.rows) == ranks + more
    assert np.ptp(parts.rows) <= 1
    assert parts.lanes % ranks == 0


def test_dividing_fewer_rows_than_ranks_into_parts_raises() -> None:
    with pytest.raises(
        NoDataAvailableError, match=r"each rank must have at least one row, got 3 rows for 4 ranks\. Use fewer ranks"
    ):
        Parts.of(3, ranks=4)
