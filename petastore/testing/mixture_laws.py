"""Laws that every mixture keeps, for Hypothesis: no IO and no mocks.

`mixtures()` draws mixtures of uneven datasets; `steps_of` walks all ranks of one. A test calls the laws with what it
drew.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from typing import Any

import numpy as np
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.mixture import Mixture
from petastore.plan.plan import Plan
from petastore.plan.request import ReadRequest, Shard, Tail
from petastore.plan.state import dump_state, resume
from petastore.testing.plan_laws import orders

__all__ = [
    "check_every_source_row_once",
    "check_exact_proportions",
    "check_going_on_after_any_step",
    "check_same_batches_for_any_ranks",
    "check_steps_and_shares",
    "mixtures",
    "steps_of",
]

Row = tuple[int, int]
"""A source, and the number of a row in it, in file order."""


@st.composite
def mixtures(
    draw: Any,
    *,
    stops: tuple[str, ...] = ("first_exhausted", "all_exhausted"),
    batchings: tuple[str, ...] = ("mixed", "per_source"),
    tails: tuple[Tail, ...] = (Tail.EVEN,),
    epochs: int = 2,
) -> Mixture:
    """Mixtures of 1 to 4 sources of 1 to 5 row groups, with small weights; each source has a row in every epoch."""
    count = draw(st.integers(1, 4))
    tail = draw(st.sampled_from(tails))
    stop = draw(st.sampled_from(stops))
    sources = [
        Plan(
            Inventory.of_rows([draw(st.integers(8, 30)), *draw(st.lists(st.integers(0, 30), max_size=4))]),
            ReadRequest(("id",), draw(orders()), Shard(), 1, tail),
        )
        for _ in range(count)
    ]
    return Mixture(
        sources,
        draw(st.lists(st.integers(1, 6), min_size=count, max_size=count)),
        stop=stop,
        batching=draw(st.sampled_from(batchings)),
        seed=draw(st.integers(-(2**70), 2**70)),
        epochs=None if stop == "cycle" else epochs,
    )


@dataclasses.dataclass(frozen=True)
class Step:
    """A global batch: the rows of each rank that are no repeats, and the cursor after it."""

    ranks: list[list[Row]]
    cursor: Cursor
    epoch: int
    repeats: int

    @property
    def rows(self) -> list[Row]:
        """The rows of all ranks, sorted."""
        return sorted(itertools.chain(*self.ranks))


def steps_of(
    mixture: Mixture, ranks: int, batch_size: int, *, after: Cursor | None = None, most: int | None = None
) -> list[Step]:
    """All steps, or the first of them, of all ranks; they must agree on cursors."""
    walks = [_walk(mixture.for_shard(Shard(rank, ranks)), batch_size, after, most) for rank in range(ranks)]
    steps = []
    for parts in zip(*walks, strict=True):
        (cursor,) = {part[1] for part in parts}
        (epoch,) = {part[2] for part in parts}
        steps.append(Step([part[0] for part in parts], cursor, epoch, sum(part[3] for part in parts)))
    return steps


def _walk(
    mixture: Mixture, batch_size: int, after: Cursor | None, most: int | None
) -> list[tuple[list[Row], Cursor, int, int]]:
    rows = mixture.inventory.rows
    starts = np.cumsum(rows) - rows
    first_rows = np.append(starts, rows.sum())[mixture.first_groups]
    batches: list[tuple[list[Row], Cursor, int, int]] = []
    for span in mixture.spans(batch_size, rows_per_span=64, after=after):
        sources = np.searchsorted(mixture.first_groups, span.groups, side="right") - 1
        numbers = starts[span.groups] + span.rows - first_rows[sources]
        valid = np.ones(len(numbers), dtype=np.bool_) if span.valid is None else span.valid
        for place, (first, stop) in enumerate(itertools.pairwise(span.offsets.tolist())):
            real = np.flatnonzero(valid[first:stop]) + first
            seen = list(zip(sources[real].tolist(), numbers[real].tolist(), strict=True))
            batches.append((seen, span.cursor_after(place), span.epoch, stop - first - len(real)))
            if len(batches) == most:
                return batches
    return batches


def check_exact_proportions(mixture: Mixture, periods: int = 20) -> None:
    """After every period each source has given exactly its share of rows, or of batches where each is of one source."""
    period = sum(mixture.proportions)
    batch_size = 1 if mixture.batching == "mixed" else 3
    given: collections.Counter[int] = collections.Counter()
    steps = itertools.takewhile(
        lambda step: step.epoch == 0 and len(step.rows) == batch_size,
        steps_of(mixture, 1, batch_size, most=period * periods),
    )
    for number, step in enumerate(steps, start=1):
        if mixture.batching == "per_source":
            assert len({source for source, _ in step.rows}) == 1
        given.update([step.rows[0][0]])
        if any(batch_size * (given[source] + 1) > rows for source, rows in enumerate(mixture.rows_per_source)):
            return  # what is left of a source is no full batch: the others go on without it
        if number % period == 0:
            assert [given[source] for source in range(len(mixture.sources))] == [
                count * number // period for count in mixture.proportions
            ]


def check_every_source_row_once(mixture: Mixture, ranks: int, batch_size: int) -> None:
    """Each source gives what `rows_per_source` says, epoch after epoch, and each row once before any comes again."""
    times = [np.zeros(plan.num_rows, dtype=np.int64) for plan in mixture.sources]
    given: collections.Counter[tuple[int, int]] = collections.Counter()
    for step in steps_of(mixture, ranks, batch_size):
        for source, row in step.rows:
            times[source][row] += 1
            given[step.epoch, source] += 1
        assert all(np.ptp(of_source) <= 1 for of_source in times)
    assert given == {
        (epoch, source): rows
        for epoch in range(mixture.epochs or 1)
        for source, rows in enumerate(mixture.rows_per_source)
    }
    if mixture.stop == "first_exhausted":
        left = [plan.num_rows - rows for plan, rows in zip(mixture.sources, mixture.rows_per_source, strict=True)]
        assert min(left) == 0
    else:
        turns = [rows - plan.num_rows for plan, rows in zip(mixture.sources, mixture.rows_per_source, strict=True)]
        assert min(turns) == 0


def check_steps_and_shares(mixture: Mixture, ranks: int, batch_size: int) -> None:
    """Ranks have equally many steps, as many as `steps_per_epoch` says, and shares that differ by at most a row."""
    plans = [mixture.for_shard(Shard(rank, ranks)) for rank in range(ranks)]
    steps = steps_of(mixture, ranks, batch_size)
    assert {plan.steps_per_epoch(batch_size) for plan in plans} == {len(steps) // (mixture.epochs or 1)}
    for step in steps:
        sizes = [len(rank) for rank in step.ranks]
        if step.repeats == 0:
            assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= batch_size or mixture.request.tail is Tail.EVEN
    for rank, plan in enumerate(plans):
        if mixture.request.tail is not Tail.PAD:
            rows = sum(len(step.ranks[rank]) for step in steps)
            assert rows == (mixture.epochs or 1) * plan.rows_per_epoch(batch_size)


def check_same_batches_for_any_ranks(mixture: Mixture, *, global_batch: int, ranks: list[int]) -> None:
    """The global batches are the same, as multisets, for any number of ranks that divides them."""
    wanted = None
    for count in ranks:
        if global_batch % count == 0:
            found = [step.rows for step in steps_of(mixture, count, global_batch // count)]
            wanted = found if wanted is None else wanted
            assert found == wanted, f"{count} ranks"


def check_going_on_after_any_step(mixture: Mixture, ranks: int, batch_size: int) -> None:
    """A state, after a trip through JSON, goes on with just the steps that would have followed."""
    steps = steps_of(mixture, ranks, batch_size)
    for number, step in enumerate(steps, start=1):
        state = json.loads(json.dumps(dump_state(mixture, step.cursor)))
        plan, cursor = resume(mixture, state)
        assert [step.ranks for step in steps_of(plan, ranks, batch_size, after=cursor)] == [
            step.ranks for step in steps[number:]
        ]
