"""What a span announces of a row group when it is fetched: the rows that will be wanted, in read order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import Mixture, Order, Plan, ReadRequest, Selection, Shard, Tail
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.sharing.workers import WorkerPlan
from petastore.testing import mixture_laws
from petastore.testing.plan_laws import inventories, orders


@given(inventories(), orders(), st.sampled_from([1, 2, 3, 5]), st.sampled_from(list(Tail)), st.integers(1, 9))
def test_every_row_is_announced_once(
    inventory: Inventory, order: Order, ranks: int, last_batch: Tail, batch: int
) -> None:
    assume(last_batch is not Tail.EVEN or inventory.num_rows >= ranks)
    fetched: set[int] = set()
    for rank in range(ranks):
        plan = Plan(inventory, ReadRequest(("id",), order, Shard(rank, ranks), 1, last_batch))
        for span in plan.spans(batch, rows_per_span=16):
            fetched |= set(span.fetch)
            for group, read_order in zip(span.fetch, span.read_orders, strict=True):
                assert (read_order is None) == (not order.shuffle_rows)
                if read_order is not None:
                    assert sorted(read_order.tolist()) == list(range(inventory.rows[group]))
    if last_batch is not Tail.DROP:
        assert fetched == set(np.flatnonzero(inventory.rows).tolist())


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(0, 99), st.booleans())
def test_rows_come_as_announced(rows: list[int], seed: int, shuffle: bool) -> None:
    """One rank on its own takes the rows of a row group that is in one lane just in the announced order."""
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
def test_rows_that_a_filter_leaves_out_are_not_announced(rows: list[int], seed: int, shuffle: bool) -> None:
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
def test_mixtures_announce_the_rows_of_their_sources(mixture: Mixture, batch: int) -> None:
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
def test_runs_are_rows_that_follow_each_other_in_read_order(
    inventory: Inventory, order: Order, ranks: int, batch: int, rows_per_span: int
) -> None:
    for rank in range(ranks):
        plan = Plan(inventory, ReadRequest(("id",), order, Shard(rank, ranks), 2, Tail.DROP))
        announced: dict[int, np.ndarray] = {}
        for span in plan.spans(batch, rows_per_span=rows_per_span):
            for group, read_order in zip(span.fetch, span.read_orders, strict=True):
                announced[group] = np.arange(inventory.rows[group]) if read_order is None else read_order
            if span.picked.runs is not None:
                assert_in_read_order(span.picked, announced)


def test_orders_of_whole_row_groups_are_known_as_runs() -> None:
    for shuffle_rows in (False, True):
        order = Order(seed=1, shuffle_row_groups=True, shuffle_rows=shuffle_rows, lanes=4, block_rows=1)
        plan = Plan(Inventory.of_rows([50] * 9), ReadRequest(("id",), order))
        spans = list(plan.spans(10, rows_per_span=200))
        assert any(span.picked.runs is not None and span.num_batches > 1 for span in spans)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_runs_of_workers_follow_the_read_order_that_they_announce(workers: int, ranks: int) -> None:
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
