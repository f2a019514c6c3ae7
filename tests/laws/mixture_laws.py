"""Laws for mixtures of datasets, for Hypothesis: no I/O and no mocks.

`mixtures()` draws mixtures of small datasets, `uneven_mixtures()` of many and large ones with filters, and
`mixtures_of_one()` of a single one. The laws of `tests.laws.plan_laws` also hold for mixtures, except
`check_every_row_once`; the laws here apply to mixtures only.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.plan import Plan, Span
from petastore.plan.report.explanation import MixtureExplanation, ReadFacts
from petastore.plan.report.feeds import MOST_BATCHES
from petastore.plan.request import LastBatch, ReadRequest, Shard
from petastore.plan.state import dump_state, resume
from petastore.testing.training import Training, shards_of, train
from tests.laws.plan_laws import (
    check_same_batches_for_any_ranks,
    check_too_few_rows_are_refused,
    inventories,
    orders,
    selections,
    uneven_inventories,
)

__all__ = [
    "check_every_source_row_once",
    "check_exact_proportions",
    "check_one_source_is_its_plan",
    "check_resume_with_one_source",
    "check_same_batches_for_any_ranks",
    "check_steps_and_shares",
    "mixtures",
    "mixtures_of_one",
    "plan_of_one",
    "sources_of",
    "steps_of",
    "uneven_mixtures",
]

Row = tuple[int, int]
"""The number of a source, and the number of a row in it, in file order."""


@st.composite
def mixtures(
    draw: Any,
    *,
    stops: tuple[str, ...] = ("first_exhausted", "all_exhausted"),
    batchings: tuple[str, ...] = ("mixed", "per_source"),
    tails: tuple[LastBatch, ...] = (LastBatch.EVEN,),
    epochs: int = 2,
) -> Mixture:
    """Draw mixtures of 1 to 4 sources of 1 to 5 row groups, with small weights; each source has rows in every epoch."""
    count = draw(st.integers(1, 4))
    last_batch = draw(st.sampled_from(tails))
    stop = draw(st.sampled_from(stops))
    sources = [
        Plan(
            Inventory.of_rows([draw(st.integers(8, 30)), *draw(st.lists(st.integers(0, 30), max_size=4))]),
            ReadRequest(("id",), draw(orders()), Shard(), 1, last_batch),
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


@st.composite
def uneven_mixtures(
    draw: Any,
    *,
    max_sources: int = 8,
    max_groups: int = 5000,
    least_rows: int = 80,
    stops: tuple[str, ...] = ("first_exhausted", "all_exhausted"),
    epochs: int = 2,
) -> Mixture:
    """Draw mixtures of 1 to `max_sources` sources, each of up to `max_groups` row groups and often with a filter.

    Weights are proportional to the rows of the sources, within a factor of two. So no source is repeated many times
    before another one ends. Each source has at least `least_rows` rows, enough for that number of ranks.
    """
    last_batch, stop = draw(st.sampled_from(list(LastBatch))), draw(st.sampled_from(stops))
    sources, weights = [], []
    for _ in range(draw(st.integers(1, max_sources))):
        inventory = draw(uneven_inventories(max_groups=max_groups))
        plan = Plan(inventory, ReadRequest(("id",), draw(orders()), Shard(), 1, last_batch))
        if draw(st.booleans()):
            plan = dataclasses.replace(plan, selection=draw(selections(inventory)))
        if plan.num_rows < least_rows:
            more = Inventory.of_rows(np.append(inventory.rows, least_rows))
            plan = dataclasses.replace(plan, inventory=more, selection=None)
        sources.append(plan)
        weights.append(max(1, plan.num_rows * draw(st.integers(2, 8)) // 4))
    return Mixture(
        sources,
        weights,
        stop=stop,
        batching=draw(st.sampled_from(["mixed", "per_source"])),
        seed=draw(st.integers(-(2**70), 2**70)),
        epochs=None if stop == "cycle" else epochs,
    )


@st.composite
def mixtures_of_one(
    draw: Any, *, max_epochs: int = 3, stops: tuple[str, ...] = ("first_exhausted", "all_exhausted", "cycle")
) -> Mixture:
    """Draw mixtures of one source, with or without a filter; it may have fewer rows than lanes, or one row."""
    inventory = draw(inventories(max_groups=12) | uneven_inventories(max_groups=60))
    request = ReadRequest(("id",), draw(orders()), Shard(), 1, draw(st.sampled_from(list(LastBatch))))
    source = Plan(inventory, request, draw(st.none() | selections(inventory)))
    if source.num_rows == 0:
        source = dataclasses.replace(source, inventory=Inventory.of_rows([draw(st.integers(1, 9))]), selection=None)
    stop = draw(st.sampled_from(stops))
    return Mixture(
        [source],
        [draw(st.integers(1, 9))],
        stop=stop,
        batching=draw(st.sampled_from(["mixed", "per_source"])),
        seed=draw(st.integers(-(2**70), 2**70)),
        epochs=None if stop == "cycle" else draw(st.none() | st.integers(1, max_epochs)),
    )


@dataclasses.dataclass(frozen=True)
class Step:
    """A global batch: the valid rows of each rank, and the cursor after it."""

    ranks: list[list[Row]]
    cursor: Cursor
    epoch: int
    repeats: int

    @property
    def rows(self) -> list[Row]:
        """Rows of all ranks, sorted."""
        return sorted(itertools.chain(*self.ranks))


def steps_of(
    mixture: Mixture, ranks: int, batch_size: int, *, after: Cursor | None = None, most: int | None = None
) -> list[Step]:
    """Return all steps, or the first `most`, of all ranks, whose cursors must agree."""
    training = train(shards_of(mixture, ranks), batch_size, after=after, most=most)
    sources, numbers = sources_of(mixture, training.rows)
    steps = [
        Step([[] for _ in range(ranks)], cursor, int(epoch), 0)
        for cursor, epoch in zip(training.cursors, training.epochs, strict=True)
    ]
    for step, rank, source, number, valid in zip(
        *(column.tolist() for column in (training.steps, training.ranks, sources, numbers, training.valid)), strict=True
    ):
        if valid:
            steps[step].ranks[rank].append((source, number))
    repeats = np.bincount(training.steps[~training.valid], minlength=len(steps)).tolist()
    return [dataclasses.replace(step, repeats=count) for step, count in zip(steps, repeats, strict=True)]


def sources_of(mixture: Mixture, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the source of each row, and its number in that source in file order, from row numbers in the mixture."""
    first_rows = _first_rows(mixture)
    sources = np.searchsorted(first_rows, rows, side="right") - 1
    return sources, rows - first_rows[sources]


