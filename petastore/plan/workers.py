"""Assign the batches of a rank to loader workers, and save the workers' state.

With W workers, batch s of a rank comes from worker s % W. If a batch had rows of all lanes of the rank, as in one
process, each worker would read every row group. (A lane is one of the sequences of row groups that an epoch
interleaves.) Therefore the rows of W consecutive batches, a *round*, are divided as if there were R·W ranks. Each
worker then reads only its own lanes. At the end of the epoch, T ≤ W batches remain, including the batch to which
`last_batch` applies; their rows are sorted by lane and divided into T equal ranges.

For any W, the number of batches and the guarantees of `last_batch` stay the same. With one worker nothing changes.

```text
rank 0 of 1, W = 2, 4 lanes, batches of 4 rows, 26 rows     worker 0        worker 1
round 0: positions 0 to 7                                   lanes 0 and 1   lanes 2 and 3
round 1: positions 8 to 15                                  lanes 0 and 1   lanes 2 and 3
round 2: positions 16 to 23                                 lanes 0 and 1   lanes 2 and 3
left: positions 24 and 25, one batch                        both rows       nothing
```

The next epoch begins with the worker after the last one, so that all workers return equally many batches over many
epochs.

Between rounds, the state of all workers is the same as the state of a reader (`petastore.plan.state`). Inside a round,
and for one of several workers, the state contains the state at which the iteration began (`begin`) and the number of
batches since then (`given`):

```json
{"format": "petastore.workers", "version": 1, "begin": {"format": "petastore.state", …}, "given": 17,
 "batch_size": 64, "workers": 4, "ranks": 1, "worker": 2}
```

Such a state can only be resumed with the same number of workers and ranks and the same batch size. `worker` is null for
the state of all workers of a rank.

`plan_of_numbers` and `numbered_batches` are for PyTorch samplers: row numbers of the dataset in plan order, such that
each worker gets rows of its own row groups. Rows are numbered in file order, from 0, as in random access. No I/O.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.lazy import once
from petastore.plan.batches.epoch_batches import EpochBatches, Share, lanes_of
from petastore.plan.batches.spans import SharedBatches, Source, Span, each_once
from petastore.plan.cursor import Cursor
from petastore.plan.order.visits import lane_of_visit, spreads_evenly
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Order, ReadRequest, Shard, in_memory, shuffled_lanes
from petastore.plan.state import check_version, dump_state, resume

__all__ = [
    "WorkerPlan",
    "cursor_after",
    "dump_place",
    "numbered_batches",
    "plan_of_numbers",
    "resume_place",
    "with_lanes_for_workers",
]


_FORMAT, _VERSION = "petastore.workers", 1


def dump_place(plan: WorkerPlan, given: int, batch_size: int, *, of_all: bool) -> dict[str, Any]:
    """Return the state after some batches of an iteration over a data loader.

    The state is a new dict of JSON values.

    Args:
        plan: Plan of a worker, with the cursor at which the iteration began (`begin`).
        given: Number of batches that the workers have yielded since then.
        batch_size: Number of rows of a batch.
        of_all: Whether `given` counts the batches of all workers of the rank; otherwise, only those of this worker.
    """
    alone = plan.worker.count == 1
    cursor = cursor_after(plan, given, batch_size) if of_all or alone else None
    if cursor is not None:
        return dump_state(plan, cursor)
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "begin": dump_state(plan, plan.begin),
        "given": given,
        "batch_size": batch_size,
        "workers": plan.worker.count,
        "ranks": plan.request.shard.count,
        "worker": None if of_all else plan.worker.index,
    }


def resume_place(
    plan: Plan, state: Mapping[str, Any], *, batch_size: int, workers: int, worker: int | None
) -> tuple[Plan, Cursor, int]:
    """Return the plan, cursor and number of batches with which a loader resumes.

    The cursor is where the saved iteration began; the number of batches counts from there.

    Args:
        plan: Plan requested now.
        state: State from `dump_place`, or of any reader.
        batch_size: Number of rows of a batch now.
        workers: Number of workers of a rank now.
        worker: Worker whose batches the state must count; None for the batches of all workers.

    Raises:
        InvalidArgumentError: The state is invalid, or belongs to another dataset, order or number of workers; the
            message names the difference.
    """
    if not isinstance(state, Mapping) or state.get("format") != _FORMAT:
        return *resume(_as_it_was(plan), state), 0
    check_version(state, _VERSION)
    now = {"batch_size": batch_size, "workers": workers, "ranks": plan.request.shard.count, "worker": worker}
    for name, value in now.items():
        if state.get(name) != value:
            raise InvalidArgumentError(
                f"{name} must be {state.get(name)!r} to resume from this state, got {value!r}. Pass the same value, "
                f"or resume from a state that was saved after a multiple of {state.get('workers')} batches"
            )
    given = state.get("given")
    if (
        isinstance(given, bool)
        or not isinstance(given, int)
        or given < 0
        or not isinstance(state.get("begin"), Mapping)
    ):
        raise InvalidArgumentError(
            f"the state of the workers is damaged: {dict(state)!r:.300}. Pass what state_dict() returned, or start "
            "without a state"
        )
    return *resume(_as_it_was(plan), state["begin"]), given


def _as_it_was(plan: Plan) -> Plan:
    """Return the plan for `resume`, such that the current epoch keeps its saved order.

    `resume` would otherwise assign row groups to ranks again, or remove rows that were excluded after the epoch began;
    workers support neither.
    """
    order = dataclasses.replace(plan.request.order, dealt_to=None)
    selection = None if plan.selection is None else dataclasses.replace(plan.selection, before=None)
    return dataclasses.replace(plan, request=dataclasses.replace(plan.request, order=order), selection=selection)


@dataclasses.dataclass(frozen=True)
class WorkerBatches(EpochBatches):
    """Batches of an epoch that one worker of each rank builds.

    Example:
        >>> mine = WorkerBatches(26, batch_size=4, ranks=1, lanes=4, last_batch=LastBatch.EVEN, workers=2, turn=0)
        >>> mine.of_ranks.steps, mine.rounds, mine.steps
        (7, 3, 4)
        >>> mine.share(Shard(), 3, 4).positions.tolist()
        [24, 25]
    """

    workers: int = 1
    """Number of workers of a rank, which build its batches alternately."""

    turn: int = 0
    """Number of the first batch of the epoch that the worker builds.

    It builds the batches s with `s % workers == turn`."""

    @once
    def of_ranks(self) -> EpochBatches:
        """All batches of a rank, which its workers build together."""
        return EpochBatches(self.num_rows, self.batch_size, self.ranks, self.lanes, self.last_batch, self.start)

    @once
    def rounds(self) -> int:
        """Number of rounds in the epoch.

        A round is `workers` consecutive full batches; each worker builds one of them from its own lanes (sequences of
        row groups).
        """
        return self._full_steps // self.workers

    @once
    def _full_steps(self) -> int:
        """Number of batches of a rank, without the last batch if it is not full."""
        steps = self.of_ranks.steps
        is_even = self.last_batch is LastBatch.DROP or self.start + steps * self.global_batch == self.num_rows
        return steps if is_even else max(steps - 1, 0)

    @property
    def _left(self) -> int:
        """Number of batches of a rank that remain after the last round.

        A round has one full batch of each worker.
        """
        return self.of_ranks.steps - self.rounds * self.workers

    @once
    def steps(self) -> int:
        """Number of batches of the epoch that this worker builds."""
        return self.rounds + (self.turn < self._left)

    @property
    def round_rows(self) -> int:
        """Number of rows of a round over all ranks; it has one full batch of each worker."""
        return self.global_batch * self.workers

    def consumed_after(self, steps: range) -> NDArray[np.int64]:
        """Return how many rows of the epoch are consumed after each step of the worker.

        All workers are assumed to have built as many batches as this worker. Rows are counted over all ranks; shape
        (steps,).
        """
        consumed = self.start + np.arange(steps.start + 1, steps.stop + 1, dtype=np.int64) * self.round_rows
        if steps.stop > self.rounds:
            consumed[-1] = self.of_ranks.consumed_after(range(self.of_ranks.steps - 1, self.of_ranks.steps))[0]
        return consumed

    def rows_of(self, shard: Shard) -> int:
        """Return the number of rows that this worker of a rank builds in an epoch.

        Repeated rows are included.
        """
        return int(self.share(shard, 0, self.steps).offsets[-1]) if self.steps else 0

    def share(self, shard: Shard, first: int, stop: int) -> Share:
        """Return a rank's rows in this worker's batches [first, stop)."""
        parts = []
        if first < self.rounds:
            cut = dataclasses.replace(self.of_ranks, ranks=self.ranks * self.workers, last_batch=LastBatch.DROP)
            part = Shard(shard.index * self.workers + self.turn, shard.count * self.workers)
            full = cut.share(part, first, min(stop, self.rounds))
            valid = np.ones(int(full.offsets[-1]), dtype=np.bool_) if self.last_batch is LastBatch.PAD else None
            parts.append(dataclasses.replace(full, valid=valid))
        if stop > self.rounds:
            parts.append(self._rest(shard))
        return parts[0] if len(parts) == 1 else _joined_shares(*parts)

    def moved(self, shard: Shard) -> NDArray[np.int64]:
        """Return the positions of rows that are read from another worker's row groups.

        Only a rank's batches after the last round have such rows. (A round has one full batch of each worker.)

        Example:
            >>> WorkerBatches(26, 4, 1, 4, LastBatch.EVEN, workers=2).moved(Shard()).tolist()  # worker 0 gives lane 2
            [25]
        """
        if not self._left:
            return np.empty(0, dtype=np.int64)
        positions = self._last(shard).positions
        of_lane = lane_of_visit(self.lanes)[positions % self.lanes] * (self.ranks * self.workers) // self.lanes
        borders = np.arange(1, self._left + 1) * len(positions) // self._left
        given_by = np.searchsorted(borders, np.arange(len(positions)), side="right")
        return positions[of_lane - shard.index * self.workers != given_by]

    def _last(self, shard: Shard) -> Share:
        """Return a rank's rows after the last round, as one batch that is sorted by lane.

        A round has one full batch of each worker; a lane is one of the interleaved sequences of row groups.
        """
        start = self.start + self.rounds * self.round_rows
        last = dataclasses.replace(self.of_ranks, batch_size=self.batch_size * self._left, start=start)
        return last.share(shard, 0, 1)

    def _rest(self, shard: Shard) -> Share:
        """Return a rank's rows in this worker's batch after the last round.

        A round has one full batch of each worker.
        """
        whole = self._last(shard)
        rows = len(whole.positions)
        mine = slice(self.turn * rows // self._left, (self.turn + 1) * rows // self._left)
        positions = whole.positions[mine]
        valid = None if whole.valid is None else whole.valid[mine]
        return Share(positions, np.array([0, len(positions)], dtype=np.int64), valid)


def _joined_shares(first: Share, second: Share) -> Share:
    """Return the rows of the batches of `first`, followed by the batches of `second`."""
    valid = None if first.valid is None or second.valid is None else np.concatenate([first.valid, second.valid])
    return Share(
        rows=np.concatenate([first.positions, second.positions]),
        offsets=np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]]),
        valid=valid,
    )


@dataclasses.dataclass(frozen=True, repr=False)
class WorkerPlan(Plan):
    """Plan of one loader worker of a rank.

    Use it like any plan. Its cursors count the rows that all workers have consumed when each has built as many batches
    as this worker.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> request = ReadRequest(("id",), order)
        >>> plans = [WorkerPlan(Inventory.of_rows([4, 4]), request, worker=Shard(w, 2)) for w in range(2)]
        >>> [[span.groups.tolist() for span in plan.spans(2, rows_per_span=2)] for plan in plans]
        [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]
    """

    worker: Shard = Shard()  # noqa: RUF009 - immutable
    """Number of this worker, and the number of workers of the rank."""

    begin: Cursor = Cursor()  # noqa: RUF009 - immutable
    """Cursor from which all workers begin."""

    batch_size: int | None = None
    """Number of rows of a batch; it determines which row groups the worker reads.

    None means that the worker reads all row groups of the rank."""

    def _sources_in(self, epoch: int) -> list[Source]:
        sources = super()._sources_in(epoch)
        if self.batch_size is None:
            return sources
        own_lanes = functools.partial(self._own_lanes, self.batch_size)
        return [dataclasses.replace(source, lanes_in=own_lanes) for source in sources]

    def _own_lanes(self, batch_size: int, epoch: int) -> range:
        """Return the lanes that the worker reads in an epoch.

        Lanes are the sequences of row groups that the epoch interleaves.
        """
        shard, workers = self.request.shard, self.worker.count
        part = shard.index * workers + self._of_epoch(epoch, batch_size).turn
        return lanes_of(Shard(part, shard.count * workers), self._lanes_in(self.request.order))

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        """Yield the worker's batches after a cursor, through all epochs, in spans.

        A span consists of consecutive batches that are assembled together. If `after` is None, the first batch follows
        `begin`.
        """
        cursor = after or self.begin
        walk = self._walk(batch_size, rows_per_span, cursor.epoch)
        for epoch, batches in self._epochs(batch_size):
            if epoch < cursor.epoch:
                continue
            first = (cursor.position - batches.start) // batches.round_rows if epoch == cursor.epoch else 0
            shared = SharedBatches(batches, self.request.shard, first=first)
            yield from walk.spans(shared, Cursor(epoch, 0, cursor.first_epoch), is_last=False)

    def place_after(self, given: int, batch_size: int) -> Cursor:
        """Return the cursor from which the worker continues after `given` of its batches."""
        for epoch, batches in self._epochs(batch_size):
            if given < batches.steps:
                return Cursor(epoch, batches.start + given * batches.round_rows, self.begin.first_epoch)
            given -= batches.steps
        return self.begin.pass_ends(self.request.epochs or 0)

    def shared_row_groups(self, batch_size: int, epoch: int) -> NDArray[np.int32]:
        """Return the row groups that several workers of the rank read in an epoch.

        The numbers are in ascending order.

        The last batches of an epoch have rows of all workers' row groups, and only some workers build these batches.
        """
        moved = self._of_epoch(epoch, batch_size).moved(self.request.shard)
        return (
            each_once(self._source(self.request.order).order(epoch).by_lane(moved))
            if len(moved)
            else moved.astype(np.int32)
        )

    def _epochs(self, batch_size: int) -> Iterator[tuple[int, WorkerBatches]]:
        """Yield the number of each epoch from `begin` on, and the worker's batches of it."""
        here = self.begin
        while not here.is_at_end(self.request.epochs):
            batches = self._of_epoch(here.epoch, batch_size)
            yield here.epoch, batches
            if batches.of_ranks.steps == 0 and batches.start == 0:
                return
            here = here.next_epoch()

    def _of_epoch(self, epoch: int, batch_size: int) -> WorkerBatches:
        """Return the worker's batches of an epoch.

        In the epoch of `begin`, these are the batches after `begin`.
        """
        begin, given = self.begin, 0
        if epoch > begin.epoch:  # workers alternate across epochs, so earlier batches decide which worker begins
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
    """Return a rank's cursor after its workers have yielded `given` batches.

    A cursor exists if each worker has yielded equally many batches in the epoch, or if the epoch is finished; otherwise
    return None. With one worker, the result is never None.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> plan = WorkerPlan(Inventory.of_rows([9]), ReadRequest(("id",), order), worker=Shard(0, 2))
        >>> [cursor_after(plan, given, 2) for given in (2, 3)]
        [Cursor(epoch=0, position=4, first_epoch=0), None]
    """
    for epoch, batches in plan._epochs(batch_size):  # noqa: SLF001 - belongs to `WorkerPlan`
        steps = batches.of_ranks.steps
        if given < steps:
            is_round = given % batches.workers == 0 and given <= batches.rounds * batches.workers
            position = batches.start + given * batches.global_batch
            return Cursor(epoch, position, plan.begin.first_epoch) if is_round else None
        given -= steps
    return plan.begin.pass_ends(plan.request.epochs or 0)


