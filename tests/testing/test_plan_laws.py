"""The laws find plans that break them: a law that nothing can break says nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from petastore.inventory import Inventory
from petastore.plan import Cursor, Order, Plan, ReadRequest, Shard, Tail
from petastore.plan.mixture.mixture import Batching, Mixture
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.plan import Span
from petastore.testing import mixture_laws, plan_laws
from petastore.testing.training import assert_same_steps, lines_of, shards_of, train

ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=6, block_rows=20)


class GivesARowTwice(Plan):
    """The last rank is given its first row in place of its second."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        for span in super().spans(batch_size, rows_per_span=rows_per_span, after=after):
            rows, groups = span.rows.copy(), span.groups.copy()
            if self.request.shard.index == self.request.shard.count - 1:
                rows[1:2], groups[1:2] = rows[:1], groups[:1]
            yield dataclasses.replace(span, picked=GroupedRows(groups, rows, None))


class StopsEarly(Plan):
    """The last rank has fewer batches than the others."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        spans = list(super().spans(batch_size, rows_per_span=rows_per_span, after=after))
        yield from spans[: -1 if self.request.shard.index else None]


class KnowsRanks(Plan):
    """The order depends on how many ranks there are."""

    def for_shard(self, shard: Shard) -> Plan:
        order = dataclasses.replace(self.request.order, seed=shard.count)
        return dataclasses.replace(self, request=dataclasses.replace(self.request, shard=shard, order=order))


class BeginsAgain(Plan):
    """A state goes on with the epoch that it was taken in, from its beginning."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        begin = None if after is None else Cursor(after.epoch, 0, after.first_epoch)
        return super().spans(batch_size, rows_per_span=rows_per_span, after=begin)


class ForgetsWhereLanesStand(Plan):
    """A state goes on with the right rows, but gives them to ranks the other way round."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        shard = self.request.shard
        other = dataclasses.replace(shard, index=shard.count - 1 - shard.index) if after is not None else shard
        plan = Plan(self.inventory, dataclasses.replace(self.request, shard=other))
        return plan.spans(batch_size, rows_per_span=rows_per_span, after=after)


class PromisesMore(Plan):
    """Lengths promise a batch too many."""

    def steps_per_epoch(self, batch_size: int) -> int:
        return super().steps_per_epoch(batch_size) + 1


def broken(kind: type[Plan], *, tail: Tail = Tail.EVEN, epochs: int = 2) -> Plan:
    inventory = Inventory.of_rows([30, 0, 41, 1, 17, 24])
    return kind(inventory, ReadRequest(("id",), ORDER, Shard(), epochs, tail))


def once(plan: Plan) -> None:
    plan_laws.check_every_row_once(shards_of(plan, 3), 5)


def equal(plan: Plan) -> None:
    plan_laws.check_equal_steps(shards_of(plan, 3), 5)


def same(plan: Plan) -> None:
    plan_laws.check_same_batches_for_any_ranks(plan, global_batch=12, ranks=[1, 2, 3, 5])


def going_on(plan: Plan) -> None:
    plan_laws.check_going_on_after_every_batch(plan, 3, 5)


def log(plan: Plan) -> None:
    plan_laws.check_going_on_with_others(plan, [(3, 5, 2), (2, 4, 3)])


def after_every_batch(plan: Plan) -> None:
    plan_laws.check_going_on_with_others_after_every_batch(plan, (3, 5), (2, 4))


def interpreters(plan: Plan) -> None:
    plan_laws.check_interpreters_agree(plans_that_hash_text)


def plans_that_hash_text() -> list[Plan]:
    order = dataclasses.replace(ORDER, seed=hash("petastore"))
    return [Plan(Inventory.of_rows([30, 41]), ReadRequest(("id",), order))]


BREAKS: list[tuple[type[Plan], Callable[[Plan], None], str]] = [
    (GivesARowTwice, once, "given more than once"),
    (GivesARowTwice, same, "missing are"),
    (StopsEarly, equal, "training would hang"),
    (PromisesMore, equal, "lengths promise"),
    (KnowsRanks, same, "2 ranks with batches of 6"),
    (KnowsRanks, log, "3 ranks with batches of 5"),
    (BeginsAgain, going_on, "after step 0"),
    (BeginsAgain, log, "which is no global batch"),
    (BeginsAgain, after_every_batch, "which is no global batch"),
    (ForgetsWhereLanesStand, going_on, "others follow than would have"),
    (Plan, interpreters, "another interpreter"),
]


@pytest.mark.parametrize(("kind", "law", "message"), BREAKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_plan_is_found_and_told(kind: type[Plan], law: Callable[[Plan], None], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        law(broken(kind))


@pytest.mark.parametrize("law", [once, equal, same, going_on, log, after_every_batch])
@pytest.mark.parametrize("tail", Tail)
def test_a_sound_plan_is_left_alone(law: Callable[[Plan], None], tail: Tail) -> None:
    law(broken(Plan, tail=tail))


def test_ranks_that_are_not_refused_are_found() -> None:
    plans = shards_of(broken(Plan), 3)
    with pytest.raises(AssertionError, match="not refused"):
        plan_laws.check_too_few_rows_are_refused(plans, 5)


def test_a_selection_means_its_rows_and_no_others() -> None:
    inventory = Inventory.of_rows([30, 0, 41])
    selection = plan_laws.selection_of(inventory, seed=1, kept=1.0)
    assert 0 < selection.counts.sum() < 71
    request = ReadRequest(("id",), ORDER)
    plan_laws.check_every_row_once([Plan(inventory, request, selection)], 4)
    with pytest.raises(AssertionError, match="not meant"):
        # all rows are given under the name of a plan over some
        plan_laws.check_every_row_once([Other(inventory, request, selection)], 4)


class Other(Plan):
    """Gives the rows of the whole dataset, whatever is selected."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        plan = Plan(self.inventory, self.request)
        return plan.spans(batch_size, rows_per_span=rows_per_span, after=after)