def _first_rows(mixture: Mixture) -> NDArray[np.int64]:
    """Return the number of each source's first row, and of all rows; shape (sources + 1,)."""
    counts = [source.inventory.num_rows for source in mixture.sources]
    return np.cumsum([0, *counts])


def check_exact_proportions(mixture: Mixture, periods: int = 20) -> None:
    """Check that sources have exactly their share of rows (batches with batching="per_source") after every period.

    This holds until a source has less than a full batch left; then the others continue without it.
    """
    period = sum(mixture.proportions)
    batch_size = 1 if mixture.batching == "mixed" else 3
    training = train(shards_of(mixture, 1), batch_size, most=period * periods)
    sources, _ = sources_of(mixture, training.rows)
    of_step = np.zeros(training.num_steps, dtype=np.int64)
    of_step[training.steps] = sources
    assert np.array_equal(of_step[training.steps], sources), "a batch has rows of several sources"
    full = (training.epochs == 0) & (training.sizes[:, 0] == batch_size)
    # shape (steps, sources): number of batches that each source has yielded up to a step
    given = np.cumsum(of_step[:, None] == np.arange(len(mixture.sources)), axis=0)
    full &= (batch_size * (given + 1) <= np.array(mixture.rows_per_source)).all(axis=1)
    until = training.num_steps if full.all() else int(np.argmin(full))
    for end in range(period, until + 1, period):
        wanted = [count * end // period for count in mixture.proportions]
        assert given[end - 1].tolist() == wanted, f"after {end} batches sources gave {given[end - 1]}, not {wanted}"


def check_every_source_row_once(mixture: Mixture, ranks: int, batch_size: int) -> None:
    """Check that each source yields `rows_per_source` rows per epoch, and each row once before any row is repeated.

    Args:
        mixture: A mixture with last_batch="even", which neither repeats nor drops rows.
        ranks: Number of ranks.
        batch_size: Batch size of one rank.
    """
    training = train(shards_of(mixture, ranks), batch_size)
    sources, numbers = sources_of(mixture, training.rows)
    places = training.epochs[training.steps] * len(mixture.sources) + sources
    given = np.bincount(places, minlength=(mixture.epochs or 1) * len(mixture.sources)).reshape(
        -1, len(mixture.sources)
    )
    assert (given == np.array(mixture.rows_per_source)).all(), f"sources gave {given.tolist()} rows epoch by epoch"
    for source, plan in enumerate(mixture.sources):
        _check_in_turns(plan, numbers[sources == source], training.steps[sources == source], f"source {source}")
    more = [rows - plan.num_rows for plan, rows in zip(mixture.sources, mixture.rows_per_source, strict=True)]
    if all(plan.request.epochs == 1 for plan in mixture.sources):
        last = max(more) if mixture.stop == "first_exhausted" else min(more)
        assert last == 0, f"with stop={mixture.stop!r} no source gives each of its rows once; {more} more"


def _check_in_turns(plan: Plan, rows: NDArray[np.int64], steps: NDArray[np.int64], who: str) -> None:
    """Check that no row of a source is repeated before all of its rows occurred equally often."""
    order = np.lexsort((steps, rows))
    rows, steps = rows[order], steps[order]
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    # shape (n,): how often each row occurred before
    times = np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows)))
    for time in range(1, int(times.max(initial=0)) + 1):
        before = steps[times == time - 1]
        assert len(before) == plan.num_rows, (
            f"{who} repeats rows, but gave {len(before)} of {plan.num_rows} {time} times"
        )
        assert before.max() <= steps[times == time].min(), f"{who} repeats a row before each came {time} times"


