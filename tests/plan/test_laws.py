"""Tests of the plan laws: up to 5,000 row groups and 80 ranks, all last_batch policies, filters and mixtures."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan import LastBatch, Order, Plan, ReadRequest, Shard
from petastore.plan.mixture.mixture import Batching, Mixture, Stop
from petastore.testing.training import shards_of
from tests.laws import mixture_laws, plan_laws
from tests.laws.plan_laws import RANKS
from tests.tier import sized

GLOBAL_BATCH = 1680
"""A multiple of each number of ranks."""

ranks = st.sampled_from(RANKS)


Test = TypeVar("Test", bound=Callable[..., None])


def some(full: int) -> Callable[[Test], Test]:
    """Set the number of examples: half of `full` in `make test-all`, an eighth in `make test`, more in `make laws`."""
    times = int(os.environ.get("PETASTORE_LAWS", "0"))
    drawn = settings(
        max_examples=times * full or sized(full=-(-full // 2), quick=max(1, full // 8)),
        suppress_health_check=[HealthCheck.too_slow],
        deadline=None,
    )
    return cast("Callable[[Test], Test]", drawn)


@st.composite
def plans(draw: Any, *, max_groups: int = 5000, epochs: int = 2, tails: Any = tuple(LastBatch)) -> Plan:
    """Draw plans over uneven datasets, half of them with a filter."""
    inventory = draw(plan_laws.uneven_inventories(max_groups=max_groups))
    request = ReadRequest(("id",), draw(plan_laws.orders()), Shard(), epochs, draw(st.sampled_from(tails)))
    return Plan(inventory, request, draw(st.none() | plan_laws.selections(inventory)))


def batch_of(plan: Plan | Mixture, count: int, *, steps: int) -> int:
    """Return a batch size with which an epoch has about `steps` steps."""
    return max(1, plan.num_rows // (count * steps))


def is_refused(plan: Plan, count: int) -> bool:
    """Return whether last_batch="even" has too few rows for the ranks, after checking that all ranks raise."""
    if plan.request.last_batch is not LastBatch.EVEN or not 0 < plan.num_rows < count:
        return False
    plan_laws.check_too_few_rows_are_refused(shards_of(plan, count), 4)
    return True


SHUFFLED = Order(seed=-3, shuffle_row_groups=True, shuffle_rows=True, lanes=48, block_rows=100)


def largest(last_batch: LastBatch, kept: float | None = None, *, epochs: int = 2) -> Plan:
    """Return a plan of 5,000 row groups; a quarter has no rows, a quarter one row. `kept` is that of a selection."""
    inventory = plan_laws.uneven_inventory(5000, seed=11, mean_rows=5)
    selection = None if kept is None else plan_laws.selection_of(inventory, seed=12, kept=kept)
    return Plan(inventory, ReadRequest(("id",), SHUFFLED, Shard(), epochs, last_batch), selection)


def slow_but(quick: LastBatch, cases: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Mark the cases with other last_batch policies as slow, because the largest plans take seconds each."""
    return [pytest.param(*case, marks=() if quick in case else pytest.mark.slow) for case in cases]


# Each last_batch policy once, half of them with a filter; Hypothesis draws every combination.
TAILS_AND_FILTERS = [(LastBatch.EVEN, None), (LastBatch.DROP, 0.1), (LastBatch.PAD, 0.1), (LastBatch.WRAP, None)]


@st.composite
def shared(
    draw: Any, mixtures: st.SearchStrategy[Mixture], counts: int = 1, ranks: Sequence[int] = RANKS
) -> tuple[Mixture, list[int]]:
    """Draw mixtures, and numbers of ranks that are small enough for each batch."""
    mixture = draw(mixtures)
    fitting = [count for count in ranks if count <= min(mixture.rows_per_source)]
    return mixture, [draw(st.sampled_from(fitting)) for _ in range(counts)]


@some(12)
@given(plans(), ranks, st.integers(1, 60))
def test_law_each_row_once_and_equal_steps(plan: Plan, count: int, steps: int) -> None:
    if not is_refused(plan, count):
        batch_size = batch_of(plan, count, steps=steps)
        plan_laws.check_equal_steps(shards_of(plan, count), batch_size)
        plan_laws.check_every_row_once(shards_of(plan, count), batch_size)


@pytest.mark.parametrize(("last_batch", "kept"), slow_but(LastBatch.DROP, TAILS_AND_FILTERS), ids=str)
def test_law_each_row_once_and_equal_steps_for_80_ranks_5000_row_groups(
    last_batch: LastBatch, kept: float | None
) -> None:
    plan = largest(last_batch, kept, epochs=1)
    for count, batch_size in [(80, 21), (7, 64)]:
        plan_laws.check_equal_steps(shards_of(plan, count), batch_size)
        plan_laws.check_every_row_once(shards_of(plan, count), batch_size)


