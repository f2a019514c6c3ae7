"""Tests of the assignment of row groups to ranks: few move to another rank when the number of ranks changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan.order.line import dealt_line, line_of_groups, owners
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard
from tests.laws import dealing_laws as dealing
from tests.laws import plan_laws as laws
from tests.tier import examples

_UNEVEN = [46, 30, 62, 0, 22, 54, 38, 48, 1, 7, 12, 33]


def _order(*, shuffle_rows: bool = False, lanes: int = 1, seed: int = 7) -> Order:
    return Order(seed, True, shuffle_rows, lanes, block_rows=50, reshuffle="static", dealt_to=1)


def _plan(rows: list[int], order: Order, *, epochs: int = 1) -> Plan:
    return Plan(Inventory.of_rows(rows), ReadRequest(("id",), order, epochs=epochs))


def _groups_of(plan: Plan) -> set[int]:
    return {int(group) for span in plan.spans(16, rows_per_span=512) for group in span.groups}


@pytest.mark.parametrize("shuffle_rows", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_changing_the_number_of_ranks_moves_few_row_groups_between_ranks(shuffle_rows: bool, seed: int) -> None:
    plan = _plan([100] * 64, _order(shuffle_rows=shuffle_rows, lanes=48, seed=seed))
    for before, after in [(4, 3), (3, 4)]:
        must = dealing.fewest_moved(plan, before=before, after=after)
        assert must == 1600
        assert dealing.moved(plan, before=before, after=after, batch_size=16) <= 1.3 * must
        held = [[_groups_of(each) for each in dealing.dealt(plan, ranks)] for ranks in (before, after)]
        fetched = sum(len(now - dict(enumerate(held[0])).get(rank, set())) for rank, now in enumerate(held[1]))
        assert fetched <= 1.3 * 16  # row groups, including those that two ranks share


def test_row_group_assignment_gives_ranks_equal_steps_and_each_row_once() -> None:
    for shuffle_rows in (False, True):
        plan = _plan(_UNEVEN, _order(shuffle_rows=shuffle_rows, lanes=12), epochs=2)
        for ranks in (1, 2, 3, 5):
            laws.check_every_row_once(dealing.dealt(plan, ranks), batch_size=8)
            laws.check_equal_steps(dealing.dealt(plan, ranks), batch_size=8)


@settings(max_examples=examples(40))
@given(
    inventory=laws.uneven_inventories(max_groups=200),
    ranks=st.tuples(*[st.sampled_from([1, 2, 3, 4, 6, 12])] * 2),
    shuffle_rows=st.booleans(),
    seed=st.integers(0, 2**64),
)
def test_changing_the_number_of_ranks_keeps_most_rows_on_their_rank(
    inventory: Inventory, ranks: tuple[int, int], shuffle_rows: bool, seed: int
) -> None:
    before, after = ranks
    assume(inventory.num_rows >= 24)  # two rows for each lane
    plan = Plan(
        inventory, ReadRequest(("id",), _order(shuffle_rows=shuffle_rows, lanes=12, seed=seed), Shard(), epochs=2)
    )
    dealing.check_ranks_keep_their_rows(dealing.dealt(plan, before), batch_size=12)
    dealing.check_few_change_hands(plan, before=before, after=after, batch_size=12)


@given(rows=st.lists(st.integers(0, 50), min_size=1, max_size=80), ranks=st.integers(1, 20), shift=st.integers(0, 99))
def test_adding_a_rank_takes_row_groups_from_others_and_gives_them_none(
    rows: list[int], ranks: int, shift: int
) -> None:
    fewer, more = (owners(np.array(rows), count, shift=shift) for count in (ranks, ranks + 1))
    stays = more < ranks
    assert (fewer[stays] == more[stays]).all()


@given(rows=st.lists(st.integers(0, 50), min_size=1, max_size=80), ranks=st.integers(1, 9), strata=st.integers(1, 4))
def test_assignment_of_row_groups_has_each_row_group_once(rows: list[int], ranks: int, strata: int) -> None:
    line = dealt_line(np.array(rows), ranks, hashed_for=(5,), strata=strata)
    assert sorted(line.tolist()) == np.flatnonzero(rows).tolist()


def test_assignment_gives_each_rank_row_groups_from_the_whole_dataset() -> None:
    owner = owners(np.full(800, 10), 8)
    for rank in range(8):
        assert np.diff(np.flatnonzero(owner == rank)).max() <= 40


def test_assignment_of_row_groups_is_unchanged_between_versions() -> None:
    line = dealt_line(np.array(_UNEVEN), 3, hashed_for=(0, 7, 0), strata=2)
    assert line.tolist() == [6, 0, 8, 11, 7, 2, 10, 1, 4, 9, 5]
    order = Order(-3, True, False, 3, 1, "static", 3)
    assert line_of_groups(np.array(_UNEVEN), order, epoch=5, lanes=3).tolist() == [1, 11, 6, 8, 9, 2, 5, 10, 7, 4, 0]


def test_assignment_to_one_rank_equals_the_order_without_assignment() -> None:
    for shuffle_rows in (False, True):
        alone = Order(3, True, shuffle_rows, 4, 20, "static", 1)
        plain = Order(3, True, shuffle_rows, 4, 20, "static")
        found = [line_of_groups(np.array(_UNEVEN), order, epoch=2, lanes=4).tolist() for order in (alone, plain)]
        assert found[0] == found[1]
