"""Tests of `rows_of_step` and `steps_of_rows`: equal to the rows that ranks get, for plans and mixtures."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.inventory import DataFile, Inventory
from petastore.plan import Cursor, LastBatch, Mixture, Order, Plan, ReadRequest, Selection, Shard
from petastore.plan.order import line, mix
from petastore.plan.order import order as orders
from petastore.plan.order.partial_sort import PartialSort
from petastore.plan.state import dump_state, resharded, resume
from petastore.plan.windows.windows import WindowStarts
from petastore.testing.training import shards_of, train
from tests.laws import mixture_laws, plan_laws, step_laws
from tests.tier import examples

sizes, ranks = st.integers(1, 9), st.integers(1, 4)
ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=4, block_rows=20)


def plan_of(rows: Any, count: int = 1, order: Order = ORDER, **options: Any) -> Plan:
    return Plan(Inventory.of_rows(rows), ReadRequest(("id",), order, Shard(0, count), **options))


def check(plan: Plan | Mixture, count: int, size: int, after: Cursor | None = None) -> None:
    step_laws.check_rows_of_steps(plan, ranks=count, batch_size=size, after=after)
    step_laws.check_steps_of_rows(plan, ranks=count, batch_size=size, after=after)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), count=ranks, size=sizes, last_batch=st.sampled_from(LastBatch))
def test_rows_of_step_and_steps_of_rows_equal_the_batches_of_a_plan(
    data: st.DataObject, count: int, size: int, last_batch: LastBatch
) -> None:
    inventory = data.draw(plan_laws.inventories(max_groups=12))
    selection = data.draw(st.none() | plan_laws.selections(inventory))
    order = data.draw(plan_laws.orders())
    plan = Plan(inventory, ReadRequest(("id",), order, Shard(0, count), 2, last_batch), selection)
    if plan.num_rows < count:
        return
    check(plan, count, size)
    cursors = train(shards_of(plan, count), size).cursors
    if cursors:
        check(plan, count, size + 1, data.draw(st.sampled_from(cursors)))


@settings(max_examples=examples(40), deadline=None)
@given(
    mixture=mixture_laws.mixtures(stops=("first_exhausted", "all_exhausted", "cycle"), tails=tuple(LastBatch), epochs=2)
    | mixture_laws.uneven_mixtures(max_groups=20, max_sources=4),
    count=ranks,
    size=sizes,
    data=st.data(),
)
def test_rows_of_step_and_steps_of_rows_equal_the_batches_of_a_mixture(
    mixture: Mixture, count: int, size: int, data: st.DataObject
) -> None:
    mixture = mixture.for_shard(Shard(0, count))
    step_laws.check_rows_of_steps(mixture, ranks=count, batch_size=size, most=30)
    most = 3 * mixture.steps_per_epoch(size) if mixture.stop == "cycle" else 2000
    step_laws.check_steps_of_rows(mixture, ranks=count, batch_size=size, most=most)
    cursors = train(shards_of(mixture, count), size, most=40).cursors
    if cursors:
        after = data.draw(st.sampled_from(cursors))
        step_laws.check_rows_of_steps(mixture, ranks=count, batch_size=size, after=after, most=20)


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), size=st.integers(1, 4))
def test_rows_of_step_equals_batches_when_rows_are_excluded_mid_epoch(data: st.DataObject, size: int) -> None:
    rows = data.draw(st.lists(st.integers(1, 12), min_size=2, max_size=8))
    count = data.draw(st.integers(1, 2))
    begun = plan_of(rows, count, epochs=3)
    cursors = train(shards_of(begun, count), size).cursors
    state = dump_state(begun, data.draw(st.sampled_from(cursors[:-1] or [Cursor()])))
    flags = {0: np.arange(rows[0]) == 0}
    left = Selection(np.array(rows), {}).without(flags, np.array(rows), by="excluded rows")
    plan, after = resume(dataclasses.replace(begun, selection=left), state)
    if plan.num_rows >= count:
        check(plan, count, size, after)


def test_rows_of_step_equals_batches_after_the_number_of_ranks_changed() -> None:
    order = Order(7, True, False, lanes=4, block_rows=1, reshuffle="static", dealt_to=4)
    after = Cursor(epoch=1, position=8)
    plan = resharded(plan_of([5] * 12, 4, order, epochs=4), Shard(0, 3), after)
    assert isinstance(plan, Plan)
    check(plan, 3, 2, after)


def test_rows_of_step_counts_steps_through_all_epochs() -> None:
    plan = plan_of([10, 10])
    steps = plan.steps_per_epoch(4)
    later = plan.rows_of_step(5 * steps + 2, batch_size=4)
    assert (later.epoch, later.step_of_epoch, later.step) == (5, 2, 5 * steps + 2)
    same = plan.rows_of_step(2, batch_size=4, after=Cursor.of_epoch(5))
    assert (same.epoch, same.numbers.tolist()) == (5, later.numbers.tolist())


def test_rows_of_step_returns_the_first_row_and_length_of_windows() -> None:
    starts = WindowStarts(np.array([3, 0]), {0: np.array([True, False, True, True, False])}, length=3)
    plan = dataclasses.replace(plan_of([5, 4]), selection=starts)
    found = plan.rows_of_step(0, batch_size=3)
    assert (sorted(found.rows.tolist()), found.window_length) == ([0, 2, 3], 3)
    assert "3 windows of 3 rows in 1 row group" in repr(found)
    assert plan.steps_of_rows([("part-00000.parquet", 0, 1)], batch_size=2).steps.tolist() == []


def test_rows_of_step_places_are_accepted_by_steps_of_rows() -> None:
    files = (DataFile("a.parquet", 1), DataFile("b.parquet", 1))
    inventory = Inventory(files, np.array([0, 1, 1]), np.array([0, 0, 1]), *[np.array([2, 2, 2])] * 3)
    order = Order(0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    plan = Plan(inventory, ReadRequest(("id",), order))
    found = plan.rows_of_step(1, batch_size=3)
    assert found.places() == (("b.parquet", 0, 1), ("b.parquet", 1, 0), ("b.parquet", 1, 1))
    assert found.files.tolist() == ["b.parquet"] * 3
    assert found.row_groups.tolist() == [0, 1, 1]
    assert "<td>b.parquet</td>" in found._repr_html_()
    assert plan.steps_of_rows(found.places(), batch_size=3).steps.tolist() == [1, 1, 1]
    assert plan.steps_of_rows([], batch_size=3).rows.tolist() == []


def test_steps_of_rows_finds_a_row_twice_if_its_file_is_listed_twice() -> None:
    plan = dataclasses.replace(plan_of([4, 2]), inventory=Inventory.of_rows([4, 2]).repeated([2]))
    found = plan.steps_of_rows([("part-00000.parquet", 1, 1)], batch_size=1)
    assert found.rows.tolist() == [0, 0]
    assert repr(found).startswith("RowSteps(1 row in 2 steps of epoch 0, from step ")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda plan: plan.rows_of_step(-1, batch_size=2), "step must be an int of at least 0, got -1"),
        (lambda plan: plan.rows_of_step(0, batch_size=2, rank=2), "rank must be below 2, the number of ranks"),
        (lambda plan: plan.rows_of_step(0, batch_size=0), "batch_size must be an int of at least 1, got 0"),
        (
            lambda plan: plan.rows_of_step(0, batch_size=99),
            "step must be a step of the plan, got 0, but the plan has no steps with batch_size=99",
        ),
        (
            lambda plan: plan.steps_of_rows([("x", 0, 0)], batch_size=2),
            r"rows must name rows of the dataset, got \('x'",
        ),
        (lambda plan: plan.steps_of_rows([10], batch_size=2), "row numbers from 0 to 9, got"),
        (lambda plan: plan.steps_of_rows(["x"], batch_size=2), "row numbers from 0 to 9, got"),
        (lambda plan: plan.steps_of_rows([(1, 2)], batch_size=2), r"rows must have items \(file, row group, row\)"),
        (
            lambda plan: plan.steps_of_rows([0], batch_size=2, after=Cursor.of_epoch(2)),
            "epoch must be at least 2, the epoch of the argument `after`, got 0",
        ),
    ],
)
def test_rows_of_step_and_steps_of_rows_invalid_arguments_raise(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call(plan_of([5, 5], 2, last_batch=LastBatch.DROP))


def test_pickled_plan_excludes_the_orders_cached_by_rows_of_step() -> None:
    plan = plan_of([1000] * 100)
    before = len(pickle.dumps(plan))
    expected = plan.rows_of_step(3, batch_size=8).numbers.tolist()
    copied = pickle.dumps(plan)
    assert len(copied) < before + 2000  # cached counts and fingerprints
    again = pickle.loads(copied).rows_of_step(3, batch_size=8)  # noqa: S301 - our own bytes
    assert again.numbers.tolist() == expected


@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_rows_of_step_sorts_a_million_row_groups_once_per_epoch(
    monkeypatch: pytest.MonkeyPatch, shuffle_rows: bool
) -> None:
    """Row groups are ordered once per epoch; a step then only hashes the rows of its own blocks."""
    sorted_groups, permuted_rows, hashed_rows = [], [], []
    line_of_groups, permutation, numbers_at = line.line_of_groups, mix.hashed_permutation, PartialSort.numbers_at

    def counted_line(rows: Any, *args: Any, **options: Any) -> Any:
        sorted_groups.append(len(rows))
        return line_of_groups(rows, *args, **options)

    def counted_permutation(state: int, length: int, *args: Any) -> Any:
        permuted_rows.append(length)
        return permutation(state, length, *args)

    def counted_numbers(sort: PartialSort, states: Any, lengths: Any, *args: Any) -> Any:
        hashed_rows.append(int(lengths.sum()))
        return numbers_at(sort, states, lengths, *args)

    order = Order(3, True, shuffle_rows, lanes=96 if shuffle_rows else 8, block_rows=100)
    plan = plan_of(np.full(1_000_000, 100), 8, order, epochs=2)
    monkeypatch.setattr(orders, "line_of_groups", counted_line)
    for module in (line, orders):
        monkeypatch.setattr(module, "hashed_permutation", counted_permutation)
    monkeypatch.setattr(PartialSort, "numbers_at", counted_numbers)
    first = plan.rows_of_step(340, batch_size=64)
    following = [plan.rows_of_step(step, batch_size=64) for step in range(341, 361)]
    found = plan.steps_of_rows(first.numbers, batch_size=64)
    assert set(found.steps.tolist()) == {340}
    assert [len(rows) for rows in following] == [512] * 20
    assert sorted_groups == [1_000_000]
    assert sum(permuted_rows) == (0 if shuffle_rows else 1_000_000)
    blocks_of_step = 2 * 96
    assert [rows <= blocks_of_step * 200 for rows in hashed_rows] == ([True] * 21 if shuffle_rows else [])


@pytest.mark.parametrize("last_batch", LastBatch)
@pytest.mark.parametrize("after", [Cursor(), Cursor(2, 30, 1)])
def test_rows_of_step_of_a_far_epoch_equals_starting_from_that_epoch(last_batch: LastBatch, after: Cursor) -> None:
    plan, size = plan_of([7] * 9, 3, last_batch=last_batch), 4
    before = plan.steps_left(size, dataclasses.replace(after, first_epoch=after.epoch)) or 0
    epochs, step = 10**7, 3
    far = plan.rows_of_step(before + epochs * plan.steps_per_epoch(size) + step, batch_size=size, after=after)
    near = plan.rows_of_step(step, batch_size=size, after=Cursor.of_epoch(after.epoch + 1 + epochs))
    assert (far.epoch, far.step_of_epoch) == (after.epoch + 1 + epochs, step)
    np.testing.assert_array_equal(far.numbers, near.numbers)
    found = plan.steps_of_rows(far.numbers, batch_size=size, epoch=far.epoch, after=after)
    assert far.step in found.steps