@some(8)
@given(plans(epochs=1), st.sampled_from([GLOBAL_BATCH, 240, 96]))
def test_law_global_batches_do_not_depend_on_ranks(plan: Plan, global_batch: int) -> None:
    plan_laws.check_same_batches_for_any_ranks(plan, global_batch=global_batch, ranks=RANKS)


@pytest.mark.parametrize(("last_batch", "kept"), slow_but(LastBatch.EVEN, TAILS_AND_FILTERS), ids=str)
def test_law_global_batches_of_5000_row_groups_do_not_depend_on_ranks(
    last_batch: LastBatch, kept: float | None
) -> None:
    plan = largest(last_batch, kept, epochs=1 if kept is None else 2)
    plan_laws.check_same_batches_for_any_ranks(plan, global_batch=GLOBAL_BATCH, ranks=RANKS)


@some(16)
@given(plans(max_groups=200), ranks, st.integers(1, 6))
def test_law_resume_from_any_state_gives_the_same_batches(plan: Plan, count: int, steps: int) -> None:
    if not is_refused(plan, count):
        plan_laws.check_resume_after_every_batch(plan, count, batch_of(plan, count, steps=steps))


@pytest.mark.parametrize(
    ("count", "steps", "last_batch"),
    slow_but(
        LastBatch.PAD,
        [(1, 30, LastBatch.EVEN), (3, 12, LastBatch.PAD), (16, 6, LastBatch.DROP), (80, 2, LastBatch.WRAP)],
    ),
)
def test_law_resume_of_5000_row_groups_gives_the_same_batches(count: int, steps: int, last_batch: LastBatch) -> None:
    plan = largest(last_batch, 0.1)
    plan_laws.check_resume_after_every_batch(plan, count, batch_of(plan, count, steps=steps))


log = st.lists(st.tuples(ranks, st.integers(1, 60), st.integers(0, 4)), max_size=6)


@some(40)
@given(plans(epochs=3), log)
def test_law_ranks_and_batch_sizes_may_change_repeatedly(plan: Plan, log: list[tuple[int, int, int]]) -> None:
    plan_laws.check_resume_with_others(plan, log)


@some(10)
@given(plans(max_groups=200), ranks, ranks, st.integers(1, 6), st.integers(1, 6))
def test_law_ranks_and_batch_size_may_change_after_any_batch(
    plan: Plan, first: int, then: int, first_steps: int, then_steps: int
) -> None:
    if not is_refused(plan, max(first, then)):
        parts = [(first, batch_of(plan, first, steps=first_steps)), (then, batch_of(plan, then, steps=then_steps))]
        plan_laws.check_resume_with_others_after_every_batch(plan, parts[0], parts[1])


@pytest.mark.parametrize(
    "last_batch",
    slow_but(LastBatch.WRAP, [(last_batch,) for last_batch in LastBatch]),
    ids=lambda last_batch: last_batch.value,
)
def test_law_ranks_may_change_after_any_batch_of_5000_row_groups(last_batch: LastBatch) -> None:
    plan_laws.check_resume_with_others_after_every_batch(largest(last_batch, 0.1), (80, 6), (7, 100))
    plan_laws.check_resume_with_others_after_every_batch(largest(last_batch, 0.1, epochs=1), (3, 300), (80, 11))


@some(8)
@given(shared(mixture_laws.uneven_mixtures(epochs=1)), st.integers(1, 20))
def test_law_mixture_has_equal_steps_and_disjoint_rows(drawn: tuple[Mixture, list[int]], steps: int) -> None:
    mixture, (count,) = drawn
    batch_size = batch_of(mixture, count, steps=steps)
    mixture_laws.check_steps_and_shares(mixture, count, batch_size)
    if mixture.request.last_batch is LastBatch.EVEN:
        mixture_laws.check_every_source_row_once(mixture, count, batch_size)


@pytest.mark.parametrize(
    ("batching", "last_batch", "kept"),
    slow_but(
        LastBatch.PAD,
        [
            ("mixed", LastBatch.EVEN, None),
            ("per_source", LastBatch.EVEN, 0.1),
            ("mixed", LastBatch.WRAP, 0.1),
            ("per_source", LastBatch.PAD, 0.1),
        ],
    ),
)
def test_law_mixture_equal_steps_and_disjoint_rows_for_80_ranks(
    batching: Batching, last_batch: LastBatch, kept: float | None
) -> None:
    few = Plan(Inventory.of_rows([100, 0, 1, 700]), ReadRequest(("id",), SHUFFLED, last_batch=last_batch))
    large = largest(last_batch, kept, epochs=1)
    mixture = Mixture([large, few], [large.num_rows, few.num_rows], batching=batching, stop="all_exhausted")
    mixture_laws.check_steps_and_shares(mixture, 80, 21)
    if last_batch is LastBatch.EVEN:
        mixture_laws.check_every_source_row_once(mixture, 80, 21)
    plan_laws.check_resume_with_others(mixture, [(80, 4, 3), (7, 90, 2), (48, 10, 2)])


