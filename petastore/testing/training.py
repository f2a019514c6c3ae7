"""Test helpers for sharding: each row once, equal steps on all ranks. No I/O.

`train` simulates all ranks of a plan (order of rows) or of a mixture of plans, and returns the rows that they receive.

Example:
    >>> from petastore.inventory import Inventory
    >>> from petastore.plan import Order, ReadRequest
    >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=6, block_rows=20)
    >>> plan = Plan(Inventory.of_rows([100] * 50), ReadRequest(("id",), order, epochs=2))
    >>> check_equal_steps(shards_of(plan, 5), batch_size=8)
    >>> check_every_row_once(shards_of(plan, 5), batch_size=8)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan, Span
from petastore.plan.rank_plan import RankPlan
from petastore.plan.request import LastBatch, Shard

__all__ = ["Training", "check_equal_steps", "check_every_row_once", "numbers_of", "shards_of", "train"]

_SPAN_ROWS = 1024

StepsAndRows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Steps and row numbers: two arrays of equal length, with one entry per row that was read."""


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """The rows that all ranks receive in a simulated training run.

    Arrays have one entry per row (rank after rank), or one entry per step.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> training = train(shards_of(Plan(Inventory.of_rows([3, 4]), ReadRequest(("id",), order)), 2), 2)
        >>> training.rows.tolist(), training.ranks.tolist(), training.steps.tolist()
        ([0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1])
    """

    rows: NDArray[np.int64]
    """Number of each row in file order; in a mixture, counted across its sources. Shape (n,)."""

    steps: NDArray[np.int64]
    """Step of each row, from 0, ascending for each rank; shape (n,)."""

    ranks: NDArray[np.int64]
    """Rank of each row, ascending; shape (n,)."""

    valid: NDArray[np.bool_]
    """False for repeats of `last_batch="pad"`; shape (n,)."""

    epochs: NDArray[np.int64]
    """Epoch of each step, shape (steps,)."""

    cursors: list[Cursor]
    """The cursor (position from which a run resumes) after each step."""

    num_ranks: int
    """Number of ranks."""

    @property
    def num_steps(self) -> int:
        """Number of steps, which is the same on every rank."""
        return len(self.cursors)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each step on each rank, including repeats; shape (steps, ranks)."""
        places = self.steps * self.num_ranks + self.ranks
        counts = np.bincount(places, minlength=self.num_steps * self.num_ranks)
        return counts.reshape(self.num_steps, self.num_ranks)

    @property
    def is_last_of_epoch(self) -> NDArray[np.bool_]:
        """Bool mask, True for the last step of each epoch; shape (steps,)."""
        return np.array([after.epoch for after in self.cursors], dtype=np.int64) > self.epochs

    @property
    def real(self) -> StepsAndRows:
        """Return steps and rows without the repeats of `last_batch="pad"`."""
        return self.steps[self.valid], self.rows[self.valid]


def shards_of(plan: RankPlan, ranks: int) -> list[Any]:
    """Return the plans of all ranks, in order, from the plan of any rank."""
    return [plan.for_shard(Shard(rank, ranks)) for rank in range(ranks)]


def numbers_of(plan: RankPlan, span: Span) -> NDArray[np.int64]:
    """Return the number of each row of a span, shape (rows,).

    A span has the rows of consecutive batches of one rank; the numbers are in the order of these rows. Rows are
    numbered in file order from 0; in a mixture, source after source.
    """
    numbers: NDArray[np.int64] = plan.inventory.first_rows[span.groups] + span.rows
    return numbers


def train(
    plans: Sequence[RankPlan], batch_size: int, *, after: Cursor | None = None, most: int | None = None
) -> Training:
    """Simulate all ranks, and return the rows that they receive.

    Args:
        plans: Plans of all ranks, in order.
        batch_size: Rows per full batch on one rank.
        after: Position to resume from; None begins at the start.
        most: Maximum number of steps; None means all.

    Raises:
        AssertionError: Ranks have different numbers of steps, or different positions after a step.
    """
    given = [_given(plan, batch_size, after, most) for plan in plans]
    first = given[0]
    for rank, other in enumerate(given):
        who = f"rank {rank} of {len(plans)}"
        assert len(other.cursors) == len(first.cursors), (
            f"{who} has {len(other.cursors)} batches, but rank 0 has {len(first.cursors)}: training would hang"
        )
        assert other.cursors == first.cursors, f"after a step {who} has another position than rank 0"
        assert other.epochs == first.epochs, f"{who} is in another epoch than rank 0"
    return Training(
        rows=np.concatenate([one.rows for one in given]),
        steps=np.concatenate([one.steps for one in given]),
        ranks=np.repeat(np.arange(len(plans)), [len(one.rows) for one in given]),
        valid=np.concatenate([one.valid for one in given]),
        epochs=np.array(first.epochs, dtype=np.int64),
        cursors=first.cursors,
        num_ranks=len(plans),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Given:
    """Rows that one rank received."""

    rows: NDArray[np.int64]
    steps: NDArray[np.int64]
    valid: NDArray[np.bool_]
    epochs: list[int]
    cursors: list[Cursor]


def _given(plan: RankPlan, batch_size: int, after: Cursor | None, most: int | None) -> _Given:
    cursors: list[Cursor] = []
    epochs: list[int] = []
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))]
    for span in plan.spans(batch_size, rows_per_span=_SPAN_ROWS, after=after):
        steps = np.repeat(np.arange(span.num_batches) + len(cursors), np.diff(span.offsets))
        valid = np.ones(len(span.rows), dtype=np.bool_) if span.valid is None else span.valid
        parts.append((numbers_of(plan, span), steps, valid))
        cursors += [span.cursor_after(place) for place in range(span.num_batches)]
        epochs += [span.epoch] * span.num_batches
        if most is not None and len(cursors) >= most:
            break
    rows, steps, valid = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    kept = steps < (len(cursors) if most is None else most)
    return _Given(rows[kept], steps[kept], valid[kept], epochs[:most], cursors[:most])


def check_equal_steps(plans: Sequence[RankPlan], batch_size: int) -> None:
    """Check that every rank has the planned number of steps and rows.

    These are `steps_per_epoch` non-empty batches and `rows_per_epoch` rows in each epoch.

    In each step, the numbers of rows on two ranks differ by at most one.

    Args:
        plans: Plans of all ranks, in order.
        batch_size: Rows per full batch on one rank.
    """
    training = train(plans, batch_size)
    epochs = plans[0].request.epochs or 0
    for rank, plan in enumerate(plans):
        wanted = epochs * plan.steps_per_epoch(batch_size), epochs * plan.rows_per_epoch(batch_size)
        found = training.num_steps, int((training.ranks == rank).sum())
        assert found == wanted, (
            f"rank {rank} of {len(plans)} has {found[0]} steps with {found[1]} rows in all, but the plan has "
            f"{wanted[0]} with {wanted[1]}"
        )
    sizes = training.sizes
    assert sizes.all(), "a rank has an empty batch"
    uneven = np.flatnonzero(sizes.max(axis=1, initial=0) - sizes.min(axis=1, initial=2**62) > 1)
    assert len(uneven) == 0, f"step {uneven[0]} has shares that differ by more than a row: {sizes[uneven[0]].tolist()}"


def check_every_row_once(plans: Sequence[Plan], batch_size: int) -> None:
    """Check that the shards of all ranks are disjoint, and cover the selected rows.

    Each row must be read once with `"even"` and `"pad"`, at most once with `"drop"`, and at least once with `"wrap"`.
    `"drop"` may drop, and `"wrap"` may repeat, fewer rows than a global batch has.

    Args:
        plans: Plans of all ranks, in order. Mixtures are not supported.
        batch_size: Rows per full batch on one rank.
    """
    training = train(plans, batch_size)
    last_batch, meant = plans[0].request.last_batch, _meant(plans[0])
    for epoch in range(plans[0].request.epochs or 0):
        of_epoch = training.valid & (training.epochs[training.steps] == epoch)
        times = np.bincount(training.rows[of_epoch], minlength=len(meant))
        _assert_none(epoch, "read, but not selected", (times > 0) & ~meant)
        if last_batch is not LastBatch.WRAP:
            _assert_none(epoch, "read more than once", times > 1)
        if last_batch is not LastBatch.DROP:
            _assert_none(epoch, "never read", meant & (times == 0))
        off = abs(int(times.sum()) - int(meant.sum()))
        assert off < batch_size * len(plans), (
            f"epoch {epoch} has {off} rows more or less than selected, which is a global batch or more"
        )


def _meant(plan: Plan) -> NDArray[np.bool_]:
    """Return a mask of the selected rows of the dataset, shape (rows,)."""
    meant = np.repeat(plan.rows > 0, plan.inventory.rows)
    starts = plan.inventory.first_rows
    for group, bitmap in ({} if plan.selection is None else plan.selection.bitmaps).items():
        meant[starts[group] : starts[group] + len(bitmap)] = bitmap
    return meant


def _assert_none(epoch: int, what: str, broken: NDArray[np.bool_]) -> None:
    rows = np.flatnonzero(broken)
    assert len(rows) == 0, f"{len(rows):,} rows of epoch {epoch} are {what}, such as {rows[:5].tolist()}"
