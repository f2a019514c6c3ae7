"""Tests of verdicts: medians of ratios within a round, which drift and slow rounds do not change."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.against import verdicts
from benchmarks.against.verdicts import OURS, QUANTITIES, THEIRS, judged, turns

CPU, RATE = QUANTITIES["cpu"], QUANTITIES["rate"]

costs = st.floats(1e-7, 1e3)
odd_rounds = st.integers(0, 4).map(lambda half: 2 * half + 1)


def runs_of(ours: list[float], theirs: list[float], key: str = "cpu_a_row") -> list[dict[str, Any]]:
    """Return two runs of each tree in each round, with equal values."""
    values = {OURS: ours, THEIRS: theirs}
    return [
        {"round": number, "tree": tree, key: values[tree][number]}
        for number in range(len(ours))
        for tree in turns(number)
    ]


def test_verdict_doctests_pass() -> None:
    assert doctest.testmod(verdicts) == doctest.TestResults(0, 5)


@given(st.lists(st.tuples(costs, costs), min_size=1, max_size=9), st.data())
def test_performance_ratio_does_not_depend_on_machine_speed_in_a_round(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    slower = data.draw(st.lists(st.floats(1.0, 50.0), min_size=len(pairs), max_size=len(pairs)))
    ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
    quiet = judged(runs_of(ours, theirs), CPU, 0.03).ratio
    busy = judged(
        runs_of(
            [one * times for one, times in zip(ours, slower, strict=True)],
            [other * times for other, times in zip(theirs, slower, strict=True)],
        ),
        CPU,
        0.03,
    ).ratio
    assert quiet is not None
    assert busy is not None
    assert busy.median == pytest.approx(quiet.median)


@given(st.floats(0.1, 10.0), st.floats(0.0, 1.0), odd_rounds)
def test_linear_drift_of_machine_speed_does_not_favor_a_source_tree(cost: float, drift: float, rounds: int) -> None:
    order = [(number, tree) for number in range(rounds) for tree in turns(number)]
    runs = [
        {"round": number, "tree": tree, "cpu_a_row": cost + drift * place} for place, (number, tree) in enumerate(order)
    ]
    verdict = judged(runs, CPU, 0.0)
    assert verdict.ratio is not None
    assert (verdict.ratio.least, verdict.ratio.most) == pytest.approx((1.0, 1.0))


@given(st.integers(1, 9).flatmap(lambda n: st.lists(st.tuples(costs, costs), min_size=2 * n - 1, max_size=2 * n - 1)))
def test_swapping_the_source_trees_inverts_the_performance_ratio(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
    there, back = judged(runs_of(ours, theirs), CPU, 0.03), judged(runs_of(theirs, ours), CPU, 0.03)
    assert there.ratio is not None
    assert back.ratio is not None
    assert there.ratio.median == pytest.approx(1 / back.ratio.median)


@given(st.floats(0.5, 2.0), st.floats(0.0, 0.5), st.floats(0.0, 0.5), st.sampled_from([CPU, RATE]))
def test_wider_regression_bound_accepts_all_results_of_a_narrower_one(
    ratio: float, bound: float, more: float, quantity: Any
) -> None:
    runs = runs_of([ratio], [1.0], quantity.key)
    assert judged(runs, quantity, bound + more).is_kept >= judged(runs, quantity, bound).is_kept


@pytest.mark.parametrize(
    ("quantity", "ratio", "kept"),
    [
        *[(CPU, 1.029, True), (CPU, 1.031, False), (CPU, 0.5, True)],
        *[(RATE, 0.971, True), (RATE, 0.969, False), (RATE, 2.0, True)],
    ],
)
def test_regression_verdict_depends_on_whether_higher_is_better(quantity: Any, ratio: float, kept: bool) -> None:
    assert judged(runs_of([ratio] * 3, [1.0] * 3, quantity.key), quantity, 0.03).is_kept is kept


def test_compared_figure_is_the_median_of_the_means_per_round() -> None:
    values = {0: (1.0, 3.0), 1: (8.0, 8.0), 2: (4.0, 6.0)}
    runs = [
        {"round": number, "tree": tree, "cpu_a_row": value / 1e6}
        for number, pair in values.items()
        for value in pair
        for tree in (OURS, THEIRS)
    ]
    verdict = judged(runs, CPU, 0.03)
    assert verdict.ours is not None
    assert (verdict.ours.median, verdict.ours.least, verdict.ours.most) == pytest.approx((5.0, 2.0, 8.0))
    assert verdict.noise == pytest.approx(0.5)  # median of 3/1, 8/8 and 6/4 in the rounds, less 1


def test_one_slow_round_does_not_count_as_a_regression() -> None:
    assert judged(runs_of([1.0, 1.0, 9.0, 1.0, 1.0], [1.0] * 5), CPU, 0.03).is_kept


def test_round_with_a_failed_run_is_left_out_of_the_ratio() -> None:
    runs = runs_of([2.0, 1.0], [1.0, 1.0])
    del runs[0]["cpu_a_row"]
    runs[0]["error"] = "no such column"
    verdict = judged(runs, CPU, 0.03)
    assert verdict.ratio is not None
    assert (verdict.ratio.median, verdict.ratio.runs) == (1.0, 1)


def test_bound_without_a_measurement_fails() -> None:
    verdict = judged([{"round": 0, "tree": THEIRS, "error": "no such column"}], CPU, 9.0)
    assert (verdict.ours, verdict.theirs, verdict.ratio, verdict.noise) == (None, None, None, None)
    assert not verdict.is_kept


@given(odd_rounds)
def test_compared_source_trees_run_equally_often_at_equal_mean_positions(rounds: int) -> None:
    for number in range(rounds):
        places = {tree: [place for place, turn in enumerate(turns(number)) if turn == tree] for tree in (OURS, THEIRS)}
        assert sum(places[OURS]) == sum(places[THEIRS]) == 3
    assert turns(0)[0] != turns(1)[0]
