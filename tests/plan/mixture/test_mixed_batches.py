"""Tests of mixtures with batching="per_source": the order of each source is kept, and batches follow the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.plan.batches.epoch_batches import EpochBatches
from petastore.plan.batches.spans import Batches, Source, Walk
from petastore.plan.mixture.mixed_batches import SourceBatches
from petastore.plan.request import LastBatch, Order, Shard

FILE_ORDER = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
WHOLE = Shard(0, 1)


def epoch_of(
    rows: list[int], weights: list[int], *, last_batch: LastBatch = LastBatch.EVEN, starts: list[int] | None = None
) -> SourceBatches:
    """Return an epoch over sources with these numbers of rows, in batches of four."""
    parts = [
        EpochBatches(count, 4, 1, 1, last_batch, begin)
        for count, begin in zip(rows, starts or [0] * len(rows), strict=True)
    ]
    return SourceBatches(parts, weights, WHOLE, hashed_for=(7, 0))


def rows_of(rows: list[int], batches: Batches) -> list[list[int]]:
    """Return the rows of each batch; rows of the second source begin at 1,000, of the third at 2,000."""
    counts = [np.array([count]) for count in rows]
    sources = [
        Source(each, int(each[0]), FILE_ORDER, None, range(1), int(each[0]), first) for first, each in enumerate(counts)
    ]
    steps = len(batches.offsets) - 1
    groups, numbers = batches.find(Walk(sources, 1, sum(rows), sum(rows)), 0, range(steps)).in_order()
    return [part.tolist() for part in np.split(groups * 1000 + numbers, batches.offsets[1:-1])]


sizes = st.lists(st.integers(1, 60), min_size=1, max_size=4)


@given(sizes, st.data(), st.sampled_from([LastBatch.EVEN, LastBatch.DROP]))
def test_batching_per_source_keeps_the_row_order_of_each_source(
    rows: list[int], data: st.DataObject, last_batch: LastBatch
) -> None:
    weights = data.draw(st.lists(st.integers(1, 5), min_size=len(rows), max_size=len(rows)))
    epoch = epoch_of(rows, weights, last_batch=last_batch)
    assume(epoch.steps)
    found = rows_of(rows, epoch.take(epoch.steps))
    for source, count in enumerate(rows):
        kept = count if last_batch is LastBatch.EVEN else count - count % 4
        own = [batch for batch in found if batch[0] // 1000 == source]
        assert [row - 1000 * source for batch in own for row in batch] == list(range(kept))
        assert {len(batch) for batch in own[:-1]} <= {4}


@given(sizes, st.lists(st.integers(1, 5), min_size=1, max_size=30))
def test_batching_per_source_does_not_depend_on_steps_computed_at_once(rows: list[int], takes: list[int]) -> None:
    whole, bit_by_bit = (epoch_of(rows, [1] * len(rows)) for _ in range(2))
    wanted = whole.take(whole.steps)
    found: list[list[int]] = []
    taken: list[Any] = []
    for count in takes:
        left = bit_by_bit.steps - len(found)
        if left:
            some = bit_by_bit.take(min(count, left))
            found += rows_of(rows, some)
            taken += tail_of(some)
    assert found == rows_of(rows, wanted)[: len(found)]
    assert taken == tail_of(wanted)[: len(taken)]


def tail_of(batches: Batches) -> list[list[int]]:
    """Return the number of rows of each source that are consumed after each batch."""
    assert batches.taken is not None
    assert batches.taken.sum(axis=1).tolist() == batches.consumed.tolist()
    assert [one.tolist() for one in batches.given(batches.consumed)] == batches.taken.tolist()
    after: NDArray[np.int64] = batches.taken[1:]
    return after.tolist()


def test_batching_per_source_keeps_the_weights_at_every_step() -> None:
    epoch = epoch_of([4000, 8000, 1000], [4, 8, 1])
    after = np.array(tail_of(epoch.take(epoch.steps)))
    wanted = after.sum(axis=1)[:, None] * np.array([4, 8, 1]) / 13
    assert np.abs(after - wanted).max() <= 2 * 4  # a batch has four rows, and its position within a stretch is random


def test_batching_per_source_resumes_with_the_same_batches() -> None:
    rows, weights = [40, 80, 17], [2, 4, 1]
    whole = epoch_of(rows, weights)
    first = whole.take(9)
    assert first.taken is not None
    went_on = epoch_of(rows, weights, starts=first.taken[-1].tolist())
    assert went_on.steps == whole.steps - 9
    assert rows_of(rows, went_on.take(went_on.steps)) == rows_of(rows, whole.take(whole.steps - 9))
