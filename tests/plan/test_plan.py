"""Tests of `Plan`: laws over uneven datasets, and orders that must not change between versions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.inventory import Inventory
from petastore.plan import Cursor, LastBatch, Order, Plan, ReadRequest, Shard
from petastore.plan.request import shuffled_lanes
from tests.laws import plan_laws as laws

RANKS = [1, 2, 3, 5, 7, 8, 16]
GOLDEN = Path(__file__).parent / "golden" / "orders.json"


def shuffled(seed: int = 7, *, lanes: int = 6, block_rows: int = 50) -> Order:
    return Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=lanes, block_rows=block_rows)


def plan_of(rows: list[int], order: Order, *, epochs: int | None = 1) -> Plan:
    return Plan(Inventory.of_rows(rows), ReadRequest(("id",), order, Shard(), epochs))


@given(laws.inventories(), laws.orders(), st.sampled_from(RANKS), st.integers(1, 70), st.sampled_from(LastBatch))
def test_plan_ranks_have_equal_steps_and_each_row_once(
    inventory: Inventory, order: Order, ranks: int, batch_size: int, last_batch: LastBatch
) -> None:
    plans = laws.ranks_of(inventory, order, ranks=ranks, last_batch=last_batch, epochs=2)
    if last_batch is LastBatch.EVEN and 0 < inventory.num_rows < ranks:
        for plan in plans:
            with pytest.raises(NoDataAvailableError, match=f"{inventory.num_rows:,} row.*{ranks} ranks"):
                plan.steps_per_epoch(batch_size)
        return
    laws.check_equal_steps(plans, batch_size)
    laws.check_every_row_once(plans, batch_size)


@given(
    laws.inventories(),
    laws.orders(),
    st.sampled_from([48, 240]),
    st.sampled_from([LastBatch.DROP, LastBatch.PAD, LastBatch.EVEN]),
)
def test_plan_global_batches_do_not_depend_on_ranks(
    inventory: Inventory, order: Order, global_batch: int, last_batch: LastBatch
) -> None:
    laws.check_global_batches_ignore_ranks(
        inventory, order, global_batch=global_batch, last_batch=last_batch, ranks=[1, 2, 3, 4, 5, 8, 16, 24, 48]
    )


@given(laws.inventories(), laws.orders(), st.sampled_from(RANKS), st.integers(1, 70), st.sampled_from(LastBatch))
def test_plan_keeps_row_groups_in_memory_until_their_last_row_is_read(
    inventory: Inventory, order: Order, ranks: int, batch_size: int, last_batch: LastBatch
) -> None:
    assume(last_batch is not LastBatch.EVEN or inventory.num_rows == 0 or inventory.num_rows >= ranks)
    for plan in laws.ranks_of(inventory, order, ranks=ranks, last_batch=last_batch):
        laws.check_row_groups_at_hand(plan, batch_size)


@given(laws.inventories(), laws.orders(), st.integers(1, 40), st.integers(1, 300))
def test_plan_batches_do_not_depend_on_how_many_rows_are_planned_at_once(
    inventory: Inventory, order: Order, batch_size: int, rows_per_span: int
) -> None:
    plan = Plan(inventory, ReadRequest(("id",), order, epochs=2))
    some = [batch.rows.tolist() for batch in laws.walk(plan, batch_size, rows_per_span=rows_per_span)]
    assert some == [batch.rows.tolist() for batch in laws.walk(plan, batch_size, rows_per_span=1)]


@given(laws.inventories(max_groups=8, max_rows=20), laws.orders(), st.integers(1, 12))
def test_plan_resumes_after_any_batch(inventory: Inventory, order: Order, batch_size: int) -> None:
    plan = Plan(inventory, ReadRequest(("id",), order, epochs=2))
    whole = [batch.rows.tolist() for batch in laws.walk(plan, batch_size)]
    cursors = [
        span.cursor_after(batch)
        for span in plan.spans(batch_size, rows_per_span=64)
        for batch in range(span.num_batches)
    ]
    starts = np.cumsum(inventory.rows) - inventory.rows
    for step, cursor in enumerate(cursors):
        suffix = [
            (starts[span.groups] + span.rows)[first:stop].tolist()
            for span in plan.spans(batch_size, rows_per_span=64, after=cursor)
            for first, stop in zip(span.offsets[:-1], span.offsets[1:], strict=True)
        ]
        assert suffix == whole[step + 1 :]


def test_unshuffled_plan_has_file_order() -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    batches = laws.walk(plan_of([3, 0, 4, 1], order), 3)
    assert [batch.rows.tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_unshuffled_plan_shards_are_contiguous() -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=3, block_rows=1)
    plans = laws.ranks_of(Inventory.of_rows([5, 7, 6]), order, ranks=3, last_batch=LastBatch.EVEN)
    rows = [np.concatenate([batch.rows for batch in laws.walk(plan, 2)]).tolist() for plan in plans]
    assert rows == [list(range(6)), list(range(6, 12)), list(range(12, 18))]


def test_plan_shuffles_each_epoch_differently() -> None:
    batches = laws.walk(plan_of([50] * 4, shuffled(), epochs=3), 200)
    assert len({tuple(batch.rows.tolist()) for batch in batches}) == 3


def test_order_of_seed_5_epoch_1_differs_from_seed_6_epoch_0() -> None:
    fifth = laws.walk(plan_of([50] * 4, shuffled(5), epochs=2), 200)
    sixth = laws.walk(plan_of([50] * 4, shuffled(6), epochs=1), 200)
    assert fifth[1].rows.tolist() != sixth[0].rows.tolist()


def test_plan_accepts_seed_zero() -> None:
    first, again, other = (laws.walk(plan_of([50] * 4, shuffled(seed)), 200)[0].rows.tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_plan_without_rows_has_no_batches() -> None:
    for last_batch in LastBatch:
        for plan in laws.ranks_of(Inventory.of_rows([0, 0]), shuffled(), ranks=2, last_batch=last_batch):
            assert plan.steps_per_epoch(4) == 0
            assert laws.walk(plan, 4) == []


def test_endless_plan_without_rows_ends() -> None:
    assert laws.walk(plan_of([0], shuffled(), epochs=None), 4) == []


def test_last_batch_pad_marks_all_rows_as_repeats_on_ranks_without_rows() -> None:
    plans = laws.ranks_of(Inventory.of_rows([2]), shuffled(), ranks=5, last_batch=LastBatch.PAD)
    batches = [laws.walk(plan, 3) for plan in plans]
    assert [len(batch) for batch in batches] == [1] * 5
    assert all(len(batch[0].rows) == 3 for batch in batches)
    assert sorted(np.concatenate([batch[0].rows[batch[0].valid] for batch in batches]).tolist()) == [0, 1]


def test_last_batch_wrap_repeats_a_small_dataset_several_times() -> None:
    plans = laws.ranks_of(Inventory.of_rows([2]), shuffled(), ranks=3, last_batch=LastBatch.WRAP)
    rows = np.concatenate([laws.walk(plan, 4)[0].rows for plan in plans])
    assert np.bincount(rows).tolist() == [6, 6]


def test_row_groups_are_read_by_one_rank_if_ranks_divide_lanes() -> None:
    inventory = Inventory.of_rows(np.random.RandomState(0).randint(700, 1300, 600))
    lanes, block_rows = shuffled_lanes(inventory, shuffle_buffer_bytes=2**30, lanes=None, block_rows=None)
    order = shuffled(lanes=lanes, block_rows=block_rows)
    assert lanes == 96
    for ranks in (1, 2, 4, 8, 16, 24, 48):
        plans = laws.ranks_of(inventory, order, ranks=ranks, last_batch=LastBatch.EVEN)
        reads = sum(len(span.fetch) for plan in plans for span in plan.spans(5040 // ranks, rows_per_span=65536))
        assert reads <= 600 + ranks - 1, f"{ranks} ranks"  # two ranks read a row group on their border


@pytest.mark.parametrize("golden", json.loads(GOLDEN.read_text()), ids=lambda golden: golden["name"])
def test_plan_order_is_stable_between_versions(golden: dict[str, object]) -> None:
    """Users resume training runs of older releases, so these orders must never change."""
    order = Order(**golden["order"])  # type: ignore[arg-type]
    plan = Plan(Inventory.of_rows(golden["rows"]), ReadRequest(("id",), order, epochs=2))  # type: ignore[arg-type]
    assert [batch.rows.tolist() for batch in laws.walk(plan, 8)] == golden["batches"]


@pytest.mark.parametrize("epochs", [0, -1, 1.5, True])
def test_plan_epochs_must_be_an_int_of_at_least_1(epochs: object) -> None:
    with pytest.raises(InvalidArgumentError, match="num_epochs"):
        ReadRequest(("id",), shuffled(), epochs=epochs)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_size", [0, -3, 2.0, "4"])
def test_plan_batch_size_must_be_an_int_of_at_least_1(batch_size: object) -> None:
    with pytest.raises(InvalidArgumentError, match="batch_size"):
        plan_of([3], shuffled()).steps_per_epoch(batch_size)  # type: ignore[arg-type]


def test_plan_yields_nothing_after_the_end() -> None:
    assert list(plan_of([3], shuffled()).spans(2, rows_per_span=9, after=Cursor(1, 0))) == []


def test_plan_fingerprints_distinguish_plans() -> None:
    plans = [plan_of([3, 4], shuffled(seed)) for seed in (1, 2)] + [plan_of([4, 3], shuffled(1))]
    assert len({plan.fingerprint for plan in plans}) == 3


def test_reshuffle_static_keeps_row_groups_per_rank_but_reorders_rows() -> None:
    order = dataclasses.replace(shuffled(lanes=4, block_rows=80), reshuffle="static")
    plans = laws.ranks_of(Inventory.of_rows([40] * 24), order, ranks=2, last_batch=LastBatch.EVEN, epochs=2)
    groups = []
    for plan in plans:
        spans = list(plan.spans(16, rows_per_span=64))
        of_epochs = [{group for span in spans if span.epoch == epoch for group in span.fetch} for epoch in range(2)]
        assert of_epochs[0] == of_epochs[1]
        groups.append(of_epochs[0])
        first, second = ([span.rows.tolist() for span in spans if span.epoch == epoch] for epoch in range(2))
        assert first != second
    assert groups[0].isdisjoint(groups[1])


def test_repr_describes_the_plan_in_one_line() -> None:
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=2, block_rows=1)
    for epochs, words in ((1, "1 epoch"), (2, "2 epochs"), (None, "endless")):
        plan = Plan(Inventory.of_rows([1000, 500]), ReadRequest(("id", "x"), order, Shard(1, 2), epochs))
        assert repr(plan) == (
            f"Plan(1,500 of 1,500 rows in 2 row groups, columns 2; shard 1 of 2, {words}, last_batch 'even', {order})"
        )
