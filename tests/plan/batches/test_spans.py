"""Tests of spans: the row groups that they fetch, and the announced read order of their selected rows."""

from __future__ import annotations

import collections
import gc
import itertools
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import LastBatch, Mixture, Order, Plan, ReadRequest, Selection, Shard
from petastore.plan.cursor import Cursor
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.plan import Span
from petastore.plan.workers import WorkerPlan
from tests.laws import mixture_laws
from tests.laws.plan_laws import inventories, orders


@given(inventories(), orders(), st.sampled_from([1, 2, 3, 5]), st.sampled_from(list(LastBatch)), st.integers(1, 9))
def test_spans_fetch_row_groups_with_each_row_once_in_their_read_order(
    inventory: Inventory, order: Order, ranks: int, last_batch: LastBatch, batch: int
) -> None:
    assume(last_batch is not LastBatch.EVEN or inventory.num_rows >= ranks)
    fetched: set[int] = set()
    for rank in range(ranks):
        plan = Plan(inventory, ReadRequest(("id",), order, Shard(rank, ranks), 1, last_batch))
        for span in plan.spans(batch, rows_per_span=16):
            fetched |= set(span.fetch)
            for group, read_order in zip(span.fetch, span.read_orders, strict=True):
                assert (read_order is None) == (not order.shuffle_rows)
                if read_order is not None:
                    assert sorted(read_order.tolist()) == list(range(inventory.rows[group]))
    if last_batch is not LastBatch.DROP:
        assert fetched == set(np.flatnonzero(inventory.rows).tolist())


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(0, 99), st.booleans())
def test_rows_of_a_row_group_are_taken_in_its_announced_read_order(rows: list[int], seed: int, shuffle: bool) -> None:
    """With one rank and one lane, the rows of a row group are read exactly in the announced order."""
    order = Order(seed=seed, shuffle_row_groups=True, shuffle_rows=shuffle, lanes=1, block_rows=40)
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order))
    announced: dict[int, list[int]] = {}
    taken: dict[int, list[int]] = {}
    for span in plan.spans(3, rows_per_span=12):
        for group, read_order in zip(span.fetch, span.read_orders, strict=True):
            announced[group] = list(range(rows[group])) if read_order is None else read_order.tolist()
        for group, row in zip(span.groups.tolist(), span.rows.tolist(), strict=True):
            taken.setdefault(group, []).append(row)
    assert taken == announced


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(0, 99), st.booleans())
def test_read_orders_of_row_groups_contain_only_selected_rows(rows: list[int], seed: int, shuffle: bool) -> None:
    bitmaps = {group: np.arange(count) % 3 == 0 for group, count in enumerate(rows) if group % 2 and count > 1}
    counts = [int(bitmaps[group].sum()) if group in bitmaps else count for group, count in enumerate(rows)]
    order = Order(seed=seed, shuffle_row_groups=True, shuffle_rows=shuffle, lanes=3, block_rows=40)
    plan = Plan(Inventory.of_rows(rows), ReadRequest(("id",), order), Selection(np.array(counts), bitmaps))
    fetched: set[int] = set()
    for span in plan.spans(3, rows_per_span=12):
        fetched |= set(span.fetch)
        for group, read_order in zip(span.fetch, span.read_orders, strict=True):
            wanted = np.flatnonzero(bitmaps[group]) if group in bitmaps else np.arange(rows[group])
            assert (read_order is None) == (group not in bitmaps and not shuffle)
            if read_order is not None:
                assert sorted(read_order.tolist()) == wanted.tolist()
    assert fetched == set(np.flatnonzero(counts).tolist())


@given(mixture_laws.mixtures(), st.integers(1, 9))
def test_read_orders_of_a_mixture_contain_the_rows_of_each_span(mixture: Mixture, batch: int) -> None:
    spans = list(mixture.spans(batch, rows_per_span=16))
    assert sum(len(span.rows) for span in spans) == 2 * mixture.num_rows
    for span in spans:
        assert len(span.read_orders) == len(span.fetch)
        for group, read_order in zip(span.fetch, span.read_orders, strict=True):
            if read_order is not None:
                assert len(set(read_order.tolist())) == len(read_order)
                assert set(span.rows[span.groups == group].tolist()) <= set(read_order.tolist())


