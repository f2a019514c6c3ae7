"""Tests of the plan laws: each law detects plans and mixtures that break it (mutation tests of the checks)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import pytest

from petastore.inventory import Inventory
from petastore.plan import Cursor, LastBatch, Order, Plan, ReadRequest, Shard
from petastore.plan.mixture.mixture import Batching, Mixture
from petastore.plan.order.grouped_rows import GroupedRows, Permutation, Runs
from petastore.plan.order.order import EpochOrder
from petastore.plan.order.visits import LaneRuns
from petastore.plan.plan import Span
from petastore.plan.report.feeds import Feeds
from petastore.testing.training import shards_of, train
from tests.laws import mixture_laws, plan_laws
from tests.laws.lines import assert_same_steps, lines_of

ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=6, block_rows=20)


class GivesARowTwice(Plan):
    """The last rank repeats its first row in place of its second."""

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
    """The order depends on the number of ranks."""

    def for_shard(self, shard: Shard) -> Self:
        order = dataclasses.replace(self.request.order, seed=shard.count)
        return dataclasses.replace(self, request=dataclasses.replace(self.request, shard=shard, order=order))


class BeginsAgain(Plan):
    """A state resumes at the start of its epoch."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        begin = None if after is None else Cursor(after.epoch, 0, after.first_epoch)
        return super().spans(batch_size, rows_per_span=rows_per_span, after=begin)


class ForgetsWhereLanesStand(Plan):
    """A state resumes with the right rows, but assigns them to ranks in reverse."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        shard = self.request.shard
        other = dataclasses.replace(shard, index=shard.count - 1 - shard.index) if after is not None else shard
        plan = Plan(self.inventory, dataclasses.replace(self.request, shard=other))
        return plan.spans(batch_size, rows_per_span=rows_per_span, after=after)


class PromisesMore(Plan):
    """The declared length is one batch too large."""

    def steps_per_epoch(self, batch_size: int) -> int:
        return super().steps_per_epoch(batch_size) + 1


def broken(kind: type[Plan], *, last_batch: LastBatch = LastBatch.EVEN, epochs: int = 2) -> Plan:
    inventory = Inventory.of_rows([30, 0, 41, 1, 17, 24])
    return kind(inventory, ReadRequest(("id",), ORDER, Shard(), epochs, last_batch))


def once(plan: Plan) -> None:
    plan_laws.check_every_row_once(shards_of(plan, 3), 5)


def equal(plan: Plan) -> None:
    plan_laws.check_equal_steps(shards_of(plan, 3), 5)


def same(plan: Plan) -> None:
    plan_laws.check_same_batches_for_any_ranks(plan, global_batch=12, ranks=[1, 2, 3, 5])


def resumes(plan: Plan) -> None:
    plan_laws.check_resume_after_every_batch(plan, 3, 5)


def log(plan: Plan) -> None:
    plan_laws.check_resume_with_others(plan, [(3, 5, 2), (2, 4, 3)])


def after_every_batch(plan: Plan) -> None:
    plan_laws.check_resume_with_others_after_every_batch(plan, (3, 5), (2, 4))


def interpreters(plan: Plan) -> None:
    plan_laws.check_interpreters_agree(plans_that_hash_text)


def plans_that_hash_text() -> list[Plan]:
    order = dataclasses.replace(ORDER, seed=hash("petastore"))
    return [Plan(Inventory.of_rows([30, 41]), ReadRequest(("id",), order))]


BREAKS: list[tuple[type[Plan], Callable[[Plan], None], str]] = [
    (GivesARowTwice, once, "read more than once"),
    (GivesARowTwice, same, "missing are"),
    (StopsEarly, equal, "training would hang"),
    (PromisesMore, equal, "but the plan has"),
    (KnowsRanks, same, "2 ranks with batches of 6"),
    (KnowsRanks, log, "3 ranks with batches of 5"),
    (BeginsAgain, resumes, "after step 0"),
    (BeginsAgain, log, "which is no global batch"),
    (BeginsAgain, after_every_batch, "which is no global batch"),
    (ForgetsWhereLanesStand, resumes, "others follow than would have"),
    (Plan, interpreters, "another interpreter"),
]


@pytest.mark.parametrize(("kind", "law", "message"), BREAKS, ids=lambda value: getattr(value, "__name__", ""))
def test_plan_laws_detect_a_broken_plan(kind: type[Plan], law: Callable[[Plan], None], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        law(broken(kind))


@pytest.mark.parametrize("law", [once, equal, same, resumes, log, after_every_batch])
@pytest.mark.parametrize("last_batch", LastBatch)
def test_plan_laws_accept_a_valid_plan(law: Callable[[Plan], None], last_batch: LastBatch) -> None:
    law(broken(Plan, last_batch=last_batch))


def test_plan_laws_detect_too_many_ranks() -> None:
    plans = shards_of(broken(Plan), 3)
    with pytest.raises(AssertionError, match="not refused"):
        plan_laws.check_too_few_rows_are_refused(plans, 5)


def test_plan_laws_check_that_only_selected_rows_are_read() -> None:
    inventory = Inventory.of_rows([30, 0, 41])
    selection = plan_laws.selection_of(inventory, seed=1, kept=1.0)
    assert 0 < selection.counts.sum() < 71
    request = ReadRequest(("id",), ORDER)
    plan_laws.check_every_row_once([Plan(inventory, request, selection)], 4)
    with pytest.raises(AssertionError, match="read, but not selected"):
        # a plan that ignores its selection, and reads all rows
        plan_laws.check_every_row_once([Other(inventory, request, selection)], 4)


class Other(Plan):
    """Reads the rows of the whole dataset, and ignores the selection."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        plan = Plan(self.inventory, self.request)
        return plan.spans(batch_size, rows_per_span=rows_per_span, after=after)


