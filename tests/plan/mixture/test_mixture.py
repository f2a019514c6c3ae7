"""Tests of `Mixture`: laws of mixtures, invalid mixtures, and orders that must not change between versions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.inventory import Inventory
from petastore.plan import Cursor, LastBatch, Order, Plan, ReadRequest, Selection, Shard
from petastore.plan.cursor import MixedCursor
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.state import dump_state, resume
from tests.laws import mixture_laws as laws
from tests.laws.plan_laws import check_resume_after_every_batch, check_row_groups_at_hand
from tests.tier import sized

GOLDEN = Path(__file__).parents[1] / "golden" / "mixtures.json"
ORDER = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=6, block_rows=20)

few = settings(max_examples=sized(full=20, quick=5), deadline=None)


def source(*rows: int, order: Order = ORDER, **kwargs: Any) -> Plan:
    return Plan(Inventory.of_rows(rows), ReadRequest(("id",), order, **kwargs))


def mixture_of(*sources: Plan, weights: Any = None, **kwargs: Any) -> Mixture:
    return Mixture(sources, weights or [1] * len(sources), **kwargs)


@st.composite
def shared(
    draw: Any,
    mixtures: st.SearchStrategy[Mixture],
    ranks: Sequence[int],
    *,
    is_row_of_each_source_needed: bool = False,
) -> tuple[Mixture, int]:
    """Draw mixtures, and a number of ranks that is small enough for each batch."""
    mixture = draw(mixtures)
    is_limited = is_row_of_each_source_needed or mixture.batching == "per_source"
    most = min(mixture.rows_per_source) if is_limited else max(ranks)
    return mixture, draw(st.sampled_from([count for count in ranks if count <= most]))


@few
@given(laws.mixtures(stops=("first_exhausted", "all_exhausted", "cycle")))
def test_mixture_proportions_are_exact_after_each_cycle_of_weights(mixture: Mixture) -> None:
    laws.check_exact_proportions(mixture)


@few
@given(shared(laws.mixtures(), [1, 2, 3, 5]), st.integers(1, 9))
def test_mixture_repeats_a_source_only_after_all_its_rows(drawn: tuple[Mixture, int], batch_size: int) -> None:
    mixture, ranks = drawn
    laws.check_every_source_row_once(mixture, ranks, batch_size)


@few
@given(shared(laws.mixtures(tails=tuple(LastBatch)), [1, 2, 3, 5, 8]), st.integers(1, 9))
def test_mixture_ranks_have_equal_steps_and_shares(drawn: tuple[Mixture, int], batch_size: int) -> None:
    mixture, ranks = drawn
    laws.check_steps_and_shares(mixture, ranks, batch_size)


@few
@given(laws.mixtures(tails=(LastBatch.EVEN, LastBatch.DROP, LastBatch.PAD)), st.sampled_from([24, 48]))
def test_mixture_global_batches_do_not_depend_on_ranks(mixture: Mixture, global_batch: int) -> None:
    even = mixture.request.last_batch is LastBatch.EVEN
    rows = mixture.rows_per_source if mixture.batching == "per_source" else [mixture.num_rows]
    # The last batch also has remaining rows that are fewer than the ranks, so it depends on the number of ranks.
    left = [count % global_batch or global_batch for count in rows]
    ranks = [count for count in (1, 2, 3, 4, 6, 8, 12) if not even or count <= min(left)]
    laws.check_same_batches_for_any_ranks(mixture, global_batch=global_batch, ranks=ranks)


@settings(max_examples=sized(full=8, quick=2), deadline=None)
@given(shared(laws.mixtures(tails=tuple(LastBatch)), [1, 3]), st.integers(3, 9))
def test_mixture_resumes_after_any_step(drawn: tuple[Mixture, int], batch_size: int) -> None:
    mixture, ranks = drawn
    check_resume_after_every_batch(mixture, ranks, batch_size)


@few
@given(
    laws.mixtures().filter(lambda mixture: mixture.batching == "mixed" or min(mixture.rows_per_source) >= 4),
    st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=5),
    st.sampled_from([1, 2, 4]),
)
def test_mixture_ranks_and_batch_size_may_change_at_any_step(
    mixture: Mixture, log: list[tuple[int, int, int]], last_ranks: int
) -> None:
    """The log has ranks, batch size and steps of each part; other ranks read the rest of two epochs."""
    cursor, seen = Cursor(), []
    for ranks, batch_size, most in [*log, (last_ranks, 3, None)]:
        plan, cursor = resume(mixture, json.loads(json.dumps(dump_state(mixture, cursor))))
        for step in laws.steps_of(plan, ranks, batch_size, after=cursor, most=most):
            seen += [(step.epoch, *row) for row in step.rows]
            cursor = step.cursor
    whole = [(step.epoch, *row) for step in laws.steps_of(mixture, 1, 7) for row in step.rows]
    assert sorted(seen) == sorted(whole)


@few
@given(shared(laws.mixtures(tails=tuple(LastBatch)), [1, 2, 3, 8]), st.integers(1, 20))
def test_mixture_keeps_row_groups_in_memory_until_their_last_row_is_read(
    drawn: tuple[Mixture, int], batch_size: int
) -> None:
    mixture, ranks = drawn
    for rank in range(ranks):
        check_row_groups_at_hand(mixture.for_shard(Shard(rank, ranks)), batch_size)


@few
@given(laws.mixtures(), st.integers(1, 9), st.integers(1, 200))
def test_mixture_batches_do_not_depend_on_the_number_of_rows_per_span(
    mixture: Mixture, batch_size: int, rows_per_span: int
) -> None:
    one_by_one, many = (
        [
            list(zip(span.groups[first:stop].tolist(), span.rows[first:stop].tolist(), strict=True))
            for span in mixture.spans(batch_size, rows_per_span=rows)
            for first, stop in zip(span.offsets[:-1].tolist(), span.offsets[1:].tolist(), strict=True)
        ]
        for rows in (1, rows_per_span)
    )
    assert one_by_one == many


@few
@given(
    shared(
        laws.mixtures(tails=tuple(LastBatch)) | laws.uneven_mixtures(max_sources=4, max_groups=20),
        [1, 2, 3, 8],
        is_row_of_each_source_needed=True,
    ),
    st.integers(1, 40),
    st.sampled_from([16, 4096]),
)
def test_mixture_runs_are_rows_of_one_row_group_in_read_order(
    drawn: tuple[Mixture, int], batch_size: int, rows_per_span: int
) -> None:
    mixture, ranks = drawn
    for rank in range(ranks):
        announced: dict[int, Any] = {}
        for span in mixture.for_shard(Shard(rank, ranks)).spans(batch_size, rows_per_span=rows_per_span):
            announced |= dict(zip(span.fetch, span.read_orders, strict=True))
            check_runs(span.picked, announced)


def check_runs(picked: GroupedRows, announced: dict[int, Any]) -> int:
    runs = picked.runs
    if runs is None:
        return 0
    assert (runs.counts > 0).all()
    found: list[int] = []
    for group, first, count in zip(runs.groups.tolist(), runs.firsts.tolist(), runs.counts.tolist(), strict=True):
        rows = range(first, first + count)
        found += rows if announced[group] is None else announced[group][rows.start : rows.stop].tolist()
    assert found == picked.rows.tolist()
    return runs.num_rows


@pytest.mark.parametrize("shuffle", [False, True])
def test_mixture_plans_most_rows_as_runs(shuffle: bool) -> None:
    order = dataclasses.replace(ORDER, lanes=4 if shuffle else 1, shuffle_rows=shuffle, block_rows=1)
    mixture = mixture_of(*[source(*[500] * 12, order=order) for _ in range(3)], weights=[2, 1, 1], epochs=2)
    announced: dict[int, Any] = {}
    rows = 0
    for span in mixture.spans(64, rows_per_span=2048):
        announced |= dict(zip(span.fetch, span.read_orders, strict=True))
        rows += check_runs(span.picked, announced)
    assert rows > mixture.num_rows


def test_mixture_reads_row_groups_about_once_per_epoch() -> None:
    order = dataclasses.replace(ORDER, lanes=48, block_rows=400)
    mixture = mixture_of(*[source(*[100] * 96, order=order) for _ in range(4)], weights=[1, 2, 3, 1])
    for ranks in (1, 2, 4, 8, 16):
        plans = [mixture.for_shard(Shard(rank, ranks)) for rank in range(ranks)]
        reads = sum(len(span.fetch) for plan in plans for span in plan.spans(32, rows_per_span=4096))
        # row groups of the exhausted source, and those that an epoch reads of the other sources
        touched = {group for plan in plans for span in plan.spans(32, rows_per_span=4096) for group in span.fetch}
        assert reads <= 1.05 * len(touched) + 4 * ranks


def test_mixture_fetches_a_row_group_again_when_its_source_wraps() -> None:
    order = dataclasses.replace(ORDER, lanes=1)
    mixture = mixture_of(*[source(*[20] * 10, order=order, last_batch=LastBatch.WRAP) for _ in range(2)])
    turns: dict[int, list[list[int]]] = {}
    for span in mixture.spans(64, rows_per_span=64):
        for group, of_group in zip(span.fetch, span.read_orders, strict=True):
            assert of_group is not None
            turns.setdefault(group, []).append(of_group.tolist())
    assert any(len(times) == 2 for times in turns.values())
    assert all(times[0] == times[-1] for times in turns.values())
    check_row_groups_at_hand(mixture, 64)


def test_mixture_ranks_have_sources_in_proportion() -> None:
    mixture = mixture_of(*[source(*[500] * 20) for _ in range(3)], weights=[5, 2, 1])
    for rank in range(3):
        plan = mixture.for_shard(Shard(rank, 3))
        groups = np.concatenate([span.groups for span in plan.spans(16, rows_per_span=512)])
        shares = np.bincount(np.searchsorted(mixture.first_groups, groups, side="right") - 1) / len(groups)
        assert np.abs(shares - np.array([5, 2, 1]) / 8).max() < 0.002


def test_stop_first_exhausted_ends_with_the_first_source() -> None:
    mixture = mixture_of(source(30), source(1000), weights=[1, 3])
    assert mixture.rows_per_source[0] == 30
    assert mixture.num_rows == pytest.approx(120, abs=3)


def test_stop_all_exhausted_ends_with_the_last_source() -> None:
    mixture = mixture_of(source(30), source(90), weights=[1, 1], stop="all_exhausted", epochs=2)
    assert mixture.rows_per_source[1] == 90
    assert mixture.rows_per_source[0] in (89, 90, 91)


def test_source_with_several_epochs_is_exhausted_after_them() -> None:
    mixture = mixture_of(source(30, epochs=3), source(1000, epochs=None))
    assert mixture.rows_per_source[0] == 90
    assert mixture.rows_per_source[1] in (89, 90, 91)


def test_stop_cycle_is_endless_with_full_batches() -> None:
    mixture = mixture_of(source(13), source(40), stop="cycle", epochs=None)
    for batching in ("mixed", "per_source"):
        endless = dataclasses.replace(mixture, batching=batching)
        steps = laws.steps_of(endless, 2, 5, most=200)
        assert all(len(rank) == 5 for step in steps for rank in step.ranks)
        assert {step.epoch for step in steps} == {0}
    assert mixture.steps_per_epoch(5) == -(-mixture.num_rows // 5)
    assert mixture.rows_per_source[1] == 40


def test_stop_cycle_restarts_in_another_order() -> None:
    mixture = mixture_of(source(40), source(40), stop="cycle", epochs=None)
    passes = [laws.steps_of(mixture, 1, 8, after=Cursor(epoch, 0, epoch), most=10) for epoch in (0, 1, 2)]
    assert len({json.dumps([step.rows for step in steps]) for steps in passes}) == 3


def test_mixture_sources_are_reshuffled_in_each_epoch() -> None:
    mixture = mixture_of(source(40), source(80), stop="all_exhausted")
    rows = [row for step in laws.steps_of(mixture, 1, 1) for number, row in step.rows if number == 0]
    assert sorted(rows[:40]) == sorted(rows[40:80]) == list(range(40))
    assert rows[:40] != rows[40:80]


def test_next_pass_of_a_mixture_begins_a_new_epoch_only_after_rows_were_read() -> None:
    mixture = mixture_of(source(10), source(20))
    begin = Cursor.of_epoch(0)
    after_a_batch = laws.steps_of(mixture, 1, 3)[0].cursor
    assert [mixture.next_pass(cursor) for cursor in (begin, after_a_batch)] == [begin, Cursor.of_epoch(1)]


def test_mixture_of_one_source_has_its_rows() -> None:
    mixture = mixture_of(source(30, 0, 17), epochs=2)
    steps = laws.steps_of(mixture, 2, 4)
    for epoch in range(2):
        assert sorted(row for step in steps if step.epoch == epoch for _, row in step.rows) == list(range(47))


def test_mixture_contains_only_selected_rows() -> None:
    chosen = np.arange(60) % 3 == 0
    plan = dataclasses.replace(source(60), selection=Selection(np.array([20]), {0: chosen}))
    mixture = mixture_of(plan, source(500), weights=[1, 2])
    rows = [row for step in laws.steps_of(mixture, 2, 4) for number, row in step.rows if number == 0]
    assert sorted(rows) == list(range(0, 60, 3))


@pytest.mark.parametrize("batching", ["mixed", "per_source"])
def test_mixture_of_many_sources_keeps_proportions(batching: str) -> None:
    mixture = mixture_of(*[source(10 + n, order=ORDER) for n in range(40)], batching=batching, stop="all_exhausted")
    laws.check_every_source_row_once(mixture, 2, 8)
    laws.check_exact_proportions(mixture, periods=3)


def test_batching_per_source_has_one_source_per_step_on_all_ranks() -> None:
    mixture = mixture_of(source(200), source(300), weights=[2, 3], batching="per_source")
    steps = laws.steps_of(mixture, 3, 8)
    assert sum(len(step.rows) for step in steps) == mixture.num_rows
    for step in steps:
        assert len({number for number, _ in step.rows}) == 1


def test_batching_per_source_does_not_repeat_a_pattern_of_sources() -> None:
    mixture = mixture_of(*[source(5000) for _ in range(2)])
    sources = [step.rows[0][0] for step in laws.steps_of(mixture, 1, 1, most=500)]
    for beat in range(1, 50):
        assert sources[:400] != sources[beat : 400 + beat]


def test_mixture_seed_changes_the_order_and_not_the_data_fingerprint() -> None:
    first, other = (mixture_of(source(300), source(500), weights=[2, 1], seed=seed) for seed in (1, 2))
    batches = [[step.rows for step in laws.steps_of(mixture, 1, 9)] for mixture in (first, other)]
    assert batches[0] != batches[1]
    assert first.fingerprint != other.fingerprint
    assert first.data_fingerprint == other.data_fingerprint


@pytest.mark.parametrize("golden", json.loads(GOLDEN.read_text()), ids=lambda golden: golden["name"])
def test_mixture_order_is_unchanged_between_versions(golden: dict[str, Any]) -> None:
    """Users resume training runs of older releases, so these batches must never change."""
    sources = [source(*rows, order=dataclasses.replace(ORDER, seed=seed)) for seed, rows in golden["sources"]]
    mixture = Mixture(sources, golden["weights"], stop=golden["stop"], batching=golden["batching"], seed=11)
    assert [[list(row) for row in step.rows] for step in laws.steps_of(mixture, 1, 8, most=5)] == golden["batches"]


def test_mixture_state_is_small() -> None:
    order = dataclasses.replace(ORDER, seed=2**63 - 1, lanes=48, block_rows=65_536)
    mixture = mixture_of(*[source(10**9, order=order) for _ in range(4)], batching="per_source", seed=2**63 - 1)
    cursor = MixedCursor(3, 10**9, 0, (250_000_000,) * 4)
    assert len(json.dumps(dump_state(mixture, cursor))) < 640


def test_mixture_state_overrides_parameters_left_at_their_defaults() -> None:
    chosen = frozenset({"seed", "lanes"})
    mixture = mixture_of(source(90, chosen=chosen), source(90), seed=5, chosen=frozenset({"seed"}))
    drawn = dataclasses.replace(ORDER, seed=99, lanes=3)
    other = mixture_of(source(90, order=drawn, chosen=chosen), source(90), seed=6, chosen=frozenset({"seed"}))
    plan, cursor = resume(other, dump_state(mixture, Cursor(0, 8)))
    assert plan.fingerprint == mixture.fingerprint
    assert cursor == Cursor(0, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [1, 2]}, "weights"),
        ({"stop": "all_exhausted"}, "stop"),
        ({"batching": "per_source"}, "batching"),
        ({"seed": 3}, "seed"),
        ({"sources": [source(90), source(91)]}, "another dataset"),
        ({"sources": [source(90), source(90, order=dataclasses.replace(ORDER, lanes=2))]}, "lanes"),
    ],
    ids=str,
)
def test_mixture_state_of_another_mixture_raises(change: dict[str, Any], message: str) -> None:
    mixture = mixture_of(source(90), source(90))
    with pytest.raises(InvalidArgumentError, match=message):
        resume(dataclasses.replace(mixture, **change), dump_state(mixture, Cursor(0, 8)))


def test_states_of_mixtures_and_of_datasets_are_distinguished() -> None:
    mixture, plan = mixture_of(source(90), source(90)), source(90)
    with pytest.raises(
        InvalidArgumentError, match="the state must be of a mixture, which is read now, got a state of a single dataset"
    ):
        resume(mixture, dump_state(plan, Cursor()))
    with pytest.raises(
        InvalidArgumentError, match="the state must be of a single dataset, which is read now, got a state of a mixture"
    ):
        resume(plan, dump_state(mixture, Cursor()))


@pytest.mark.parametrize(
    "damage",
    [
        {"mixture": {}},
        {"mixture": None},
        {"position": 10**9},
        {"taken": None},
        {"taken": [1]},
        {"taken": [-8, 16]},
        {"taken": [8, 1]},
        {"taken": "88"},
    ],
    ids=str,
)
def test_damaged_mixture_state_raises(damage: dict[str, Any]) -> None:
    mixture = mixture_of(source(90), source(90), batching="per_source")
    cursor = laws.steps_of(mixture, 1, 8, most=1)[0].cursor
    with pytest.raises(InvalidArgumentError):
        resume(mixture, {**dump_state(mixture, cursor), **damage})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": [1]}, r"weights must be one number per source \(2\), got 1"),
        (
            {"weights": [1, 0]},
            r"weights must be finite numbers above 0, got 0 for source 1\. Leave out sources that are not to",
        ),
        (
            {"weights": [1, float("nan")]},
            r"weights must be finite numbers above 0, got nan for source 1\. Leave out sources that are not",
        ),
        ({"stop": "never"}, "'first_exhausted', 'all_exhausted', 'cycle'"),
        ({"batching": "both"}, "'mixed', 'per_source'"),
        ({"seed": 1.5}, "seed"),
        ({"epochs": 0}, "num_epochs"),
        ({"stop": "cycle"}, "num_epochs must be None with stop='cycle', which never ends, got 1"),
        (
            {"weights": [1000, 1]},
            r"weights must give each source at least one row per epoch, got .* for source 1, which gives none of 20",
        ),
    ],
    ids=str,
)
def test_invalid_mixtures_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        mixture_of(source(20), source(20), **arguments)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (source(9, shard=Shard(0, 2)), "shard"),
        (source(9, last_batch=LastBatch.PAD), "last_batch"),
    ],
)
def test_incompatible_mixture_sources_raise(second: Plan, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"sources must be planned with the same {message}, got "):
        mixture_of(source(9), second)


def test_endless_mixture_sources_raise_for_an_unreachable_stop() -> None:
    endless = source(9, epochs=None)
    with pytest.raises(
        InvalidArgumentError, match=r"stop must be 'cycle' if all sources are endless .*, got 'first_exhausted'"
    ):
        mixture_of(endless, endless)
    with pytest.raises(
        InvalidArgumentError,
        match=r"stop must not be 'all_exhausted' if a source is endless .*, got source 1, which is endless",
    ):
        mixture_of(source(9), endless, stop="all_exhausted")


def test_mixture_source_without_rows_raises() -> None:
    with pytest.raises(NoDataAvailableError, match="each source must have at least one row, got source 1 without rows"):
        mixture_of(source(9), source(0, 0))


def test_mixture_with_fewer_rows_than_ranks_raises_on_every_rank() -> None:
    mixture = mixture_of(source(3), source(3))
    for rank in range(7):
        with pytest.raises(NoDataAvailableError, match="7 ranks"):
            mixture.for_shard(Shard(rank, 7)).steps_per_epoch(2)


def test_mixture_row_groups_are_numbered_across_sources() -> None:
    mixture = mixture_of(source(5, 6), source(7, 8, 9))
    assert [mixture.unit(group).rows[1] for group in range(5)] == [5, 6, 7, 8, 9]
    assert [mixture.unit(group).row_group for group in range(5)] == [0, 1, 0, 1, 2]
    assert [mixture.unit(group).group for group in range(5)] == list(range(5))
    assert mixture.inventory.num_row_groups == 5


def test_assert_agreed_raises_for_different_weights() -> None:
    mixtures = [
        mixture_of(source(50, shard=Shard(rank, 2)), source(50, shard=Shard(rank, 2)), weights=[1, rank + 1])
        for rank in range(2)
    ]
    with pytest.raises(InvalidArgumentError, match=r"weights is \[1, 1\] on rank 0 and \[1, 2\] on rank 1"):
        mixtures[0].assert_agreed(lambda _: [mixture.facts() for mixture in mixtures])
    mixtures[1] = dataclasses.replace(mixtures[1], weights=[Fraction(1, 3), Fraction(1, 3)])
    mixtures[0].assert_agreed(lambda _: [mixture.facts() for mixture in mixtures])