def with_lanes_for_workers(plan: Plan, workers: int, *, shuffle_buffer_bytes: int) -> Plan:
    """Return the plan with a number of lanes that divides evenly among the workers.

    A lane is one of the row-group sequences that an epoch interleaves. If the user set the number of lanes, the plan
    does not change.

    Args:
        plan: Plan of a rank.
        workers: Number of workers of each rank.
        shuffle_buffer_bytes: Maximum bytes of row groups in memory, over all ranks and workers.
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
    """Return a number near `lanes` that is divisible by `parts`.

    With the returned number of lanes, each of `parts` workers reads only its own row groups (`spreads_evenly`).
    """
    multiples = range(max(round(lanes / parts), 1), 0, -1)
    return next(multiple * parts for multiple in multiples if spreads_evenly(multiple * parts, parts))


_ROWS_PER_SPAN = 8192
"""Maximum number of rows of a span, which are looked up together."""


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
    """Return a plan of one epoch over row numbers, for random access to a dataset.

    Args:
        inventory: Inventory of the dataset.
        rows: Number of selected rows of each row group, shape (groups,); row numbers count only these rows.
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
    """Yield the row numbers of each batch of the rank, from its workers in turn.

    Args:
        plan: From `plan_of_numbers`.
        batch_size: Number of rows of a batch.
        workers: Number of workers that alternate.
        begin: Cursor at which the iteration began.
        given: Number of batches to skip after `begin`; skipping takes no time.

    Example:
        >>> options = {"shuffle": False, "seed": 0, "shard": Shard(), "last_batch": LastBatch.EVEN}
        >>> inventory = Inventory.of_rows([3, 3])
        >>> plan = plan_of_numbers(inventory, inventory.rows, workers=2, shuffle_buffer_bytes=1, **options)
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
    """Yield the row numbers of each batch of one worker.

    The first `given` batches of the worker are skipped.
    """
    mine = WorkerPlan(plan.inventory, plan.request, worker=worker, begin=begin)
    starts = plan.inventory.first_rows
    place = mine.place_after(given, batch_size)
    for span in mine.spans(batch_size, rows_per_span=_ROWS_PER_SPAN, after=place):
        numbers = (starts[span.groups] + span.rows).tolist()
        for first, stop in itertools.pairwise(span.offsets.tolist()):
            yield numbers[first:stop]
