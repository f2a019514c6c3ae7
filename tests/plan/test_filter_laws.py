"""Tests of pruning: it never drops a matching row, and a plan over the remaining rows reads each matching row once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from petastore.plan import LastBatch, Order, Plan, ReadRequest, Shard
from petastore.testing.training import shards_of
from tests.laws import plan_laws
from tests.laws.pruning_laws import PrunedRows, check_pruning, pruned_rows
from tests.tier import examples

few = settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])


@few
@given(pruned_rows(max_groups=60))
def test_pruning_never_drops_a_matching_row_or_keeps_another_unchecked(drawn: PrunedRows) -> None:
    check_pruning(drawn.verdict(), drawn.inventory.rows, drawn.kept)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(pruned_rows(), plan_laws.orders(), st.sampled_from(plan_laws.RANKS), st.sampled_from(LastBatch))
def test_filtered_rows_are_read_once_in_equal_steps_on_any_number_of_ranks(
    drawn: PrunedRows, order: Order, ranks: int, last_batch: LastBatch
) -> None:
    verdict = drawn.verdict()
    check_pruning(verdict, drawn.inventory.rows, drawn.kept)
    selection = drawn.selection(verdict)
    plan = Plan(drawn.inventory, ReadRequest(("id",), order, Shard(), 1, last_batch), selection)
    assert plan.num_rows == drawn.kept.sum()
    batch_size = max(1, plan.num_rows // (10 * ranks))
    if last_batch is LastBatch.EVEN and 0 < plan.num_rows < ranks:
        plan_laws.check_too_few_rows_are_refused(shards_of(plan, ranks), batch_size)
        return
    plan_laws.check_equal_steps(shards_of(plan, ranks), batch_size)
    plan_laws.check_every_row_once(shards_of(plan, ranks), batch_size)


@few
@given(pruned_rows(max_groups=60), st.sampled_from(["none", "all"]), st.data())
def test_check_of_pruning_detects_a_wrongly_pruned_row_group(drawn: PrunedRows, side: str, data: st.DataObject) -> None:
    """A row group that is wrongly dropped or kept whole must be detected."""
    ends = np.cumsum(drawn.inventory.rows)
    kept = np.array([part.sum() for part in np.split(drawn.kept, ends[:-1])])
    wrong = np.flatnonzero(kept > 0 if side == "none" else kept < drawn.inventory.rows)
    assume(len(wrong))
    verdict = drawn.verdict()
    marks = getattr(verdict, side).copy()
    marks[data.draw(st.sampled_from(wrong.tolist()))] = True
    with pytest.raises(AssertionError, match="row groups"):
        check_pruning(dataclasses.replace(verdict, **{side: marks}), drawn.inventory.rows, drawn.kept)


def test_random_filters_of_the_pruning_tests_prune_often_enough() -> None:
    """If the drawn filters left all row groups undecided, the law would hold trivially."""
    decided = []

    @settings(max_examples=50, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(pruned_rows(max_groups=60))
    def draw(drawn: PrunedRows) -> None:
        verdict, filled = drawn.verdict(), drawn.inventory.rows > 0
        decided.append([bool(marks[filled].any()) for marks in (verdict.none, verdict.all)] + [len(verdict.undecided)])

    draw()
    dropped, whole, undecided = (sum(bool(one) for one in column) for column in zip(*decided, strict=True))
    assert min(dropped, whole, undecided) >= 5, (dropped, whole, undecided)
