"""Checks that a training run sees each row once, with as many steps on every rank. No I/O.

`train` walks a plan, or a mixture, as all its ranks would, into arrays.

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
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.plan import Plan, Span
from petastore.plan.request import Shard, Tail

__all__ = ["Training", "check_equal_steps", "check_every_row_once", "numbers_of", "shards_of", "train"]

_SPAN_ROWS = 1024

StepsAndRows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Two arrays of one length: rows, and the step of each."""


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """What all ranks of a training were given, rank after rank: arrays of one entry a row, lists of one a step.

    Example:
        >>> from petastore.inventory import Inventory
        >>> from petastore.plan.request import Order, ReadRequest
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=2, block_rows=1)
        >>> training = train(shards_of(Plan(Inventory.of_rows([3, 4]), ReadRequest(("id",), order)), 2), 2)
        >>> training.rows.tolist(), training.ranks.tolist(), training.steps.tolist()
        ([0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1])
    """

    rows: NDArray[np.int64]
    """Numbers of the rows, in file order; of a mixture, through all its sources. Shape (n,)."""

    steps: NDArray[np.int64]
    """Step of each row, from 0, ascending for each rank; shape (n,)."""

    ranks: NDArray[np.int64]
    """Rank that was given it, ascending; shape (n,)."""

    valid: NDArray[np.bool_]
    """False where a row is a repeat that `Tail.PAD` marks; shape (n,)."""

    epochs: NDArray[np.int64]
    """Epoch of each step, shape (steps,)."""

    cursors: list[Cursor]
    """The cursor after each step."""

    num_ranks: int
    """Ranks."""

    @property
    def num_steps(self) -> int:
        """Steps, the same number on every rank."""
        return len(self.cursors)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each step on each rank, repeats included; shape (steps, ranks)."""
        places = self.steps * self.num_ranks + self.ranks
        counts = np.bincount(places, minlength=self.num_steps * self.num_ranks)
        return counts.reshape(self.num_steps, self.num_ranks)

    @property
    def is_last_of_epoch(self) -> NDArray[np.bool_]:
        """Which steps are the last of their epoch; shape (steps,)."""
        return np.array([after.epoch for after in self.cursors], dtype=np.int64) > self.epochs

    @property
    def real(self) -> StepsAndRows:
        """Steps and rows, without the repeats that `Tail.PAD` marks."""
        return self.steps[self.valid], self.rows[self.valid]


def shards_of(plan: Plan | Mixture, ranks: int) -> list[Any]:
    """The plans of all ranks of a training."""
    return [plan.for_shard(Shard(rank, ranks)) for rank in range(ranks)]


def numbers_of(plan: Plan | Mixture, span: Span) -> NDArray[np.int64]:
    """The numbers of a span's rows, in file order through the dataset; of a mixture, source after source."""
    rows: NDArray[np.int64] = plan.inventory.rows
    numbers: NDArray[np.int64] = (np.cumsum(rows) - rows)[span.groups] + span.rows
    return numbers


def train(
    plans: Sequence[Plan | Mixture], batch_size: int, *, after: Cursor | None = None, most: int | None = None
) -> Training:
    """What the ranks are given, at most `most` steps of it.

    Args:
        plans: Of all ranks, in their order.
        batch_size: Rows of a full batch of one rank.
        after: Where to go on; None begins at the beginning.
        most: Steps to take; None is all.

    Raises:
        AssertionError: Ranks have different numbers of steps, or stand at different places after one.
    """
    given = [_given(plan, batch_size, after, most) for plan in plans]
    first = given[0]
    for rank, other in enumerate(given):
        who = f"rank {rank} of {len(plans)}"
        assert len(other.cursors) == len(first.cursors), (
            f"{who} has {len(other.cursors)} batches, but rank 0 has {len(first.cursors)}: training would hang"
        )
        assert other.cursors == first.cursors, f"after a step {who} stands elsewhere than rank 0"
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
    """What one rank was given."""

    rows: NDArray[np.int64]
    steps: NDArray[np.int64]
    valid: NDArray[np.bool_]
    epochs: list[int]
    cursors: list[Cursor]


def _given(plan: Plan | Mixture, batch_size: int, after: Cursor | None, most: int | None) -> _Given:
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


def check_equal_steps(plans: Sequence[Plan | Mixture], batch_size: int) -> None:
    """Every rank gets as many batches as `steps_per_epoch` says, none of them empty, and rows as `rows_per_epoch`.

    In each step the ranks have equally many rows, give or take one.

    Args:
        plans: Of all ranks, in their order.
        batch_size: Rows of a full batch of one rank.
    """
    training = train(plans, batch_size)
    epochs = plans[0].request.epochs or 0
    for rank, plan in enumerate(plans):
        wanted = epochs * plan.steps_per_epoch(batch_size), epochs * plan.rows_per_epoch(batch_size)
        found = training.num_steps, int((training.ranks == rank).sum())
        assert found == wanted, (
            f"rank {rank} of {len(plans)} has {found[0]} steps with {found[1]} rows in all, "
            f"but lengths promise {wanted[0]} with {wanted[1]}"
        )
    sizes = training.sizes
    assert sizes.all(), "a rank has an empty batch"
    uneven = np.flatnonzero(sizes.max(axis=1, initial=0) - sizes.min(axis=1, initial=2**62) > 1)
    assert len(uneven) == 0, f"step {uneven[0]} has shares that differ by more than a row: {sizes[uneven[0]].tolist()}"


def check_every_row_once(plans: Sequence[Plan], batch_size: int) -> None:
    """Shards are disjoint and cover the rows that are meant, in every epoch.

    `even` and `pad` give each row once, `drop` at most once, `wrap` at least once; `drop` and `wrap` are off by less
    than a global batch.

    Args:
        plans: Of all ranks, in their order; not of a mixture, which has a law of its own.
        batch_size: Rows of a full batch of one rank.
    """
    training = train(plans, batch_size)
    last_batch, meant = plans[0].request.last_batch, _meant(plans[0])
    for epoch in range(plans[0].request.epochs or 0):
        of_epoch = training.valid & (training.epochs[training.steps] == epoch)
        times = np.bincount(training.rows[of_epoch], minlength=len(meant))
        _assert_none(epoch, "not meant, but come", (times > 0) & ~meant)
        if last_batch is not Tail.WRAP:
            _assert_none(epoch, "given more than once", times > 1)
        if last_batch is not Tail.DROP:
            _assert_none(epoch, "never given", meant & (times == 0))
        off = abs(int(times.sum()) - int(meant.sum()))
        assert off < batch_size * len(plans), f"epoch {epoch} is off by {off} rows, a whole global batch"


def _meant(plan: Plan) -> NDArray[np.bool_]:
    """Which rows of the dataset are meant, shape (rows,)."""
    meant = np.repeat(plan.rows > 0, plan.inventory.rows)
    starts = np.cumsum(plan.inventory.rows) - plan.inventory.rows
    for group, bitmap in ({} if plan.selection is None else plan.selection.bitmaps).items():
        meant[starts[group] : starts[group] + len(bitmap)] = bitmap
    return meant


def _assert_none(epoch: int, what: str, broken: NDArray[np.bool_]) -> None:
    rows = np.flatnonzero(broken)
    assert len(rows) == 0, f"{len(rows):,} rows of epoch {epoch} are {what}, such as {rows[:5].tolist()}"