@some(3)
@given(mixture_laws.uneven_mixtures(epochs=1, max_sources=4))
def test_law_mixture_global_batches_do_not_depend_on_ranks(mixture: Mixture) -> None:
    rows = mixture.rows_per_source if mixture.batching == "per_source" else [mixture.num_rows]
    joins = mixture.request.last_batch is LastBatch.EVEN and mixture.batching == "per_source"
    # remaining rows that are fewer than the ranks join the previous batch, which changes the turns of the sources
    most = min((count % GLOBAL_BATCH or GLOBAL_BATCH for count in rows), default=1) if joins else max(RANKS)
    fitting = [count for count in RANKS if count <= most]
    plan_laws.check_same_batches_for_any_ranks(mixture, global_batch=GLOBAL_BATCH, ranks=fitting)


@some(5)
@given(shared(mixture_laws.uneven_mixtures(max_sources=4, max_groups=50)), st.integers(1, 4))
def test_law_mixture_resume_gives_the_same_batches(drawn: tuple[Mixture, list[int]], steps: int) -> None:
    mixture, (count,) = drawn
    plan_laws.check_resume_after_every_batch(mixture, count, batch_of(mixture, count, steps=steps))


@some(8)
@given(
    mixture_laws.uneven_mixtures(max_sources=5, max_groups=300, stops=("first_exhausted", "all_exhausted", "cycle")),
    log,
)
def test_law_mixture_ranks_may_change_repeatedly(mixture: Mixture, log: list[tuple[int, int, int]]) -> None:
    # The expected rows of a mixture are computed row by row, and more of them if it is endless.
    most = 60 * max(RANKS) if mixture.epochs else 500
    fitting = [(count, min(size, most // count + 1), steps) for count, size, steps in log]
    plan_laws.check_resume_with_others(mixture, [part for part in fitting if part[0] <= min(mixture.rows_per_source)])


@some(6)
@given(
    shared(
        mixture_laws.uneven_mixtures(max_sources=3, max_groups=50, stops=("first_exhausted", "all_exhausted", "cycle")),
        counts=2,
    ),
    st.integers(1, 4),
)
def test_law_mixture_ranks_may_change_after_any_batch(drawn: tuple[Mixture, list[int]], steps: int) -> None:
    mixture, counts = drawn
    most = None if mixture.epochs else 6
    parts = [(count, batch_of(mixture, count, steps=steps)) for count in counts]
    plan_laws.check_resume_with_others_after_every_batch(mixture, parts[0], parts[1], most=most)


@some(30)
@given(mixture_laws.mixtures_of_one(), ranks, st.integers(0, 79), st.integers(1, 30), st.sampled_from([1, 64, 4096]))
def test_law_mixture_of_one_source_equals_its_plan(
    mixture: Mixture, count: int, rank: int, steps: int, rows_per_span: int
) -> None:
    mixture, batch_size = mixture.for_shard(Shard(rank % count, count)), batch_of(mixture, count, steps=steps)
    mixture_laws.check_one_source_is_its_plan(mixture, batch_size, rows_per_span=rows_per_span)


@some(8)
@given(
    shared(mixture_laws.mixtures_of_one(stops=("first_exhausted", "all_exhausted")), counts=2, ranks=[1, 2, 3, 5, 8]),
    st.integers(1, 6),
)
def test_law_mixture_of_one_source_resumes_like_its_plan(drawn: tuple[Mixture, list[int]], steps: int) -> None:
    mixture, counts = drawn
    parts = [(count, batch_of(mixture, count, steps=steps)) for count in counts]
    mixture_laws.check_resume_with_one_source(mixture, parts[0], parts[1], most=4)


def plans_of_every_kind() -> list[Plan | Mixture]:
    """Return plans and mixtures of every kind, in which a hash of text could change the order."""
    random = np.random.RandomState(0)
    tails = list(LastBatch)[: sized(full=len(LastBatch), quick=1)]
    made: list[Plan | Mixture] = [largest(last_batch, share) for last_batch in tails for share in (None, 0.1)]
    smaller = []
    for seed in range(12):
        inventory = plan_laws.uneven_inventory(int(random.randint(20, 300)), seed=seed)
        order = dataclasses.replace(SHUFFLED, seed=-seed, lanes=seed + 1, shuffle_rows=seed % 3 > 0)
        asked = ReadRequest(
            ("id", "label"), order, last_batch=LastBatch.PAD, chosen=frozenset({"seed", "lanes", "block_rows"})
        )
        smaller.append(Plan(inventory, asked, plan_laws.selection_of(inventory, seed=seed, kept=0.5)))
    made += smaller
    sources = [plan for plan in smaller if plan.num_rows > 100]
    weights = range(1, len(sources) + 1)
    stops: list[Stop] = ["first_exhausted", "all_exhausted"]
    ways = itertools.product(get_args(Batching), stops)
    made += [Mixture(sources, weights, stop=stop, batching=batching, seed=5) for batching, stop in ways]
    return made


def test_law_plans_are_equal_in_another_interpreter() -> None:
    plan_laws.check_interpreters_agree(plans_of_every_kind)
