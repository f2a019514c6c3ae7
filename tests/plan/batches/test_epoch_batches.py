"""Tests of the global batches of an epoch and each rank's share, for every last_batch policy and start position."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.errors import NoDataAvailableError
from petastore.plan import LastBatch, Shard
from petastore.plan.batches.epoch_batches import EpochBatches, lanes_of
from petastore.plan.order.visits import LaneRuns, lane_of_visit


@st.composite
def epochs(draw: Any) -> EpochBatches:
    """Draw epochs of few rows, with any last_batch policy and start position."""
    num_rows, ranks, last_batch = (
        draw(st.integers(0, 120)),
        draw(st.sampled_from([1, 2, 3, 4, 6])),
        draw(st.sampled_from(LastBatch)),
    )
    assume(last_batch is not LastBatch.EVEN or num_rows == 0 or num_rows >= ranks)
    lanes = min(draw(st.sampled_from([1, 2, 3, 4, 6, 12, 48])), max(num_rows, 1))
    return EpochBatches(num_rows, draw(st.integers(1, 9)), ranks, lanes, last_batch, draw(st.integers(0, num_rows)))


def shares_of(batches: EpochBatches) -> list[list[list[int]]]:
    """Return for each step and rank its positions, without repeats."""
    steps: list[list[list[int]]] = [[] for _ in range(batches.steps)]
    for rank in range(batches.ranks):
        share = batches.share(Shard(rank, batches.ranks), 0, batches.steps)
        real = np.ones(len(share.positions), dtype=np.bool_) if share.valid is None else share.valid
        for step, of_ranks in enumerate(steps):
            rows = slice(*share.offsets[step : step + 2].tolist())
            of_ranks.append(share.positions[rows][real[rows]].tolist())
    return steps


@given(epochs())
def test_each_global_batch_is_divided_evenly_among_ranks(batches: EpochBatches) -> None:
    consumed = [batches.start, *batches.consumed_after(range(batches.steps)).tolist()]
    for step, of_ranks in enumerate(shares_of(batches)):
        run = np.arange(consumed[step], consumed[step + 1])
        if batches.last_batch is LastBatch.WRAP:
            run = np.arange(consumed[step], consumed[step] + batches.global_batch) % batches.num_rows
        assert sorted(row for rows in of_ranks for row in rows) == sorted(run.tolist())
        sizes = [len(rows) for rows in of_ranks]
        assert max(sizes) - min(sizes) <= 1 or batches.last_batch is LastBatch.PAD


@given(epochs())
def test_only_last_batch_drop_drops_rows(batches: EpochBatches) -> None:
    left = batches.num_rows - batches.start
    if batches.steps:
        left = batches.num_rows - int(batches.consumed_after(range(batches.steps))[-1])
    assert left < batches.global_batch if batches.last_batch is LastBatch.DROP else left == 0


@given(epochs(), st.integers(0, 20))
def test_steps_do_not_depend_on_how_many_are_computed_at_once(batches: EpochBatches, cut: int) -> None:
    cut = 1 + cut % max(batches.steps - 1, 1)
    for rank in range(batches.ranks if batches.steps > 1 else 0):
        shard = Shard(rank, batches.ranks)
        whole, first, second = (
            batches.share(shard, *some) for some in ((0, batches.steps), (0, cut), (cut, batches.steps))
        )
        assert np.concatenate([first.positions, second.positions]).tolist() == whole.positions.tolist()
        assert [*first.offsets[:-1], *(second.offsets + first.offsets[-1])] == whole.offsets.tolist()
        assert (whole.valid is None) == (batches.last_batch is not LastBatch.PAD)
        if whole.valid is not None and first.valid is not None and second.valid is not None:
            assert np.concatenate([first.valid, second.valid]).tolist() == whole.valid.tolist()


@given(epochs())
def test_rows_per_rank_are_known_in_advance(batches: EpochBatches) -> None:
    for rank in range(batches.ranks):
        shard = Shard(rank, batches.ranks)
        share = batches.share(shard, 0, batches.steps) if batches.steps else None
        assert batches.rows_of(shard) == (0 if share is None else len(share.positions))


@given(epochs())
def test_rank_with_its_own_lanes_reads_no_other_lanes(batches: EpochBatches) -> None:
    batches = dataclasses.replace(batches, start=0, last_batch=LastBatch.DROP)
    for rank in range(batches.ranks if batches.steps else 0):
        shard = Shard(rank, batches.ranks)
        share = batches.share(shard, 0, batches.steps)
        lanes = lane_of_visit(batches.lanes)[share.positions % batches.lanes]
        own = lanes_of(shard, batches.lanes)
        if isinstance(share.rows, LaneRuns):
            assert set(lanes.tolist()) <= set(own)


@pytest.mark.parametrize(("rows", "said"), [(1, "1 row"), (7, "7 rows")])
def test_last_batch_even_with_fewer_rows_than_ranks_raises(rows: int, said: str) -> None:
    with pytest.raises(
        NoDataAvailableError, match=f"at least one row, got {said} for 8 ranks.*fewer ranks, or last_batch='pad'"
    ):
        EpochBatches(rows, 4, 8, 1, LastBatch.EVEN)
    assert EpochBatches(0, 4, 8, 1, LastBatch.EVEN).steps == 0


def test_last_batch_even_adds_fewer_rows_than_ranks_to_the_previous_batch() -> None:
    batches = EpochBatches(num_rows=26, batch_size=3, ranks=4, lanes=1, last_batch=LastBatch.EVEN)
    assert batches.steps == 2
    assert [batches.rows_of(Shard(rank, 4)) for rank in range(4)] == [6, 7, 6, 7]


def test_last_batch_pad_repeats_a_row_on_ranks_without_rows() -> None:
    share = EpochBatches(2, 3, 3, 1, LastBatch.PAD).share(Shard(0, 3), 0, 1)
    assert share.valid is not None
    assert share.valid.tolist() == [False] * 3
    assert set(share.positions.tolist()) <= {0, 1}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("lanes", [1, 2, 6, 12])
def test_each_lane_belongs_to_a_rank(lanes: int, ranks: int) -> None:
    of_ranks = [lanes_of(Shard(rank, ranks), lanes) for rank in range(ranks)]
    assert set().union(*of_ranks) == set(range(lanes))
    assert all(len(own) == lanes // ranks for own in of_ranks if lanes % ranks == 0)