def test_steps_that_differ_are_told_with_their_first_rows() -> None:
    one = np.array([0, 0, 1]), np.array([3, 4, 5])
    assert_same_steps(one, (np.array([0, 1, 0]), np.array([4, 5, 3])), "same")
    with pytest.raises(AssertionError, match=r"here: step 1 has 1 rows where 2 are due; not due are \[\], missing are"):
        assert_same_steps(one, (np.array([0, 0, 1, 1]), np.array([3, 4, 5, 6])), "here")


class KeepsASourceBack(Mixture):
    """Gives its first row again and again where the first source has its turn."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Any]:
        for span in super().spans(batch_size, rows_per_span=rows_per_span, after=after):
            rows = np.where(span.groups == 0, 0, span.rows)
            yield dataclasses.replace(span, picked=GroupedRows(span.groups, rows, None))


@pytest.mark.parametrize("batching", ["mixed", "per_source"])
def test_a_broken_mixture_is_found(batching: Batching) -> None:
    sources = [Plan(Inventory.of_rows([rows]), ReadRequest(("id",), ORDER)) for rows in (40, 60)]
    sound, bad = (kind(sources, [2, 3], batching=batching, epochs=2) for kind in (Mixture, KeepsASourceBack))
    mixture_laws.check_every_source_row_once(sound, 2, 4)
    plan_laws.check_going_on_with_others(sound, [(3, 5, 2), (2, 4, 3)])
    with pytest.raises(AssertionError, match="source 0 repeats rows"):
        mixture_laws.check_every_source_row_once(bad, 2, 4)


def test_lines_are_what_one_rank_is_given_row_by_row() -> None:
    plan = broken(Plan)
    lines = lines_of(plan).lines
    training = train(shards_of(plan, 1), 1)
    assert np.concatenate(lines).tolist() == training.rows.tolist()
    assert [len(line) for line in lines] == [plan.num_rows] * 2
