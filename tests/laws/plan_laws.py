"""Laws for plans, for Hypothesis: no I/O and no mocks.

A law takes a plan, a mixture, or a function that makes them, and raises `AssertionError` if it is broken; use them for
custom orders, too. Laws only use the batches that all ranks get, step by step. Most follow from one:

> Each epoch has one order of rows. Each global batch is the next contiguous slice of that order, with any number of
> ranks and any batch size, also after a resume.

`inventories()`, `selections()` and `orders()` draw uneven datasets, filters and orders.

Example:
    >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=6, block_rows=20)
    >>> plan = Plan(uneven_inventory(50, seed=1), ReadRequest(("id",), order, epochs=2))
    >>> check_equal_steps(shards_of(plan, 5), batch_size=8)
    >>> check_every_row_once(shards_of(plan, 5), batch_size=8)
    >>> check_same_batches_for_any_ranks(plan, global_batch=48, ranks=RANKS)
    >>> check_resume_after_every_batch(plan, ranks=3, batch_size=20)
    >>> check_resume_with_others(plan, [(4, 8, 3), (3, 10, 2), (5, 7, 4)])
    >>> check_resume_with_others_after_every_batch(plan, first=(4, 16), then=(3, 30))
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.errors import NoDataAvailableError
from petastore.inventory import Inventory
from petastore.plan.batches.spans import each_once
from petastore.plan.cursor import Cursor
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.order.order import EpochOrder
from petastore.plan.order.visits import LaneRuns
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Order, ReadRequest, Shard
from petastore.plan.selection import Selection
from petastore.plan.state import dump_state, resume
from petastore.testing.training import Training, check_equal_steps, check_every_row_once, shards_of, train
from tests.laws.lines import Lines, SourceLines, assert_same_steps, lines_of
from tests.tier import sized

__all__ = [
    "RANKS",
    "check_equal_steps",
    "check_every_row_once",
    "check_global_batches_ignore_ranks",
    "check_interpreters_agree",
    "check_resume_after_every_batch",
    "check_resume_with_others",
    "check_resume_with_others_after_every_batch",
    "check_row_groups_at_hand",
    "check_runs_are_their_positions",
    "check_same_batches_for_any_ranks",
    "check_too_few_rows_are_refused",
    "inventories",
    "orders",
    "selection_of",
    "selections",
    "uneven_inventories",
    "uneven_inventory",
    "walk",
]

RANKS = (1, 2, 3, 5, 7, 8, 16, 24, 48, 80)
"""Numbers of ranks to check; each divides a global batch of 1,680 rows."""


@st.composite
def inventories(draw: Any, *, max_groups: int = 40, max_rows: int = 60) -> Inventory:
    """Draw datasets of 1 to `max_groups` row groups of 0 to `max_rows` rows, in one file."""
    return Inventory.of_rows(draw(st.lists(st.integers(0, max_rows), min_size=1, max_size=max_groups)))


@st.composite
def uneven_inventories(draw: Any, *, max_groups: int = 5000, mean_rows: int = 12) -> Inventory:
    """Draw datasets of 1 to `max_groups` row groups: many with 0 or 1 rows, and few with very many.

    Sizes are computed from one drawn seed instead of drawn one by one, so that thousands of row groups are fast.
    """
    groups = draw(st.sampled_from([1, 2, max_groups]) | st.integers(1, max_groups))
    return uneven_inventory(groups, seed=draw(st.integers(0, 2**32 - 1)), mean_rows=mean_rows)


def uneven_inventory(groups: int, *, seed: int, mean_rows: int = 12) -> Inventory:
    """Return a dataset with row groups of very different sizes: a quarter has no rows, and a quarter one row."""
    random = np.random.RandomState(seed)
    sizes = 2 + np.minimum(random.pareto(1.2, groups) * mean_rows / 2, 100 * mean_rows).astype(np.int64)
    kinds = random.randint(4, size=groups)
    return Inventory.of_rows(np.where(kinds < 2, kinds, sizes))


@st.composite
def selections(draw: Any, inventory: Inventory) -> Selection:
    """Draw selections, as a filter makes them: no rows, some, or all of each row group, and often no rows of most."""
    return selection_of(
        inventory, seed=draw(st.integers(0, 2**32 - 1)), kept=draw(st.sampled_from([0.02, 0.3, 0.9, 1.0]))
    )


def selection_of(inventory: Inventory, *, seed: int, kept: float) -> Selection:
    """Return a selection; `kept` is the share of row groups that keep any rows."""
    random = np.random.RandomState(seed)
    density = np.where(
        random.rand(inventory.num_row_groups) < kept, random.choice([0.1, 0.7, 1.0], inventory.num_row_groups), 0.0
    )
    bits = random.rand(inventory.num_rows) < np.repeat(density, inventory.rows)
    per_group = np.split(bits, np.cumsum(inventory.rows)[:-1])
    counts = np.array([part.sum() for part in per_group], dtype=np.int64)
    some = np.flatnonzero((counts > 0) & (counts < inventory.rows))
    return Selection(counts, {group: per_group[group] for group in some.tolist()})


@st.composite
def orders(draw: Any) -> Order:
    """Draw orders of every kind, with any seed."""
    shuffle_row_groups, reshuffle = draw(st.booleans()), draw(st.sampled_from(["epoch", "static"]))
    can_be_dealt = shuffle_row_groups and reshuffle == "static"
    return Order(
        seed=draw(st.integers(-(2**70), 2**70)),
        shuffle_row_groups=shuffle_row_groups,
        shuffle_rows=draw(st.booleans()),
        lanes=draw(st.sampled_from([1, 2, 3, 6, 12, 48])),
        block_rows=draw(st.integers(1, 200)),
        reshuffle=reshuffle,
        dealt_to=draw(st.none() | st.integers(1, 7)) if can_be_dealt else None,
    )


@dataclasses.dataclass(frozen=True)
class Walked:
    """A batch of one rank: the row numbers in the dataset, and which of them are valid."""

    rows: NDArray[np.int64]
    valid: NDArray[np.bool_]


def walk(plan: Plan | Mixture, batch_size: int, *, rows_per_span: int = 64) -> list[Walked]:
    """Return all batches of one rank in all epochs; rows are numbered through the dataset in file order."""
    starts = _first_rows(plan)
    batches = []
    for span in plan.spans(batch_size, rows_per_span=rows_per_span):
        rows = starts[span.groups] + span.rows
        valid = np.ones(len(rows), dtype=np.bool_) if span.valid is None else span.valid
        for first, stop in zip(span.offsets[:-1].tolist(), span.offsets[1:].tolist(), strict=True):
            batches.append(Walked(rows[first:stop], valid[first:stop]))
    return batches


def _first_rows(plan: Plan | Mixture) -> NDArray[np.int64]:
    """Return the number of the first row of each row group."""
    rows: NDArray[np.int64] = plan.inventory.rows
    return np.cumsum(rows) - rows


def ranks_of(inventory: Inventory, order: Order, *, ranks: int, last_batch: LastBatch, epochs: int = 1) -> list[Plan]:
    """Return the plans of all ranks of one training run."""
    return shards_of(Plan(inventory, ReadRequest(("id",), order, Shard(), epochs, last_batch)), ranks)


def check_too_few_rows_are_refused(plans: Sequence[Plan | Mixture], batch_size: int) -> None:
    """Check that last_batch="even" with fewer rows than ranks raises on all ranks, because some would have no batch.

    Args:
        plans: Plans of all ranks, with fewer rows than ranks.
        batch_size: Batch size of one rank.
    """
    for rank, plan in enumerate(plans):
        for ask in (plan.steps_per_epoch, plan.rows_per_epoch, lambda size, of=plan: train([of], size)):
            try:
                found: Any = ask(batch_size)
            except NoDataAvailableError:
                continue
            raise AssertionError(f"rank {rank} of {len(plans)} was told {found} and not refused")


def check_global_batches_ignore_ranks(
    inventory: Inventory, order: Order, *, global_batch: int, last_batch: LastBatch, ranks: Iterable[int]
) -> None:
    """Run `check_same_batches_for_any_ranks` for a dataset and an order."""
    plan = Plan(inventory, ReadRequest(("id",), order, last_batch=last_batch))
    check_same_batches_for_any_ranks(plan, global_batch=global_batch, ranks=ranks)


def check_same_batches_for_any_ranks(plan: Plan | Mixture, *, global_batch: int, ranks: Iterable[int]) -> None:
    """Check that global batches have the same rows, in any order, for every number of ranks that divides them.

    With `even`, remaining rows that are fewer than the ranks are added to the previous batch, which is allowed.

    Args:
        plan: The plan of any rank. With batching="per_source", the last batch of each source must have at least as many
            rows as there are ranks.
        global_batch: Batch size of all ranks together.
        ranks: Numbers of ranks; those that do not divide the global batch are skipped.
    """
    alone = train(shards_of(plan, 1), global_batch)
    rows_of_step = np.bincount(alone.steps, minlength=alone.num_steps)
    is_first = np.diff(alone.epochs, prepend=-1) > 0
    for count in ranks:
        if global_batch % count:
            continue
        plans, batch_size = shards_of(plan, count), global_batch // count
        is_even = plan.request.last_batch is LastBatch.EVEN
        if is_even and 0 < plan.num_rows < count:
            check_too_few_rows_are_refused(plans, batch_size)
            continue
        joins = is_even & alone.is_last_of_epoch & ~is_first & (rows_of_step < count)
        steps = np.arange(alone.num_steps) - np.cumsum(joins)
        due, rows = alone.real
        what = f"{count} ranks with batches of {batch_size} against one with batches of {global_batch}"
        assert_same_steps(train(plans, batch_size).real, (steps[due], rows), what)


def check_resume_after_every_batch(
    plan: Plan | Mixture, ranks: int, batch_size: int, *, most: int | None = None
) -> None:
    """Check that a state after any batch resumes with exactly the batches that would have followed, on every rank.

    States are converted to JSON and back, as in a checkpoint.

    Args:
        plan: The plan of any rank.
        ranks: Number of ranks.
        batch_size: Batch size of one rank.
        most: Number of steps to check, if the plan is endless.
    """
    plans = shards_of(plan, ranks)
    whole = train(plans, batch_size, most=most)
    for step, cursor in enumerate(whole.cursors):
        resumed, begin = _resumed(plans, cursor)
        left = whole.num_steps - step - 1
        rest = train(resumed, batch_size, after=begin, most=None if most is None else left)
        assert rest.num_steps == left, f"after step {step} {rest.num_steps} steps follow, and not {left}"
        follows = whole.steps > step
        wanted = whole.ranks[follows], whole.steps[follows] - step - 1, whole.rows[follows], whole.valid[follows]
        found = rest.ranks, rest.steps, rest.rows, rest.valid
        same = all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))
        assert same, f"after step {step} of {whole.num_steps} others follow than would have"
        assert rest.cursors == whole.cursors[step + 1 :], f"after step {step} the cursors that follow are others"


def check_resume_with_others(plan: Plan | Mixture, log: Sequence[tuple[int, int, int]]) -> None:
    """Check that resuming with other ranks and batch sizes reads the remaining rows, each once.

    Every global batch of every part is the next slice of one row order, which does not depend on ranks. After the
    log, one rank continues to the end, if the plan is not endless.

    Args:
        plan: The plan of any rank.
        log: Ranks, batch size and steps of each part of the training run; `even` with fewer rows than ranks must raise.
    """
    ends = plan.request.epochs is not None
    lines = lines_of(plan, most=_FAR * sum(ranks * batch_size * steps for ranks, batch_size, steps in log))
    cursor = Cursor()
    for ranks, batch_size, most in [*log, *([(1, plan.num_rows // 10 + 1, None)] if ends else [])]:
        if plan.request.last_batch is LastBatch.EVEN and 0 < plan.num_rows < ranks:
            check_too_few_rows_are_refused(shards_of(plan, ranks), batch_size)
            continue
        training = _go_on(plan, lines, cursor, ranks, batch_size, most)
        cursor = training.cursors[-1] if training.num_steps else cursor
    if ends:
        _assert_ended(plan, cursor)


def check_resume_with_others_after_every_batch(
    plan: Plan | Mixture, first: tuple[int, int], then: tuple[int, int], *, most: int | None = None
) -> None:
    """Check that a training run resumes after any batch with another number of ranks and batch size.

    Args:
        plan: The plan of any rank.
        first: Ranks and batch size before the interruption.
        then: Ranks and batch size after the resume.
        most: Number of steps to check, if the plan is endless.
    """
    lines = lines_of(plan, most=_FAR * (most or 0) * (first[0] * first[1] + then[0] * then[1]))
    for cursor in [Cursor(), *_go_on(plan, lines, Cursor(), *first, most).cursors]:
        rest = _go_on(plan, lines, cursor, *then, most)
        if most is None:
            _assert_ended(plan, rest.cursors[-1] if rest.num_steps else cursor)


_FAR = 4
"""Factor by which more rows of an endless mixture are computed than a training run reads, because source turns vary."""


def _assert_ended(plan: Plan | Mixture, cursor: Cursor) -> None:
    end = Cursor(plan.request.epochs or 0)
    leaves_rows_out = plan.request.last_batch is LastBatch.DROP or plan.num_rows == 0
    assert leaves_rows_out or cursor == end, f"a training that is over stands at {cursor}, and not at {end}"


def _go_on(
    plan: Plan | Mixture, lines: Lines | SourceLines, cursor: Cursor, ranks: int, batch_size: int, most: int | None
) -> Training:
    """Continue a training run from a cursor, and compare every step with the expected rows."""
    plans, begin = _resumed(shards_of(plan, ranks), cursor)
    training = train(plans, batch_size, after=begin, most=most)
    what = f"{ranks} ranks with batches of {batch_size} after {cursor}"
    assert_same_steps(training.real, lines.due(training, begin, batch_size), what)
    sizes = training.sizes
    even = np.abs(sizes - sizes.sum(axis=1, keepdims=True) / ranks).max(initial=0)
    assert even < 1, f"{what}: ranks have shares that differ by more than a row"
    return training


def _resumed(plans: Sequence[Any], cursor: Cursor) -> tuple[list[Any], Cursor]:
    """Return the plans of all ranks that resume from a cursor, after checking that all ranks have the same state."""
    states = [json.dumps(dump_state(plan, cursor)) for plan in plans]
    assert len(set(states)) == 1, f"ranks have different states at {cursor}: {sorted(set(states))[:2]}"
    resumed = [resume(plan, json.loads(states[0])) for plan in plans]
    assert all(begin == cursor for _, begin in resumed), f"the state of {cursor} comes back as {resumed[0][1]}"
    return [plan for plan, _ in resumed], cursor


def check_interpreters_agree(make: Callable[[], Iterable[Plan | Mixture]]) -> None:
    """Check that interpreters with other hash seeds compute the same fingerprints and batches.

    Args:
        make: Module-level function that makes the plans, which the other interpreters call.
    """
    file = inspect.getsourcefile(make)
    program = (
        "import runpy, sys\n"
        "from tests.laws import plan_laws\n"
        "print(plan_laws.digest_of(runpy.run_path(sys.argv[1])[sys.argv[2]]()))\n"
    )
    here = digest_of(make())
    for hash_seed in ("0", "4242")[: sized(full=2, quick=1)]:
        said = subprocess.run(
            [sys.executable, "-c", program, str(file), make.__name__],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        there = said.stdout.split()[-1]
        assert there == here, f"with PYTHONHASHSEED={hash_seed} another interpreter says {there}, and this one {here}"


def digest_of(plans: Iterable[Plan | Mixture]) -> str:
    """Return a digest of the fingerprints, states and first batches of plans, for 1 and for 3 ranks."""
    digest = hashlib.sha256()
    for plan in plans:
        for ranks in (1, 3):
            training = train(shards_of(plan, ranks), 11, most=50)
            digest.update(plan.for_shard(Shard(0, ranks)).fingerprint.encode())
            digest.update(json.dumps([dump_state(plan, cursor) for cursor in training.cursors[-1:]]).encode())
            for column in (training.rows, training.steps, training.ranks):
                digest.update(column.astype("<i8").tobytes())
    return digest.hexdigest()


def check_row_groups_at_hand(plan: Plan | Mixture, batch_size: int) -> None:
    """Check that spans have all needed row groups in memory, and release all row groups that they fetch."""
    at_hand: set[int] = set()
    for span in plan.spans(batch_size, rows_per_span=64):
        assert not at_hand & set(span.fetch)
        at_hand |= set(span.fetch)
        assert set(span.needed.tolist()) == set(span.groups.tolist())
        assert set(span.needed.tolist()) <= at_hand
        assert (span.rows < plan.inventory.rows[span.groups]).all()
        at_hand -= set(span.release)
    assert not at_hand


def check_runs_are_their_positions(
    order: EpochOrder, runs: LaneRuns, positions: NDArray[np.int64], *, read_lanes: range | None = None
) -> None:
    """Check that looking up runs of lanes finds the same rows as looking up each position.

    The same holds for slices of them. Rows that are represented as runs must follow the read order of their row groups.

    Args:
        order: The order of an epoch.
        runs: Runs of positions on its lanes.
        positions: Positions of these runs in the epoch, in the order of the runs.
        read_lanes: Lanes that determine the read order, including those of `runs`; None for only those.
    """
    found = order.by_lane(runs, read_lanes=read_lanes)
    groups, rows = order.rows_at(positions)
    _assert_rows(found, groups, rows)
    if runs.counts is not None:
        borders = np.cumsum([0, *runs.counts.sum(axis=1)])
        for part, first, stop in zip(found.cut(borders), borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            _assert_rows(part, groups[first:stop], rows[first:stop])
    if found.runs is not None:
        each = zip(found.runs.groups.tolist(), found.runs.firsts.tolist(), found.runs.counts.tolist(), strict=True)
        read_orders = {
            group: order.read_order_of(group, lanes=runs.own if read_lanes is None else read_lanes)
            for group in each_once(found).tolist()
        }
        wanted = [
            np.arange(first, first + count)
            if (of_group := read_orders[group]) is None
            else of_group[first : first + count]
            for group, first, count in each
        ]
        assert np.array_equal(found.rows, np.concatenate([found.rows[:0], *wanted])), (
            "runs do not follow their read order"
        )


def _assert_rows(found: GroupedRows, groups: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
    found_groups, found_rows = found.in_order()
    wrong = np.flatnonzero((found_groups != groups) | (found_rows != rows)) if len(found_rows) == len(rows) else [0]
    assert len(wrong) == 0, f"row {wrong[0]} of {len(rows)} is another one than stands at its position"
    assert each_once(found).tolist() == sorted(set(groups.tolist())), "row groups are told of that no row is of"
