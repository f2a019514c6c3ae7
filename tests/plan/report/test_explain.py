"""Tests of `Plan.explain`: memory, reads, mixing and skipped rows equal those of reading the plan."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import LastBatch, Order, Plan, ReadRequest, Selection, Shard
from petastore.plan.report.explanation import Explanation
from petastore.plan.selection import Pruned
from tests.laws import plan_laws as laws


@given(laws.inventories(), laws.orders(), st.sampled_from([1, 2, 3, 6]), st.integers(1, 20))
def test_row_groups_in_memory_stay_within_the_explained_peak(
    inventory: Inventory, order: Order, ranks: int, batch_size: int
) -> None:
    assume(inventory.num_rows >= ranks * batch_size)
    for plan in laws.ranks_of(inventory, order, ranks=ranks, last_batch=LastBatch.DROP):
        said = plan.explain(batch_size)
        at_hand: set[int] = set()
        for span in plan.spans(batch_size, rows_per_span=1):
            # A single batch may temporarily need more than what stays in memory between batches.
            at_hand |= set(span.fetch)
            passing = sum(int(inventory.rows[group]) for group in {*span.fetch, *span.release})
            assert sum(int(inventory.rows[group]) for group in at_hand) <= said.rows_resident + passing
            at_hand -= set(span.release)


def test_explain_counts_the_reads_of_the_plan() -> None:
    inventory = Inventory.of_rows([100] * 240)
    order = Order(seed=3, shuffle_row_groups=True, shuffle_rows=True, lanes=24, block_rows=100)
    for ranks in (1, 2, 3, 4, 6, 8, 12, 24):
        plans = laws.ranks_of(inventory, order, ranks=ranks, last_batch=LastBatch.DROP)
        fetched = sum(len(span.fetch) for plan in plans for span in plan.spans(10, rows_per_span=10**6))
        assert plans[0].explain(10).reads_per_row_group == pytest.approx(fetched / 240, abs=0.01)


def test_explain_mixing_decreases_from_no_shuffle_to_a_uniform_shuffle() -> None:
    inventory = Inventory.of_rows([1000] * 200)

    def mixing(*, shuffle_rows: bool, lanes: int, block_rows: int) -> float:
        order = Order(seed=1, shuffle_row_groups=True, shuffle_rows=shuffle_rows, lanes=lanes, block_rows=block_rows)
        return Plan(inventory, ReadRequest(("id",), order)).explain(256).mixing

    uniform = Plan(inventory, ReadRequest(("id",), Order(0, True, True, 1, 1))).explain(256).mixing_uniform
    none = mixing(shuffle_rows=False, lanes=1, block_rows=1)
    some = mixing(shuffle_rows=True, lanes=24, block_rows=1000)
    much = mixing(shuffle_rows=True, lanes=48, block_rows=4000)
    whole = mixing(shuffle_rows=True, lanes=1, block_rows=200_000)
    assert none > 0.95 > some > much > whole
    assert whole == pytest.approx(uniform, abs=0.03)


def drawn_like_lots(rows: int, batch: int, labels: int) -> float:
    """Return the mean total variation distance of random batches from a dataset of equally large classes."""
    random = np.random.default_rng(0)
    pool = np.arange(rows) * labels // rows
    counts = [np.bincount(random.choice(pool, batch, replace=False), minlength=labels) for _ in range(400)]
    return float(np.abs(np.array(counts) / batch - 1 / labels).sum(axis=1).mean() / 2)


@pytest.mark.parametrize(
    ("rows", "batch", "labels"), [(10_000, 1, 100), (10_000, 256, 100), (1000, 500, 100), (50, 7, 50)]
)
def test_explain_mixing_uniform_equals_random_sampling(rows: int, batch: int, labels: int) -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    said = Plan(Inventory.of_rows([rows]), ReadRequest(("id",), order)).explain(batch)
    assert said.mixing_uniform == pytest.approx(drawn_like_lots(rows, batch, labels), rel=0.03)
    assert said.mixing == pytest.approx(said.mixing_none, abs=0.02)


def test_explain_reports_skipped_rows_by_cause() -> None:
    inventory = Inventory.of_rows([10, 0, 10, 10, 10])
    chosen = np.arange(10) < 4
    pruned = (Pruned("partition values", 1, 10), Pruned("statistics", 1, 10), Pruned("filter", 0, 6))
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    counts = np.array([10, 0, 0, 0, 4])

    def said(pruned: tuple[Pruned, ...]) -> Explanation:
        selection = Selection(counts, {4: chosen}, pruned)
        return Plan(inventory, ReadRequest(("id",), order), selection).explain(4)

    told = said(pruned)
    assert (told.row_groups, told.row_groups_kept, told.row_groups_empty) == (5, 2, 1)
    assert (told.dataset_rows, told.rows, told.pruned) == (40, 14, pruned)
    first, second = str(told).splitlines()[:2]
    assert first == "row groups  2 of 5; 1 pruned by partition values; 1 pruned by statistics; 1 without rows"
    assert second == "rows        14 of 40; left out: 10 by partition values, 10 by statistics, 6 by the filter"
    assert said(()).pruned == (Pruned("selection", 2, 26),)
    assert said(pruned[:1]).pruned == (pruned[0], Pruned("selection", 1, 16))
    assert told.as_dict()["pruned"][0] == {"by": "partition values", "row_groups": 1, "rows": 10}


def test_explain_counts_column_bytes_when_known() -> None:
    inventory = Inventory.of_rows([100] * 8, bytes_per_row=8)
    order = Order(seed=0, shuffle_row_groups=True, shuffle_rows=False, lanes=2, block_rows=1)
    plan = Plan(inventory, ReadRequest(("id",), order, Shard(1, 2)))
    whole, known = plan.explain(4), plan.explain(4, column_bytes=np.full(8, 10))
    assert (whole.bytes_to_fetch, whole.rank_bytes_to_fetch, whole.bytes_of) == (6400, 3200, "row groups")
    assert (known.bytes_to_fetch, known.rank_bytes_to_fetch, known.bytes_of) == (80, 40, "columns")
    assert "fetched     80 B an epoch, 40 B by rank 1\n" in str(known)
    assert "6.2 KiB an epoch, 3.1 KiB by rank 1; of whole row groups, since" in str(whole)


@pytest.mark.parametrize("column_bytes", [np.zeros(3, np.int64), np.zeros(2), np.zeros((2, 1), np.int64)])
def test_explain_raises_for_column_bytes_of_wrong_length_or_dtype(column_bytes: Any) -> None:
    order = Order(seed=0, shuffle_row_groups=True, shuffle_rows=False, lanes=2, block_rows=1)
    with pytest.raises(
        InvalidArgumentError, match="column_bytes must be integers, one for each of 2 row groups, got shape"
    ):
        Plan(Inventory.of_rows([1, 1]), ReadRequest(("id",), order)).explain(1, column_bytes=column_bytes)


def test_explain_renders_as_json_and_text() -> None:
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=10)
    said = Plan(Inventory.of_rows([10, 0, 20]), ReadRequest(("id",), order, Shard(0, 2))).explain(4)
    assert json.loads(json.dumps(said.as_dict()))["rows_per_rank"] == [15, 15]
    assert "2 of 3; 1 without rows" in str(said)
    assert "30 of 30" in str(said)
    assert "2 ranks × 4 batches of 4 rows" in str(said)


def test_explain_works_without_rows() -> None:
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=10)
    assert Plan(Inventory.of_rows([0]), ReadRequest(("id",), order)).explain(4).steps == 0