def assert_in_read_order(picked: GroupedRows, announced: dict[int, np.ndarray]) -> None:
    runs = picked.runs
    assert runs is not None
    assert (runs.counts > 0).all()
    lie = zip(runs.groups.tolist(), runs.firsts.tolist(), runs.counts.tolist(), strict=True)
    found = [announced[group][first : first + count] for group, first, count in lie]
    assert np.concatenate(found).tolist() == picked.rows.tolist()


@given(inventories(), orders(), st.sampled_from([1, 2, 3, 5]), st.integers(1, 9), st.sampled_from([16, 4096]))
def test_runs_are_consecutive_rows_in_read_order(
    inventory: Inventory, order: Order, ranks: int, batch: int, rows_per_span: int
) -> None:
    for rank in range(ranks):
        plan = Plan(inventory, ReadRequest(("id",), order, Shard(rank, ranks), 2, LastBatch.DROP))
        announced: dict[int, np.ndarray] = {}
        for span in plan.spans(batch, rows_per_span=rows_per_span):
            for group, read_order in zip(span.fetch, span.read_orders, strict=True):
                announced[group] = np.arange(inventory.rows[group]) if read_order is None else read_order
            if span.picked.runs is not None:
                assert_in_read_order(span.picked, announced)


def test_spans_that_read_whole_row_groups_have_runs() -> None:
    for shuffle_rows in (False, True):
        order = Order(seed=1, shuffle_row_groups=True, shuffle_rows=shuffle_rows, lanes=4, block_rows=1)
        plan = Plan(Inventory.of_rows([50] * 9), ReadRequest(("id",), order))
        spans = list(plan.spans(10, rows_per_span=200))
        assert any(span.picked.runs is not None and span.num_batches > 1 for span in spans)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_runs_of_dataloader_workers_follow_the_read_order_of_row_groups(workers: int, ranks: int) -> None:
    order = Order(seed=3, shuffle_row_groups=True, shuffle_rows=True, lanes=12, block_rows=1)
    inventory = Inventory.of_rows([700, 900, 1100, 650, 800])
    request = ReadRequest(("id",), order, Shard(ranks - 1, ranks), 2)
    seen = 0
    for number in range(workers):
        plan = WorkerPlan(inventory, request, worker=Shard(number, workers))
        announced: dict[int, np.ndarray] = {}
        for span in plan.spans(60, rows_per_span=4096):
            for group, read_order in zip(span.fetch, span.read_orders, strict=True):
                assert read_order is not None
                announced[group] = read_order
            if span.picked.runs is not None:
                assert_in_read_order(span.picked, announced)
                seen += 1
    assert seen > 0


@pytest.mark.parametrize(("lanes", "most"), [(1, 13), (48, 18)])
def test_epoch_order_takes_little_memory_and_is_freed_after_the_epoch(lanes: int, most: int) -> None:
    """For a million row groups the order takes 20 MB."""
    groups = 100_000
    order = Order(seed=1, shuffle_row_groups=True, shuffle_rows=lanes > 1, lanes=lanes, block_rows=100)
    plan = Plan(Inventory.of_rows([100] * groups), ReadRequest(("id",), order, epochs=2))
    rows = plan.num_rows

    def read_into_the_second_epoch() -> Iterator[Span]:
        spans = plan.spans(1000, rows_per_span=1000, after=Cursor(0, rows - 20_000))
        collections.deque(itertools.islice(spans, 30), maxlen=0)
        return spans

    read_into_the_second_epoch()  # fills the caches that all plans of a process share
    tracemalloc.start()
    try:
        spans = read_into_the_second_epoch()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < most * groups + 500_000
    assert next(spans).epoch == 1