def test_plan_laws_report_the_first_step_with_wrong_rows() -> None:
    one = np.array([0, 0, 1]), np.array([3, 4, 5])
    assert_same_steps(one, (np.array([0, 1, 0]), np.array([4, 5, 3])), "same")
    with pytest.raises(AssertionError, match=r"here: step 1 has 1 rows where 2 are due; not due are \[\], missing are"):
        assert_same_steps(one, (np.array([0, 0, 1, 1]), np.array([3, 4, 5, 6])), "here")


class KeepsASourceBack(Mixture):
    """Repeats its first row at all turns of the first source."""

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Any]:
        for span in super().spans(batch_size, rows_per_span=rows_per_span, after=after):
            rows = np.where(span.groups == 0, 0, span.rows)
            yield dataclasses.replace(span, picked=GroupedRows(span.groups, rows, None))


@pytest.mark.parametrize("batching", ["mixed", "per_source"])
def test_plan_laws_detect_a_broken_mixture(batching: Batching) -> None:
    sources = [Plan(Inventory.of_rows([rows]), ReadRequest(("id",), ORDER)) for rows in (40, 60)]
    sound, bad = (kind(sources, [2, 3], batching=batching, epochs=2) for kind in (Mixture, KeepsASourceBack))
    mixture_laws.check_every_source_row_once(sound, 2, 4)
    plan_laws.check_resume_with_others(sound, [(3, 5, 2), (2, 4, 3)])
    with pytest.raises(AssertionError, match="source 0 repeats rows"):
        mixture_laws.check_every_source_row_once(bad, 2, 4)


def of_one(kind: type[Mixture], **asked: Any) -> Mixture:
    """Return a mixture of one source, of the given class."""
    source = Plan(Inventory.of_rows([30, 0, 41, 1, 17, 24]), ReadRequest(("id",), ORDER))
    return kind([source], [1], **{"epochs": 2, **asked})


class ChangesSpans(Mixture):
    """Base class of mixtures that change spans; `feeds` returns the unchanged result."""

    def feeds(self, batch_size: int, *, epoch: int = 0) -> Feeds:
        return of_one(Mixture).feeds(batch_size, epoch=epoch)

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        """Return the changed spans."""
        raise NotImplementedError

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        return self.changed(super().spans(batch_size, rows_per_span=rows_per_span, after=after))


