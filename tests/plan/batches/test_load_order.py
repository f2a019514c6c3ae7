"""The order in which a plan says that row groups are loaded is that in which its spans fetch them."""

from __future__ import annotations

import collections
import itertools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard
from tests.tier import examples, sized

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=30).filter(sum)


@st.composite
def plans(draw: st.DrawFn, *, epochs: int = 2) -> Plan:
    shuffles, ranks = draw(st.booleans()), draw(st.integers(1, 3))
    order = Order(
        seed=draw(st.integers(0, 5)),
        shuffle_row_groups=draw(st.booleans()),
        shuffle_rows=shuffles,
        lanes=draw(st.integers(1, 4)) * ranks if shuffles else ranks,
        block_rows=draw(st.integers(1, 50)) if shuffles else 1,
    )
    inventory = Inventory.of_rows([ranks, *draw(SIZES)])
    shard = Shard(draw(st.integers(0, ranks - 1)), ranks)
    return Plan(inventory, ReadRequest(("id",), order, shard, epochs))


def fetched(plan: Plan | Mixture, after: Cursor) -> list[int]:
    return [group for span in plan.spans(1, rows_per_span=1, after=after) for group in span.fetch]


@given(plans(), st.data())
@settings(max_examples=examples(60))
def test_all_that_is_fetched_is_told_and_in_order(plan: Plan, draw: st.DataObject) -> None:
    step = draw.draw(st.integers(0, plan.steps_per_epoch(1) - 1))
    after = Cursor(0, min(step * plan.request.shard.count, plan.num_rows - 1), 0)
    told, found = plan.load_order(after), fetched(plan, after)
    assert told.then == Cursor(1)
    own = collections.Counter(found)
    assert own <= collections.Counter(told.groups.tolist())  # what stays at hand from epoch to epoch is told twice
    first = told.groups[: told.first].tolist()
    assert len(set(first)) == len(first)
    if not plan.request.order.shuffle_rows and plan.request.shard.count == 1:
        both = [group for group, _ in itertools.groupby(told.groups.tolist())]
        assert [group for group, _ in itertools.groupby(found)] == both


@given(plans())
@settings(max_examples=examples(30))
def test_a_row_group_is_told_before_it_is_fetched(plan: Plan) -> None:
    """Blocks are told when they begin: whoever fetches has come to their place, or is before it by no other block."""
    told = plan.load_order(Cursor())
    places = {group: place for place, group in reversed(list(enumerate(told.groups[: told.first].tolist())))}
    order = [places[group] for group in fetched(plan, Cursor())[: told.first] if group in places]
    late = [max(order[: place + 1]) - each for place, each in enumerate(order)]
    most = plan.request.order.lanes * (1 + plan.request.order.block_rows)
    assert max(late, default=0) <= most


@given(plans(epochs=1), plans(epochs=1), st.sampled_from(["first_exhausted", "all_exhausted", "cycle"]))
@settings(max_examples=examples(40))
def test_a_mixture_tells_of_all_its_sources(one: Plan, other: Plan, stop: str) -> None:
    sources = [plan.for_shard(Shard()) for plan in (one, other)]  # ranks share what is left at the end
    assume(all(plan.num_rows for plan in sources))
    mixture = Mixture(sources, [2, 1], stop=stop, epochs=None if stop == "cycle" else 1)  # type: ignore[arg-type]
    told = mixture.load_order(Cursor())
    spans = itertools.takewhile(
        lambda span: span.epoch == 0 and int(span.consumed[-1]) <= mixture.num_rows,
        mixture.spans(1, rows_per_span=1),
    )
    assert {group for span in spans for group in span.fetch} <= set(told.groups.tolist())
    assert told.then.epoch == 1 or told.then.position > 0


def test_a_source_that_starts_over_many_times_is_told_some_at_a_time() -> None:
    order = Order(seed=0, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
    small = Plan(Inventory.of_rows([3, 3]), ReadRequest(("id",), order, epochs=None))
    large = Plan(Inventory.of_rows([1000] * sized(full=50, quick=10)), ReadRequest(("id",), order))
    mixture = Mixture([small, large], [1, 1])
    after, loads = Cursor(), 0
    while after.epoch == 0:
        told = mixture.load_order(after)
        assert 0 < told.first <= len(told.groups) < 200
        after, loads = told.then, loads + told.first
    assert loads > large.num_rows / 3
    assert np.isin(np.arange(2), mixture.load_order(after).groups).all()
