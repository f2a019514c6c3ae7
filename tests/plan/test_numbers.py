"""Tests of the row numbers of samplers: each row once over ranks and workers, and resumable after any batch."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.request import LastBatch, Shard
from petastore.plan.workers import numbered_batches, plan_of_numbers
from tests.laws.plan_laws import inventories


@given(
    inventory=inventories(max_groups=10, max_rows=20),
    keep=st.integers(1, 4),
    shuffle=st.booleans(),
    ranks=st.integers(1, 3),
    workers=st.integers(1, 4),
    batch_size=st.integers(1, 7),
    given_out=st.integers(0, 10),
    memory=st.integers(0, 2000),
)
def test_block_sampler_indices_are_disjoint_over_all_ranks_and_workers(
    inventory: Inventory,
    keep: int,
    shuffle: bool,
    ranks: int,
    workers: int,
    batch_size: int,
    given_out: int,
    memory: int,
) -> None:
    rows = inventory.rows // keep
    total = int(rows.sum())
    assume(total == 0 or total >= ranks)
    seen = []
    for rank in range(ranks):
        plan = plan_of_numbers(
            inventory,
            rows,
            shuffle=shuffle,
            seed=3,
            shard=Shard(rank, ranks),
            last_batch=LastBatch.EVEN,
            workers=workers,
            shuffle_buffer_bytes=memory,
        )
        begin = Cursor(5, 0, 5)
        batches = list(numbered_batches(plan, batch_size, workers=workers, begin=begin, given=0))
        assert len(batches) == plan.steps_per_epoch(batch_size)
        rest = list(numbered_batches(plan, batch_size, workers=workers, begin=begin, given=given_out))
        assert rest == batches[given_out:]
        seen += [number for batch in batches for number in batch]
    assert sorted(seen) == list(range(total))


def test_unshuffled_sampler_gives_dataloader_workers_contiguous_parts() -> None:
    inventory = Inventory.of_rows([10, 10, 10, 10])
    plan = plan_of_numbers(
        inventory,
        inventory.rows,
        shuffle=False,
        seed=0,
        shard=Shard(),
        last_batch=LastBatch.EVEN,
        workers=2,
        shuffle_buffer_bytes=0,
    )
    batches = list(numbered_batches(plan, 5, workers=2, begin=Cursor(), given=0))
    assert np.concatenate(batches[::2]).tolist() == list(range(20))
    assert np.concatenate(batches[1::2]).tolist() == list(range(20, 40))