class SwapsTwoRows(ChangesSpans):
    """The first two rows of a span are swapped."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        for span in spans:
            groups, rows = span.groups.copy(), span.rows.copy()
            groups[:2], rows[:2] = groups[1::-1].copy(), rows[1::-1].copy()
            yield dataclasses.replace(span, picked=GroupedRows(groups, rows, None))


class RepeatsARow(ChangesSpans):
    """The second row of a span repeats the first one."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        for span in spans:
            groups, rows = span.groups.copy(), span.rows.copy()
            groups[1:2], rows[1:2] = groups[:1], rows[:1]
            yield dataclasses.replace(span, picked=GroupedRows(groups, rows, None))


class LeavesASpanOut(ChangesSpans):
    """The second span is missing."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        return (span for number, span in enumerate(spans) if number != 1)


class StopsBefore(ChangesSpans):
    """Only the first span exists."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        return itertools.islice(spans, 1)


class NeverEnds(ChangesSpans):
    """The last span is repeated."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        for span in spans:
            yield span
        yield span


class KeepsRowGroups(ChangesSpans):
    """Row groups are never released."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        return (dataclasses.replace(span, release=()) for span in spans)


class ReadsInFileOrder(ChangesSpans):
    """Rows of a row group are announced in file order."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        return (dataclasses.replace(span, read_orders=(None,) * len(span.fetch)) for span in spans)


class CountsARowMore(ChangesSpans):
    """States count one consumed row too many."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        return (dataclasses.replace(span, consumed=span.consumed + 1) for span in spans)


class BeginsWithAnotherEpoch(ChangesSpans):
    """Cursors have another first epoch of the pass."""

    def changed(self, spans: Iterator[Span]) -> Iterator[Span]:
        return (dataclasses.replace(span, first_epoch=span.first_epoch + 1) for span in spans)


class PromisesMoreOfAMixture(Mixture):
    """The declared length is one batch too large."""

    def steps_per_epoch(self, batch_size: int) -> int:
        return super().steps_per_epoch(batch_size) + 1


class FedByOthers(Mixture):
    """`feeds` returns the result of another batch size."""

    def feeds(self, batch_size: int, *, epoch: int = 0) -> Feeds:
        return super().feeds(batch_size + 1, epoch=epoch)


class TakesMoreMemory(Mixture):
    """The declared memory is one byte larger than that of the plan."""

    def resident_bytes(self, *args: Any, **kwargs: Any) -> int:
        return super().resident_bytes(*args, **kwargs) + 1


BREAKS_OF_ONE: list[tuple[type[Mixture], dict[str, Any], str]] = [
    (SwapsTwoRows, {}, "of span 0 is"),
    (RepeatsARow, {"stop": "cycle", "epochs": None}, "(?s)rows is .* of the mixture"),
    (LeavesASpanOut, {}, "of span 1 is"),
    (StopsBefore, {}, "the mixture has 1 spans, and the plan more"),
    (NeverEnds, {}, "the plan has .* spans, and the mixture more"),
    (KeepsRowGroups, {}, "release of span"),
    (ReadsInFileOrder, {}, "read_orders of span 0"),
    (CountsARowMore, {}, "consumed of span 0"),
    (BeginsWithAnotherEpoch, {}, "cursors of span 0"),
    (PromisesMoreOfAMixture, {}, "steps.* is .* of the mixture"),
    (FedByOthers, {}, "(?s)is .* of the mixture, but .* of its plan"),
    (TakesMoreMemory, {}, "resident_bytes is .* of the mixture"),
]


@pytest.mark.parametrize(("kind", "asked", "message"), BREAKS_OF_ONE, ids=lambda value: getattr(value, "__name__", ""))
def test_plan_laws_detect_a_one_source_mixture_that_differs_from_its_plan(
    kind: type[Mixture], asked: dict[str, Any], message: str
) -> None:
    mixture_laws.check_one_source_is_its_plan(of_one(Mixture, **asked), 8, rows_per_span=16)
    with pytest.raises(AssertionError, match=message):
        mixture_laws.check_one_source_is_its_plan(of_one(kind, **asked), 8, rows_per_span=16)


class ChangesRuns(EpochOrder):
    """Looks up positions correctly, but finds other rows for runs of lanes."""

    def changed(self, found: GroupedRows) -> GroupedRows:
        """Return the changed rows."""
        raise NotImplementedError

    def by_lane(self, positions: Any, *, read_lanes: range | None = None) -> GroupedRows:
        found = super().by_lane(positions, read_lanes=read_lanes)
        return self.changed(found) if isinstance(positions, LaneRuns) else found


