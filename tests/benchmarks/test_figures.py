"""Tests of benchmark figures: medians of runs, and ratios within a round."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from benchmarks.bench import figures
from benchmarks.bench.figures import Figure, best_of, figure_of, ratio_of, shortened


def test_figure_doctests_pass() -> None:
    assert doctest.testmod(figures) == doctest.TestResults(0, 6)


def test_figure_has_median_minimum_and_maximum() -> None:
    assert figure_of([{"x": 5.0}, {"x": 1.0}, {"x": 2.0}, {"x": 9.0}], "x") == Figure(3.5, 1.0, 9.0, 4)


def test_benchmark_runs_without_the_quantity_are_ignored() -> None:
    assert figure_of([{"error": "no"}, {"x": None}, {"x": 2.0}], "x") == Figure(2.0, 2.0, 2.0, 1)
    assert figure_of([{"error": "no"}], "x") is None


def test_benchmark_ratio_compares_runs_of_the_same_round() -> None:
    slow_second_round = [{"round": 0, "rate": 10.0}, {"round": 1, "rate": 1.0}]
    others = [{"round": 1, "rate": 2.0}, {"round": 0, "rate": 20.0}]
    assert ratio_of(slow_second_round, others, "rate") == Figure(0.5, 0.5, 0.5, 2)


def test_benchmark_round_with_a_failure_has_no_ratio() -> None:
    ours: list[dict[str, Any]] = [{"round": 0, "rate": 10.0}, {"round": 1, "error": "no"}]
    assert ratio_of(ours, [{"round": 1, "rate": 2.0}], "rate") is None


def test_best_library_has_the_highest_median() -> None:
    assert best_of({"a": Figure(1.0, 0.0, 9.0, 3), "b": None, "c": Figure(2.0, 2.0, 2.0, 3)}) == "c"
    assert best_of({"b": None}) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(13_412_345.0, "13,400,000"), (999.6, "1,000"), (27.31, "27.3"), (1.005, "1.00"), (0.0123, "0.0123"), (0.0, "0")],
)
def test_benchmark_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert shortened(value) == text
