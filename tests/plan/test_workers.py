"""Tests of dividing a rank's batches among workers: each row once, the same number of batches, no shared row groups."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Order, ReadRequest, Shard
from petastore.plan.workers import WorkerPlan, cursor_after, with_lanes_for_workers
from tests.laws.plan_laws import Walked, check_row_groups_at_hand, inventories, orders, walk
from tests.tier import examples

TAILS = list(LastBatch)
ALL = frozenset({"seed", "lanes", "block_rows"})


def plan_of(inventory: Inventory, order: Order, *, rank: Shard, last_batch: LastBatch, epochs: int = 1) -> Plan:
    return Plan(inventory, ReadRequest(("id",), order, rank, epochs, last_batch))


def worker_plan(plan: Plan, worker: int, workers: int, begin: Cursor | None = None) -> WorkerPlan:
    return WorkerPlan(
        plan.inventory, plan.request, plan.selection, worker=Shard(worker, workers), begin=begin or Cursor()
    )


def in_turns(plan: Plan, workers: int, batch_size: int, begin: Cursor | None = None) -> list[Walked]:
    """Return the rank's batches as torch collects them: one of each worker in turn, until all have ended."""
    streams: list[Any] = [iter(walk(worker_plan(plan, w, workers, begin), batch_size)) for w in range(workers)]
    batches = []
    while streams:
        for stream in list(streams):
            batch = next(stream, None)
            if batch is None:
                streams.remove(stream)
            else:
                batches.append(batch)
    return batches