def check_steps_and_shares(mixture: Mixture, ranks: int, batch_size: int) -> None:
    """Check that ranks have `steps_per_epoch` steps each, and shares that differ by at most one row.

    Every batch must be full, except the last one with `even`; with batching="per_source", the last one of each source.
    """
    plans: Sequence[Mixture] = shards_of(mixture, ranks)
    training = train(plans, batch_size)
    epochs = mixture.epochs or 1
    sizes = training.sizes
    for rank, plan in enumerate(plans):
        found, wanted = training.num_steps, epochs * plan.steps_per_epoch(batch_size)
        assert found == wanted, f"rank {rank} has {found} steps, but the plan has {wanted}"
        found, wanted = int(sizes[:, rank].sum()), epochs * plan.rows_per_epoch(batch_size)
        assert found == wanted, f"rank {rank} has {found} rows, but the plan has {wanted}"
    assert np.abs(sizes - sizes.sum(axis=1, keepdims=True) / ranks).max(initial=0) < 1, (
        "shares differ by more than a row"
    )
    assert sizes.all(), "a rank has an empty batch"
    short = int((sizes.min(axis=1, initial=batch_size) < batch_size).sum())
    lasts = epochs * (len(mixture.sources) if mixture.batching == "per_source" else 1)
    if mixture.request.last_batch is LastBatch.EVEN:
        assert short <= lasts, f"{short} batches are not full"
    else:
        assert (sizes == batch_size).all(), f"a batch is not of {batch_size} rows"


def plan_of_one(mixture: Mixture) -> Plan:
    """Return the plan of the only source of a mixture, with the epochs of the mixture."""
    (source,) = mixture.sources
    return dataclasses.replace(source, request=dataclasses.replace(source.request, epochs=mixture.epochs))


def check_one_source_is_its_plan(mixture: Mixture, batch_size: int, *, rows_per_span: int, most: int = 40) -> None:
    """Check that a mixture of one source equals the plan of that source in all public methods.

    Its spans have equal batches, rows and cursors, and fetch and release the same row groups. With stop="cycle", only
    the full batches of the first epoch are compared, because batches cross the borders of epochs.

    Args:
        mixture: A mixture of one source with one epoch, for any rank.
        batch_size: Batch size of one rank.
        rows_per_span: Largest number of rows of a span.
        most: Number of spans to compare, if the mixture is endless.
    """
    plan = plan_of_one(mixture)
    if plan.request.last_batch is LastBatch.EVEN and plan.num_rows < plan.request.shard.count:
        for each in (plan,) if mixture.stop == "cycle" else (plan, mixture):  # stop="cycle" has rows for all ranks
            check_too_few_rows_are_refused([each], batch_size)
        return
    _assert_alike(_facts_of(mixture, batch_size), _facts_of(plan, batch_size))
    # With more batches, `feeds` samples different batches of a plan and of a mixture. With stop="cycle", the last
    # batches contain rows of the next pass.
    if mixture.stop != "cycle" and plan.steps_per_epoch(batch_size) * plan.request.shard.count <= MOST_BATCHES:
        _assert_alike(_fields_of(mixture.feeds(batch_size)), _fields_of(plan.feeds(batch_size)))
    if mixture.stop == "cycle":
        drop = dataclasses.replace(plan, request=dataclasses.replace(plan.request, last_batch=LastBatch.DROP))
        full = min(most, drop.steps_per_epoch(batch_size))
        begins, wanted = (train([each], batch_size, most=full) for each in (mixture, drop))
        _assert_alike({"rows": begins.rows, "steps": begins.steps}, {"rows": wanted.rows, "steps": wanted.steps})
        return
    for number, (found, due) in enumerate(
        itertools.zip_longest(*(each.spans(batch_size, rows_per_span=rows_per_span) for each in (mixture, plan)))
    ):
        assert found is not None, f"the mixture has {number} spans, and the plan more"
        assert due is not None, f"the plan has {number} spans, and the mixture more"
        _assert_alike(_said_by(found), _said_by(due), f" of span {number}")
        if mixture.epochs is None and number == most:
            return


