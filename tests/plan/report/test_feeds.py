"""Tests of `Plan.feeds`: the row groups of each batch and rank; batches of a long epoch are sampled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.errors import NoDataAvailableError
from petastore.inventory import Inventory
from petastore.plan import LastBatch, Order, Plan, ReadRequest, Shard
from petastore.plan.report.feeds import MOST_BATCHES
from tests.laws import plan_laws as laws

Entry = tuple[int, int, int]


@given(
    laws.inventories(max_groups=10, max_rows=20),
    laws.orders(),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from(LastBatch),
)
def test_plan_feeds_list_the_row_groups_of_each_batch_and_rank(
    inventory: Inventory, order: Order, ranks: int, batch_size: int, last_batch: LastBatch
) -> None:
    assume(inventory.num_rows >= ranks)
    plans = laws.ranks_of(inventory, order, ranks=ranks, last_batch=last_batch)
    for epoch in (0, 1):
        walked: set[Entry] = set()
        for rank, plan in enumerate(plans):
            spans = [span for span in two_epochs(plan).spans(batch_size, rows_per_span=1) if span.epoch == epoch]
            walked |= {(batch, rank, int(group)) for batch, span in enumerate(spans) for group in span.needed}
        feeds = plans[-1].feeds(batch_size, epoch=epoch)
        said = list(zip(feeds.batches.tolist(), feeds.ranks.tolist(), feeds.row_groups.tolist(), strict=True))
        assert said == sorted(walked)
        assert feeds.num_batches == len(feeds.sampled_batches) == plans[0].steps_per_epoch(batch_size)


def two_epochs(plan: Plan) -> Plan:
    request = plan.request
    return Plan(plan.inventory, ReadRequest(request.columns, request.order, request.shard, 2, request.last_batch))


def test_plan_feeds_sample_the_batches_of_a_long_epoch() -> None:
    order = Order(seed=3, shuffle_row_groups=True, shuffle_rows=True, lanes=6, block_rows=100)
    feeds = Plan(Inventory.of_rows([100] * 60), ReadRequest(("id",), order, Shard(1, 2))).feeds(3)
    assert feeds.num_batches == 1000
    assert len(feeds.sampled_batches) == MOST_BATCHES
    assert (feeds.sampled_batches[0], feeds.sampled_batches[-1]) == (0, 999)
    assert np.array_equal(np.unique(feeds.batches), feeds.sampled_batches)
    assert set(np.unique(feeds.ranks)) == {0, 1}
    assert feeds.first_row_groups == (0, 60)


def test_plan_feeds_of_a_dataset_without_rows_are_empty() -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    feeds = Plan(Inventory.of_rows([0]), ReadRequest(("id",), order)).feeds(4)
    assert (len(feeds.batches), feeds.num_batches) == (0, 0)
    with pytest.raises(NoDataAvailableError):
        Plan(Inventory.of_rows([1]), ReadRequest(("id",), order, Shard(0, 2))).feeds(4)
