"""Row numbers in plan order for PyTorch samplers, such that each worker gets rows of its own row groups. No I/O.

Rows are numbered across the dataset in file order, from 0, as in random access.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.lanes import in_memory, shuffled_lanes
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Order, ReadRequest, Shard
from petastore.plan.sharing.workers import WorkerPlan, with_lanes_for_workers

__all__ = ["numbered_batches", "plan_of_numbers"]

_ROWS_PER_SPAN = 8192
"""Maximum number of rows that are looked up together."""


def plan_of_numbers(
    inventory: Inventory,
    rows: NDArray[np.int64],
    *,
    shuffle: bool,
    seed: int,
    shard: Shard,
    last_batch: LastBatch,
    workers: int,
    shuffle_buffer_bytes: int,
) -> Plan:
    """Return a plan of one epoch over row numbers, for random access.

    Args:
        inventory: Inventory of the dataset.
        rows: Number of numbered rows in each row group, shape (groups,).
        shuffle: Whether row groups and rows are permuted; otherwise they are in file order.
        seed: Seed of the order, any integer.
        shard: Shard of this rank.
        last_batch: Policy for the last global batch.
        workers: Number of workers that build this rank's batches alternately.
        shuffle_buffer_bytes: Maximum bytes of row groups in memory, over all ranks and workers.
    """
    numbered = in_memory(inventory, rows)
    lanes, block_rows = shard.count, 1
    if shuffle:
        lanes, block_rows = shuffled_lanes(
            numbered, shuffle_buffer_bytes=shuffle_buffer_bytes, lanes=None, block_rows=None
        )
    order = Order(seed=seed, shuffle_row_groups=shuffle, shuffle_rows=shuffle, lanes=lanes, block_rows=block_rows)
    request = ReadRequest((), order, shard, 1, last_batch, chosen=frozenset({"lanes", "block_rows"}))
    return with_lanes_for_workers(Plan(numbered, request), workers, shuffle_buffer_bytes=shuffle_buffer_bytes)


def numbered_batches(plan: Plan, batch_size: int, *, workers: int, begin: Cursor, given: int) -> Iterator[list[int]]:
    """Yield the row numbers of each of the rank's batches, alternating between workers.

    Args:
        plan: From `plan_of_numbers`.
        batch_size: Number of rows of a batch.
        workers: Number of workers that alternate.
        begin: Cursor at which the pass began.
        given: Number of batches to skip from the start of the pass; skipping takes no time.

    Example:
        >>> asked = {"shuffle": False, "seed": 0, "shard": Shard(), "last_batch": LastBatch.EVEN}
        >>> inventory = Inventory.of_rows([3, 3])
        >>> plan = plan_of_numbers(inventory, inventory.rows, workers=2, shuffle_buffer_bytes=1, **asked)
        >>> list(numbered_batches(plan, 2, workers=2, begin=Cursor(), given=0))
        [[0, 1], [3, 4], [2, 5]]
    """
    turns = collections.deque(
        _of_worker(plan, batch_size, Shard(number % workers, workers), begin, -(-(given - number % workers) // workers))
        for number in range(given, given + workers)
    )
    while turns:
        worker = turns.popleft()
        for batch in itertools.islice(worker, 1):
            yield batch
            turns.append(worker)


def _of_worker(plan: Plan, batch_size: int, worker: Shard, begin: Cursor, given: int) -> Iterator[list[int]]:
    """Yield the row numbers of each batch of one worker, after skipping `given` of its batches."""
    mine = WorkerPlan(plan.inventory, plan.request, worker=worker, begin=begin)
    starts = np.cumsum(plan.inventory.rows) - plan.inventory.rows
    place = mine.place_after(given, batch_size)
    for span in mine.spans(batch_size, rows_per_span=_ROWS_PER_SPAN, after=place):
        numbers = (starts[span.groups] + span.rows).tolist()
        for first, stop in itertools.pairwise(span.offsets.tolist()):
            yield numbers[first:stop]
