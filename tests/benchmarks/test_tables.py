"""Tests of benchmark tables: ratios to the limit, to the faster Petastorm reader and to the best peer; failures."""

from __future__ import annotations

import doctest
from typing import Any

from benchmarks.bench import tables
from benchmarks.bench.tables import HEADER, aligned, failures, markdown, restlessness, rows_of_workload


def row_of(result: dict[str, Any], name: str) -> dict[str, str]:
    found = next(row for row in rows_of_workload(result) if row[0] == name)
    return dict(zip(HEADER, found, strict=True))


def test_table_doctests_pass() -> None:
    assert doctest.testmod(tables) == doctest.TestResults(0, 2)


def test_benchmark_table_shows_median_rate_range_and_ratios(images: dict[str, Any]) -> None:
    row = row_of(images, "petastore")
    assert (row["rows/s"], row["least – most"]) == ("3,900", "1,960 – 4,300")
    assert row["/ limit"] == "0.98"
    assert row["/ Petastorm"] == "2.60"
    assert row["/ best peer"] == "1.95"  # compared with Lance's 2,000 rows/s, not with the handwritten loop


def test_benchmark_table_compares_with_the_faster_petastorm_reader(images: dict[str, Any]) -> None:
    runs = [{**run, "rate": 2 * run["rate"]} for run in images["contenders"]["Petastorm"]["runs"]]
    images["contenders"]["Petastorm, row groups only"] = {"role": "peer", "settings": "", "runs": runs}
    assert row_of(images, "petastore")["/ Petastorm"] == "1.30"


def test_benchmark_table_reports_the_detected_row_order(images: dict[str, Any]) -> None:
    assert row_of(images, "petastore")["order"] == "shuffled"
    assert row_of(images, "Lance")["order"] == "runs of 100"
    assert row_of(images, "limit")["order"] == "–"
    images["contenders"]["Lance"]["check"] = {"followers": 1.0, "ascending": True}
    assert row_of(images, "Lance")["order"] == "in order"


def test_benchmark_table_shows_the_error_of_a_failed_library(images: dict[str, Any]) -> None:
    assert row_of(images, "Broken")["rows/s"] == "failed"
    assert failures(images) == ["Broken failed: ImportError: no <module>"]


def test_benchmark_page_warns_when_the_upper_limit_is_unstable(images: dict[str, Any]) -> None:
    assert "by a factor of 2.2" in restlessness(images)
    for run in images["contenders"]["limit"]["runs"]:
        run["rate"] = 4000.0
    assert restlessness(images) == ""
    del images["contenders"]["limit"]
    assert restlessness(images) == ""


def test_benchmark_table_has_no_ratios_without_other_libraries(images: dict[str, Any]) -> None:
    images["contenders"] = {"petastore": images["contenders"]["petastore"]}
    row = row_of(images, "petastore")
    assert [row[name] for name in ("/ limit", "/ Petastorm", "/ best peer")] == ["–"] * 3


def test_printed_table_columns_are_aligned() -> None:
    assert aligned([("", "a"), ("name", "1,000"), ("n", "1")]).splitlines() == [
        "          a",
        "name  1,000",
        "n         1",
    ]


def test_markdown_table_has_a_cell_per_column() -> None:
    assert markdown([("", "a"), ("x", "1")]).splitlines() == ["| | a |", "|:--|--:|", "| x | 1 |"]