@settings(max_examples=100)
@given(
    inventory=inventories(max_groups=12, max_rows=30),
    order=orders(),
    last_batch=st.sampled_from(TAILS),
    ranks=st.integers(1, 4),
    workers=st.integers(1, 5),
    batch_size=st.integers(1, 9),
    epochs=st.integers(1, 3),
)
def test_dividing_among_workers_keeps_last_batch_and_batch_count(
    inventory: Inventory, order: Order, last_batch: LastBatch, ranks: int, workers: int, batch_size: int, epochs: int
) -> None:
    if last_batch is LastBatch.EVEN and 0 < inventory.num_rows < ranks:
        return
    seen = [collections.Counter[int]() for _ in range(epochs)]
    for rank in range(ranks):
        plan = plan_of(inventory, order, rank=Shard(rank, ranks), last_batch=last_batch, epochs=epochs)
        batches, steps = in_turns(plan, workers, batch_size), plan.steps_per_epoch(batch_size)
        assert len(batches) == epochs * steps
        for number, batch in enumerate(batches):
            seen[number // steps].update(batch.rows[batch.valid].tolist())
            # Remaining rows that are fewer than the ranks join the previous batch, and are divided with it.
            assert 1 <= len(batch.rows) <= batch_size + (last_batch is LastBatch.EVEN)
            if last_batch is not LastBatch.EVEN:
                assert len(batch.rows) == batch_size
    for counts in seen:
        if last_batch in (LastBatch.EVEN, LastBatch.PAD):
            assert counts == collections.Counter(range(inventory.num_rows))
        elif last_batch is LastBatch.DROP:
            assert set(counts.values()) <= {1}
            assert inventory.num_rows - len(counts) < batch_size * ranks
        else:
            assert set(counts) == set(range(inventory.num_rows))


@settings(max_examples=60)
@given(
    inventory=inventories(max_groups=12, max_rows=30),
    order=orders(),
    last_batch=st.sampled_from(TAILS),
    ranks=st.integers(1, 3),
)
def test_single_worker_has_the_batches_of_the_rank(
    inventory: Inventory, order: Order, last_batch: LastBatch, ranks: int
) -> None:
    if last_batch is LastBatch.EVEN and 0 < inventory.num_rows < ranks:
        return
    plan = plan_of(inventory, order, rank=Shard(ranks - 1, ranks), last_batch=last_batch, epochs=2)
    for ours, wanted in zip(in_turns(plan, 1, 4), walk(plan, 4), strict=True):
        assert ours.rows.tolist() == wanted.rows.tolist()
        assert ours.valid.tolist() == wanted.valid.tolist()


@settings(max_examples=60)
@given(
    inventory=inventories(max_groups=12, max_rows=30),
    order=orders(),
    last_batch=st.sampled_from(TAILS),
    workers=st.integers(1, 4),
    batch_size=st.integers(1, 9),
    data=st.data(),
)
def test_dataloader_worker_resumes_after_each_of_its_batches(
    inventory: Inventory, order: Order, last_batch: LastBatch, workers: int, batch_size: int, data: st.DataObject
) -> None:
    plan = plan_of(inventory, order, rank=Shard(), last_batch=last_batch, epochs=2)
    mine = worker_plan(plan, data.draw(st.integers(0, workers - 1)), workers)
    batches = walk(mine, batch_size)
    given_out = data.draw(st.integers(0, len(batches)))
    place = mine.place_after(given_out, batch_size)
    starts = np.cumsum(inventory.rows) - inventory.rows
    rest = [
        (starts[span.groups] + span.rows)[first:stop].tolist()
        for span in mine.spans(batch_size, rows_per_span=20, after=place)
        for first, stop in itertools.pairwise(span.offsets.tolist())
    ]
    assert rest == [batch.rows.tolist() for batch in batches[given_out:]]


@settings(max_examples=60)
@given(
    inventory=inventories(max_groups=12, max_rows=30),
    order=orders(),
    ranks=st.integers(1, 3),
    workers=st.integers(1, 4),
    batch_size=st.integers(1, 6),
    data=st.data(),
)
def test_state_after_a_batch_per_worker_resumes_on_other_workers_and_ranks(
    inventory: Inventory, order: Order, ranks: int, workers: int, batch_size: int, data: st.DataObject
) -> None:
    if inventory.num_rows < 3:
        return
    plans = [plan_of(inventory, order, rank=Shard(rank, ranks), last_batch=LastBatch.EVEN) for rank in range(ranks)]
    steps = plans[0].steps_per_epoch(batch_size)
    given_out = data.draw(st.integers(0, steps))
    cursor = cursor_after(worker_plan(plans[0], 0, workers), given_out, batch_size)
    if given_out in (0, steps):
        assert cursor is not None
    if cursor is None:
        assert given_out % workers
        return
    before = [row for plan in plans for batch in in_turns(plan, workers, batch_size)[:given_out] for row in batch.rows]
    others = [dataclasses.replace(plans[0].request, shard=Shard(rank, 2)) for rank in range(2)]
    after = [
        row
        for request in others
        for batch in in_turns(Plan(inventory, request), 3, 2, begin=cursor)
        for row in batch.rows
    ]
    assert sorted(before + after) == list(range(inventory.num_rows))


@settings(max_examples=examples(60))
@given(
    inventory=inventories(max_groups=20, max_rows=30),
    order=orders(),
    last_batch=st.sampled_from(TAILS),
    workers=st.integers(1, 4),
)
def test_dataloader_worker_keeps_row_groups_until_their_last_row_is_read(
    inventory: Inventory, order: Order, last_batch: LastBatch, workers: int
) -> None:
    plan = plan_of(inventory, order, rank=Shard(), last_batch=last_batch, epochs=2)
    for worker in range(workers):
        mine = worker_plan(plan, worker, workers)
        check_row_groups_at_hand(mine, 3)
        for span in mine.spans(3, rows_per_span=20):
            assert (span.valid is not None) == (last_batch is LastBatch.PAD)


@pytest.mark.parametrize("shuffle_rows", [False, True])
@pytest.mark.parametrize(("ranks", "workers"), [(1, 1), (1, 2), (1, 8), (2, 3), (3, 5), (4, 4)])
def test_row_groups_are_read_by_one_worker_except_at_borders(shuffle_rows: bool, ranks: int, workers: int) -> None:
    inventory = Inventory.of_rows(np.random.default_rng(0).integers(80, 120, 1000), bytes_per_row=1000)
    order = Order(0, shuffle_row_groups=True, shuffle_rows=shuffle_rows, lanes=24, block_rows=200)
    reads = 0
    for rank in range(ranks):
        request = ReadRequest(("id",), order, Shard(rank, ranks), chosen=ALL)
        plan = with_lanes_for_workers(Plan(inventory, request), workers, shuffle_buffer_bytes=8_000_000)
        for worker in range(workers):
            spans = worker_plan(plan, worker, workers).spans(32, rows_per_span=1000)
            reads += sum(len(span.fetch) for span in spans)
    assert reads / inventory.num_row_groups <= 1.1


@pytest.mark.parametrize(("ranks", "workers"), [(1, 4), (2, 3), (1, 1)])
def test_next_uses_of_a_worker_are_the_row_groups_that_it_fetches(ranks: int, workers: int) -> None:
    inventory = Inventory.of_rows([100] * 48)
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=12, block_rows=100)
    plan = Plan(inventory, ReadRequest(("id",), order, Shard(0, ranks), 3))
    for number in range(workers):
        mine = dataclasses.replace(worker_plan(plan, number, workers), batch_size=16)
        for epoch in range(3):
            uses = mine.next_uses(epoch * 4800, epoch * 4800)
            announced = uses.groups[uses.times < uses.until].tolist()
            fetched = [
                group for span in mine.spans(16, rows_per_span=16) if span.epoch == epoch for group in span.fetch
            ]
            assert len(announced) == 48 // ranks // workers
            assert set(announced) <= set(fetched)
            assert len(fetched) <= len(announced) + 12  # the last batches read the ends of lanes of other workers


def test_explicit_lanes_are_not_changed_for_dataloader_workers() -> None:
    order = Order(0, shuffle_row_groups=True, shuffle_rows=True, lanes=5, block_rows=7)
    plan = Plan(Inventory.of_rows([10] * 20), ReadRequest(("id",), order))
    assert with_lanes_for_workers(plan, 4, shuffle_buffer_bytes=10**6) is plan
    chosen = Plan(plan.inventory, dataclasses.replace(plan.request, chosen=frozenset({"lanes"})))
    found = with_lanes_for_workers(chosen, 4, shuffle_buffer_bytes=10**6).request.order
    assert (found.lanes % 4, found.block_rows) == (0, 7)
