"""The page and the chart are made from results alone."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.bench.chart import shares_of
from benchmarks.bench.page import page_of


def test_a_page_has_machine_tables_failures_settings_and_versions(images: dict[str, Any]) -> None:
    page = page_of({"machine": {"CPU": "Abacus, 2 of 2"}, "workloads": {"images": images}})
    assert "* CPU: Abacus, 2 of 2\n" in page
    assert "\n## images\n" in page
    assert "| petastore | 3,900 | 1,960 – 4,300 | 0.98 |" in page
    assert "2026-11-21, 3 rounds of 4 s" in page
    assert "* Broken failed: ImportError: no &lt;module>" in page
    assert "| petastore | images | shuffled | petastore 0.1 |" in page


def test_workloads_stand_in_the_order_of_their_table(images: dict[str, Any]) -> None:
    tabular = {**images, "workload": "tabular"}
    page = page_of({"machine": {}, "workloads": {"images": images, "tabular": tabular}})
    assert page.index("\n## tabular") < page.index("\n## images")


def test_a_chart_has_shares_of_the_limit_with_the_best_last(images: dict[str, Any]) -> None:
    shares = shares_of(images)
    assert [name for name, _, _ in shares] == ["Petastorm", "Lance", "by hand", "petastore"]
    assert shares[-1][2] == pytest.approx(0.975)


def test_without_a_limit_the_best_is_the_whole(images: dict[str, Any]) -> None:
    del images["contenders"]["limit"]
    assert shares_of(images)[-1][2] == 1.0