class FindsAnotherRow(ChangesRuns):
    """The last row is replaced by the first one."""

    def changed(self, found: GroupedRows) -> GroupedRows:
        groups, rows = found.groups.copy(), found.rows.copy()
        groups[-1], rows[-1] = groups[0], rows[0]
        return GroupedRows(groups, rows, found.permutation)


class FindsARowLess(ChangesRuns):
    """The last row is missing."""

    def changed(self, found: GroupedRows) -> GroupedRows:
        return GroupedRows(found.groups[:-1], found.rows[:-1], None)


class ForgetsBatches(ChangesRuns):
    """Rows are in the order of lanes instead of batches."""

    def changed(self, found: GroupedRows) -> GroupedRows:
        return found.permuted(None)


class CountsRunsFromElsewhere(ChangesRuns):
    """The rows are right, but runs declare another first row in their read order."""

    def changed(self, found: GroupedRows) -> GroupedRows:
        assert found.runs is not None
        return GroupedRows.of_runs(dataclasses.replace(found.runs, firsts=found.runs.firsts - 1), found.permutation)


class TellsOfTooManyRowGroups(ChangesRuns):
    """An empty run names a row group that has no rows."""

    def changed(self, found: GroupedRows) -> GroupedRows:
        runs = found.runs
        assert runs is not None
        arrays = (np.append(each, last) for each, last in ((runs.groups, 1), (runs.firsts, 0), (runs.counts, 0)))
        groups, firsts, counts = (each.astype(one.dtype) for each, one in zip(arrays, _arrays_of(runs), strict=True))
        return GroupedRows.of_runs(Runs(groups, firsts, counts, runs.rows), found.permutation)


def _arrays_of(runs: Runs) -> tuple[Any, ...]:
    return runs.groups, runs.firsts, runs.counts


class CutsElsewhere(GroupedRows):
    """All slices except the last one end one row too early."""

    def cut(self, borders: Any) -> list[GroupedRows]:
        return super().cut(np.array([0, *(borders[1:-1] - 1), borders[-1]]))


class IsCutElsewhere(ChangesRuns):
    """All rows are right, but slices of them are wrong."""

    def changed(self, found: GroupedRows) -> GroupedRows:
        permutation = None if found.permutation is None else Permutation(found.permutation.targets)
        return CutsElsewhere(found.groups, found.rows, permutation)


BREAKS_OF_RUNS: list[tuple[type[ChangesRuns], str]] = [
    (FindsAnotherRow, "row .* is another one than stands at its position"),
    (FindsARowLess, "row 0 of .* is another one"),
    (ForgetsBatches, "row .* is another one than stands at its position"),
    (CountsRunsFromElsewhere, "runs do not follow their read order"),
    (TellsOfTooManyRowGroups, "row groups are told of that no row is of"),
    (IsCutElsewhere, "row .* is another one than stands at its position"),
]


@pytest.mark.parametrize(("kind", "message"), BREAKS_OF_RUNS, ids=lambda value: getattr(value, "__name__", ""))
def test_plan_laws_detect_runs_that_differ_from_positions(kind: type[ChangesRuns], message: str) -> None:
    rows = np.array([60, 0, 60, 60])  # so that each lane is one row group, and rows are represented as runs
    order = dataclasses.replace(ORDER, lanes=3, block_rows=10)
    runs, _ = LaneRuns.between(np.array([0, 9, 18, 40]), lanes=3, own=range(3))
    plan_laws.check_runs_are_their_positions(EpochOrder(rows, order, 0), runs, runs.positions())
    with pytest.raises(AssertionError, match=message):
        plan_laws.check_runs_are_their_positions(kind(rows, order, 0), runs, runs.positions())


def test_rows_of_all_lanes_equal_the_rows_read_by_one_rank() -> None:
    plan = broken(Plan)
    lines = lines_of(plan).lines
    training = train(shards_of(plan, 1), 1)
    assert np.concatenate(lines).tolist() == training.rows.tolist()
    assert [len(line) for line in lines] == [plan.num_rows] * 2
