"""Row numbers in the order of a plan, for samplers: batch by batch, from each worker's row groups in turns. Pure.

Rows are numbered through the dataset in file order, from 0, as random access numbers them.
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
from petastore.plan.request import Order, ReadRequest, Shard, Tail
from petastore.plan.sharing.workers import WorkerPlan, with_lanes_for_workers

__all__ = ["numbered_batches", "plan_of_numbers"]

_ROWS_PER_SPAN = 8192


def plan_of_numbers(
    inventory: Inventory,
    rows: NDArray[np.int64],
    *,
    shuffle: bool,
    seed: int,
    shard: Shard,
    last_batch: Tail,
    workers: int,
    shuffle_buffer_bytes: int,
) -> Plan:
    """A plan of one epoch whose rows are those that random access numbers.

    Args:
        inventory: What exists.
        rows: Rows of each row group that are numbered, shape (groups,).
        shuffle: Whether row groups and rows are permuted, or else come in file order.
        seed: Any integer.
        shard: Which part of the rows.
        last_batch: What becomes of the last global batch.
        workers: Workers that take turns at making this rank's batches.
        shuffle_buffer_bytes: Bytes of row groups that all ranks and workers together may keep.
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
    """The row numbers of each of the rank's batches, from one worker after the other.

    Args:
        plan: From `plan_of_numbers`.
        batch_size: Rows of a batch.
        workers: Workers that take turns.
        begin: Where the pass began.
        given: Batches of the pass to leave out; they cost nothing.

    Example:
        >>> asked = {"shuffle": False, "seed": 0, "shard": Shard(), "last_batch": Tail.EVEN, "shuffle_buffer_bytes": 1}
        >>> inventory = Inventory.of_rows([3, 3])
        >>> plan = plan_of_numbers(inventory, inventory.rows, workers=2, **asked)
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
    mine = WorkerPlan(plan.inventory, plan.request, worker=worker, begin=begin)
    starts = np.cumsum(plan.inventory.rows) - plan.inventory.rows
    place = mine.place_after(given, batch_size)
    for span in mine.spans(batch_size, rows_per_span=_ROWS_PER_SPAN, after=place):
        numbers = (starts[span.groups] + span.rows).tolist()
        for first, stop in itertools.pairwise(span.offsets.tolist()):
            yield numbers[first:stop]
