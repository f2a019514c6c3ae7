"""How a rank's batches fall to the workers that make them, each from row groups of its own. Pure.

Worker processes give their batches in turns: batch s of a rank comes from worker s % W. Were they cut as one process
cuts them, across all of the rank's lanes, each worker would read every row group. So W batches in a row, a *round*, are
cut differently: as R·W ranks would cut them, each from lanes of its own, so a worker keeps its lanes. What is left at
the end of the epoch, T ≤ W batches with the last one of `last_batch` among them, is sorted by lane and cut into T equal
runs.

That keeps, for any W, the number of batches and what `last_batch` promises of the rows. With one worker it changes
nothing.

```text
rank 0 of 1, W = 2, 4 lanes, batches of 4 rows, 26 rows     worker 0        worker 1
round 0: positions 0 to 7                                   lanes 0 and 1   lanes 2 and 3
round 1: positions 8 to 15                                  lanes 0 and 1   lanes 2 and 3
round 2: positions 16 to 23                                 lanes 0 and 1   lanes 2 and 3
left: positions 24 and 25, one batch                        both rows       nothing
```

The next epoch begins with the worker whose turn it is, so that no worker falls behind over many epochs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.plan.batches.load_order import LoadOrder, Stretch, load_order
from petastore.plan.batches.spans import Pace, SharedBatches, Span
from petastore.plan.batches.tail import EpochBatches, Share, lanes_of
from petastore.plan.cursor import Cursor
from petastore.plan.lanes import in_memory, shuffled_lanes
from petastore.plan.order.visits import spreads_evenly
from petastore.plan.plan import Plan
from petastore.plan.request import Shard, Tail

__all__ = ["WorkerBatches", "WorkerPlan", "cursor_after", "with_lanes_for_workers"]


@dataclasses.dataclass(frozen=True)
class WorkerBatches(EpochBatches):
    """The batches of an epoch that one worker of each rank makes.

    Example:
        >>> mine = WorkerBatches(num_rows=26, batch_size=4, ranks=1, lanes=4, last_batch=Tail.EVEN, workers=2, turn=0)
        >>> mine.of_ranks.steps, mine.rounds, mine.steps
        (7, 3, 4)
        >>> mine.share(Shard(), 3, 4).positions.tolist()
        [24, 25]
    """

    workers: int = 1
    """Workers that take turns."""

    turn: int = 0
    """Whose batches are meant: of step s of the epoch, those with s % workers == turn."""

    @once
    def of_ranks(self) -> EpochBatches:
        """The batches of whole ranks."""
        return EpochBatches(self.num_rows, self.batch_size, self.ranks, self.lanes, self.last_batch, self.start)

    @once
    def rounds(self) -> int:
        """Rounds of full batches."""
        return self._full_steps // self.workers

    @once
    def _full_steps(self) -> int:
        steps = self.of_ranks.steps
        is_even = self.last_batch is Tail.DROP or self.start + steps * self.global_batch == self.num_rows
        return steps if is_even else max(steps - 1, 0)

    @property
    def _left(self) -> int:
        """Batches of a rank after the last round."""
        return self.of_ranks.steps - self.rounds * self.workers

    @once
    def steps(self) -> int:
        """Batches that the worker makes."""
        return self.rounds + (self.turn < self._left)

    @property
    def round_rows(self) -> int:
        """Positions of the epoch that a round takes."""
        return self.global_batch * self.workers

    def consumed_after(self, steps: range) -> NDArray[np.int64]:
        """Positions that are consumed once all workers have made as many batches, shape (steps,)."""
        consumed = self.start + np.arange(steps.start + 1, steps.stop + 1, dtype=np.int64) * self.round_rows
        if steps.stop > self.rounds:
            consumed[-1] = self.of_ranks.consumed_after(range(self.of_ranks.steps - 1, self.of_ranks.steps))[0]
        return consumed

    def rows_of(self, shard: Shard) -> int:
        """Rows that the worker makes for a rank, repeats included."""
        return int(self.share(shard, 0, self.steps).offsets[-1]) if self.steps else 0

    def share(self, shard: Shard, first: int, stop: int) -> Share:
        """A rank's rows of the worker's batches [first, stop)."""
        parts = []
        if first < self.rounds:
            cut = EpochBatches(
                self.num_rows, self.batch_size, self.ranks * self.workers, self.lanes, Tail.DROP, self.start
            )
            part = Shard(shard.index * self.workers + self.turn, shard.count * self.workers)
            full = cut.share(part, first, min(stop, self.rounds))
            valid = np.ones(int(full.offsets[-1]), dtype=np.bool_) if self.last_batch is Tail.PAD else None
            parts.append(dataclasses.replace(full, valid=valid))
        if stop > self.rounds:
            parts.append(self._rest(shard))
        return parts[0] if len(parts) == 1 else _joined(*parts)

    def _rest(self, shard: Shard) -> Share:
        start = self.start + self.rounds * self.round_rows
        whole = EpochBatches(
            self.num_rows, self.batch_size * self._left, self.ranks, self.lanes, self.last_batch, start
        ).share(shard, 0, 1)
        rows = len(whole.positions)
        mine = slice(self.turn * rows // self._left, (self.turn + 1) * rows // self._left)
        positions = whole.positions[mine]
        valid = None if whole.valid is None else whole.valid[mine]
        return Share(positions, np.array([0, len(positions)], dtype=np.int64), valid)


def _joined(first: Share, second: Share) -> Share:
    valid = None if first.valid is None or second.valid is None else np.concatenate([first.valid, second.valid])
    return Share(
        rows=np.concatenate([first.positions, second.positions]),
        offsets=np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]]),
        valid=valid,
    )


@dataclasses.dataclass(frozen=True, repr=False)
class WorkerPlan(Plan):
    """What one of a rank's workers reads, and in what order.

    A plan like any other for whoever runs it, but its cursors count what all workers together have consumed once each
    has made as many batches as this one.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> request = ReadRequest(("id",), order)
        >>> plans = [WorkerPlan(Inventory.of_rows([4, 4]), request, worker=Shard(w, 2)) for w in range(2)]
        >>> [[span.groups.tolist() for span in plan.spans(2, rows_per_span=2)] for plan in plans]
        [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]
    """

    worker: Shard = Shard()  # noqa: RUF009 - frozen
    """Which of the rank's workers."""

    begin: Cursor = Cursor()  # noqa: RUF009 - frozen
    """Where the workers begin, all of them."""

    batch_size: int = 1
    """Rows of a batch, for `load_order`: they decide which worker's turn it is when an epoch begins."""

    def load_order(self, after: Cursor) -> LoadOrder:
        """Return which row groups this worker loads from a cursor of its own on: in its epoch and in the next one.

        Those of full rounds; the batches that are left at the end of an epoch may have rows of a few more.
        """
        sources, stretches = [], []
        for epoch in (after.epoch, after.epoch + 1):
            batches = self._of_epoch(epoch, self.batch_size)
            part = Shard(self.request.shard.index * batches.workers + batches.turn, batches.ranks * batches.workers)
            source = dataclasses.replace(self._source(self.request.order), own_lanes=lanes_of(part, batches.lanes))
            first = epoch * self.num_rows + batches.start
            end = first + batches.rounds * batches.round_rows
            is_under_way = epoch == after.epoch
            begin = max(first, epoch * self.num_rows + after.position) if is_under_way else first
            stretch = Stretch(begin, end, 0) if is_under_way else Stretch(first, first, end - first)
            sources.append(source)
            stretches.append(stretch if begin < end else Stretch(0, 0, 0))
        return load_order(sources, stretches, after.next_epoch(), epochs=self.request.epochs)

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        """The worker's batches from a cursor of its own on, several at a time, through all epochs."""
        cursor = after or self.begin
        pace = Pace(rows_per_span, batch_size)
        walk = self._walk(pace)
        for epoch, batches in self._epochs(batch_size):
            if epoch < cursor.epoch:
                continue
            first = (cursor.position - batches.start) // batches.round_rows if epoch == cursor.epoch else 0
            shared = SharedBatches(batches, self.request.shard, first=first)
            yield from walk.spans(shared, pace, Cursor(epoch, 0, cursor.first_epoch), is_last=False)

    def place_after(self, given: int, batch_size: int) -> Cursor:
        """The worker's own cursor after as many of its batches, to go on from."""
        for epoch, batches in self._epochs(batch_size):
            if given < batches.steps:
                return Cursor(epoch, batches.start + given * batches.round_rows, self.begin.first_epoch)
            given -= batches.steps
        return self.begin.pass_ends(self.request.epochs or 0)

    def _epochs(self, batch_size: int) -> Iterator[tuple[int, WorkerBatches]]:
        """The epochs from the beginning on, with what the worker makes of each."""
        here = self.begin
        while not here.is_at_end(self.request.epochs):
            batches = self._of_epoch(here.epoch, batch_size)
            yield here.epoch, batches
            if batches.of_ranks.steps == 0 and batches.start == 0:
                return
            here = here.next_epoch()

    def _of_epoch(self, epoch: int, batch_size: int) -> WorkerBatches:
        """Return the batches of the worker in an epoch, from its start."""
        begin, given = self.begin, 0
        if epoch > begin.epoch:  # whose turn it is depends on the batches before
            rest = self._batches(batch_size, begin.position).steps
            given = rest + (epoch - begin.epoch - 1) * self._batches(batch_size).steps
        return WorkerBatches(
            num_rows=self.num_rows,
            batch_size=batch_size,
            ranks=self.request.shard.count,
            lanes=self._lanes_in(self.request.order),
            last_batch=self.request.last_batch,
            start=begin.position if epoch == begin.epoch else 0,
            workers=self.worker.count,
            turn=(self.worker.index - given) % self.worker.count,
        )


