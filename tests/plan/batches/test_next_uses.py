"""Tests of the next uses that a plan announces to caches: they equal the row groups that its spans fetch."""

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
def test_next_uses_list_all_fetched_row_groups_in_order(plan: Plan, draw: st.DataObject) -> None:
    step = draw.draw(st.integers(0, plan.steps_per_epoch(1) - 1))
    after = Cursor(0, min(step * plan.request.shard.count, plan.num_rows - 1), 0)
    uses, found = plan.next_uses(after.position, after.position), fetched(plan, after)
    assert uses.until == plan.num_rows
    assert (np.diff(uses.times) >= 0).all()
    assert collections.Counter(found) <= collections.Counter(uses.groups.tolist())
    first = uses.groups[uses.times < uses.until].tolist()
    assert len(set(first)) == len(first)
    if not plan.request.order.shuffle_rows and plan.request.shard.count == 1:
        both = [group for group, _ in itertools.groupby(uses.groups.tolist())]
        assert [group for group, _ in itertools.groupby(found)] == both


@given(plans(epochs=1))
@settings(max_examples=examples(30))
def test_next_use_of_a_row_group_is_before_the_end_of_its_span(plan: Plan) -> None:
    uses = plan.next_uses(0, 0)
    times = dict(zip(uses.groups[::-1].tolist(), uses.times[::-1].tolist(), strict=True))
    for span in plan.spans(1, rows_per_span=1):
        for group in span.fetch:
            assert times[group] < span.times[1]


@given(plans(epochs=1), plans(epochs=1), st.sampled_from(["first_exhausted", "all_exhausted", "cycle"]))
@settings(max_examples=examples(40))
def test_next_uses_of_a_mixture_name_row_groups_of_all_sources(one: Plan, other: Plan, stop: str) -> None:
    sources = [plan.for_shard(Shard()) for plan in (one, other)]  # without ranks, because ranks share the last rows
    assume(all(plan.num_rows for plan in sources))
    mixture = Mixture(sources, [2, 1], stop=stop, epochs=None if stop == "cycle" else 1)  # type: ignore[arg-type]
    uses = mixture.next_uses(0, 0)
    spans = itertools.takewhile(
        lambda span: span.epoch == 0 and span.times[1] <= uses.until,
        mixture.spans(1, rows_per_span=1),
    )
    assert {group for span in spans for group in span.fetch} <= set(uses.groups.tolist())
    assert uses.until > 0


def test_next_uses_of_a_mixture_with_a_tiny_repeated_source_stay_few() -> None:
    order = Order(seed=0, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
    small = Plan(Inventory.of_rows([3, 3]), ReadRequest(("id",), order, epochs=None))
    large = Plan(Inventory.of_rows([1000] * sized(full=50, quick=10)), ReadRequest(("id",), order))
    mixture = Mixture([small, large], [1, 1])
    now, loads = 0.0, 0
    while now < mixture.num_rows:
        uses = mixture.next_uses(now, now)
        assert 0 < len(uses.groups) < 200
        loads += int(np.count_nonzero(uses.times < uses.until))
        assert uses.until > now
        now = uses.until
    assert loads > large.num_rows / 3
    assert np.isin(np.arange(2), mixture.next_uses(now, now).groups).all()
