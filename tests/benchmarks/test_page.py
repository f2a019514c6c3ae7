"""Tests of the benchmark page and chart, which are generated from results alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.bench.chart import shares_of
from benchmarks.bench.page import page_of, report_of


@pytest.mark.parametrize(
    ("write", "figures"),
    [(page_of, "| petastore | 3,900 | 0.98 |"), (report_of, "| petastore | 3,900 | 1,960 – 4,300 | 0.98 |")],
)
def test_benchmark_page_has_machine_tables_and_failures(
    images: dict[str, Any], write: Callable[[dict[str, Any]], str], figures: str
) -> None:
    page = write({"machine": {"CPU": "Abacus, 2 of 2"}, "workloads": {"images": images}})
    assert "* CPU: Abacus, 2 of 2\n" in page
    assert "\n## images\n" in page
    assert figures in page
    assert "2026-11-21 in 3 rounds of at least 4 s" in page
    assert "* Broken failed: ImportError: no &lt;module>" in page
    assert ("| petastore | images | shuffled | petastore 0.1 |" in page) == (write is report_of)


def test_benchmark_page_lists_workloads_in_a_fixed_order(images: dict[str, Any]) -> None:
    tabular = {**images, "workload": "tabular"}
    page = page_of({"machine": {}, "workloads": {"images": images, "tabular": tabular}})
    assert page.index("\n## tabular") < page.index("\n## images")


def test_benchmark_chart_shows_shares_of_the_upper_limit(images: dict[str, Any]) -> None:
    shares = shares_of(images)
    assert [name for name, _, _ in shares] == ["Petastorm", "Lance", "by hand", "petastore"]
    assert shares[-1][2] == pytest.approx(0.975)


def test_benchmark_chart_is_relative_to_the_best_library_without_a_limit(images: dict[str, Any]) -> None:
    del images["contenders"]["limit"]
    assert shares_of(images)[-1][2] == 1.0