def cursor_after(plan: WorkerPlan, given: int, batch_size: int) -> Cursor | None:
    """Where a rank stands after as many batches of all its workers, as a cursor that any other plan can go on from.

    None inside a round, where no cursor says what was consumed; with one worker there is always a cursor.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> plan = WorkerPlan(Inventory.of_rows([9]), ReadRequest(("id",), order), worker=Shard(0, 2))
        >>> [cursor_after(plan, given, 2) for given in (2, 3)]
        [Cursor(epoch=0, position=4, first_epoch=0), None]
    """
    for epoch, batches in plan._epochs(batch_size):  # noqa: SLF001 - one idea, cut in two
        steps = batches.of_ranks.steps
        if given < steps:
            is_round = given % batches.workers == 0 and given <= batches.rounds * batches.workers
            position = batches.start + given * batches.global_batch
            return Cursor(epoch, position, plan.begin.first_epoch) if is_round else None
        given -= steps
    return plan.begin.pass_ends(plan.request.epochs or 0)


def with_lanes_for_workers(plan: Plan, workers: int, *, shuffle_buffer_bytes: int) -> Plan:
    """The plan with as many lanes as its ranks' workers can divide, where nobody asked for a number of them.

    Args:
        plan: A plan of a rank.
        workers: Workers of each rank.
        shuffle_buffer_bytes: Bytes that all ranks and workers together may keep.
    """
    request, parts = plan.request, plan.request.shard.count * workers
    if "lanes" not in request.chosen or parts == 1:
        return plan
    order = dataclasses.replace(request.order, lanes=parts)
    if order.shuffle_rows:
        lanes, block_rows = shuffled_lanes(
            in_memory(plan.inventory, plan.rows),
            shuffle_buffer_bytes=shuffle_buffer_bytes,
            lanes=_divisible(request.order.lanes, parts),
            block_rows=None if "block_rows" in request.chosen else order.block_rows,
        )
        order = dataclasses.replace(order, lanes=lanes, block_rows=block_rows)
    return dataclasses.replace(plan, request=dataclasses.replace(request, order=order))


def _divisible(lanes: int, parts: int) -> int:
    """About as many lanes, divided by the parts, and visited so that each part's share is what its own lanes give."""
    multiples = range(max(round(lanes / parts), 1), 0, -1)
    return next(multiple * parts for multiple in multiples if spreads_evenly(multiple * parts, parts))