def check_resume_with_one_source(mixture: Mixture, first: tuple[int, int], then: tuple[int, int], most: int) -> None:
    """Check that a mixture of one source resumes after any batch like the plan of that source.

    Args:
        mixture: A mixture of one source with one epoch, without stop="cycle".
        first: Ranks and batch size before the interruption.
        then: Ranks and batch size after the resume; each rank must have rows in both.
        most: Number of steps to compare.
    """
    plan = plan_of_one(mixture)
    stops = [train(shards_of(each, first[0]), first[1], most=most).cursors for each in (mixture, plan)]
    for mixed, single in zip(*stops, strict=True):
        training, wanted = (
            train(shards_of(resumed, then[0]), then[1], after=begin, most=most)
            for resumed, begin in (
                resume(each, json.loads(json.dumps(dump_state(each, cursor))))
                for each, cursor in ((mixture, mixed), (plan, single))
            )
        )
        _assert_alike(_given(training), _given(wanted), f" of what follows {single}")


def _given(training: Training) -> dict[str, Any]:
    found = {name: getattr(training, name) for name in ("rows", "steps", "ranks", "valid", "epochs")}
    return found | {"cursors": list(map(_place, training.cursors))}


def _place(cursor: Cursor) -> tuple[int, int, int]:
    """Return a cursor without the counts per source, which only batching="per_source" has."""
    return cursor.epoch, cursor.position, cursor.first_epoch


def _facts_of(plan: Plan | Mixture, batch_size: int) -> dict[str, Any]:
    """Return the attributes in which a plan and its mixture must agree."""
    inventory, explained = plan.inventory, plan.explain(batch_size)
    read = explained.sources[0] if isinstance(explained, MixtureExplanation) else explained
    facts = {field.name: getattr(read, field.name) for field in dataclasses.fields(ReadFacts)}
    facts |= {name: getattr(explained, name) for name in ("rank", "ranks", "steps", "rows_per_rank", "last_batch")}
    return facts | {
        "num_rows": plan.num_rows,
        "steps_per_epoch": plan.steps_per_epoch(batch_size),
        "rows_per_epoch": plan.rows_per_epoch(batch_size),
        "buffer_rows": plan.buffer_rows,
        "resident_bytes": plan.resident_bytes(inventory.rows, early=batch_size),
        "units": [plan.unit(group) for group in range(inventory.num_row_groups)],
        "row groups": [inventory.rows, inventory.file, inventory.ordinal, inventory.stored_bytes],
    }


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _said_by(span: Span) -> dict[str, Any]:
    said = {name: getattr(span, name) for name in ("groups", "rows", "offsets", "valid", "epoch", "consumed")}
    said |= {name: getattr(span, name) for name in ("needed", "fetch", "read_orders", "ends_epoch", "most_rows")}
    cursors = [_place(span.cursor_after(batch)) for batch in range(span.num_batches)]
    return said | {"release": sorted(span.release), "cursors": cursors}


def _assert_alike(found: dict[str, Any], wanted: dict[str, Any], where: str = "") -> None:
    for name, value in wanted.items():
        assert _same(found[name], value), f"{name}{where} is {found[name]} of the mixture, but {value} of its plan"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    arrays = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)  # the other may be None
    return np.array_equal(one, other) if arrays else bool(one == other)
