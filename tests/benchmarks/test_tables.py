"""Tables say ratios against the limit, the faster Petastorm and the best peer, and who failed."""

from __future__ import annotations

import doctest
from typing import Any

from benchmarks.bench import tables
from benchmarks.bench.tables import HEADER, aligned, failures, markdown, restlessness, rows_of_workload


def row_of(result: dict[str, Any], name: str) -> dict[str, str]:
    found = next(row for row in rows_of_workload(result) if row[0] == name)
    return dict(zip(HEADER, found, strict=True))


def test_examples_hold() -> None:
    assert doctest.testmod(tables) == doctest.TestResults(0, 2)


def test_ratios_are_medians_over_rounds(images: dict[str, Any]) -> None:
    row = row_of(images, "petastore")
    assert (row["rows/s"], row["least – most"]) == ("3,900", "1,960 – 4,300")
    assert row["/ limit"] == "0.98"
    assert row["/ Petastorm"] == "2.60"
    assert row["/ best peer"] == "1.95"  # Lance's 2,000, not the loop made by hand


def test_the_faster_way_of_petastorm_counts(images: dict[str, Any]) -> None:
    runs = [{**run, "rate": 2 * run["rate"]} for run in images["contenders"]["Petastorm"]["runs"]]
    images["contenders"]["Petastorm, row groups only"] = {"role": "peer", "settings": "", "runs": runs}
    assert row_of(images, "petastore")["/ Petastorm"] == "1.30"


def test_the_order_that_a_check_saw_is_told(images: dict[str, Any]) -> None:
    assert row_of(images, "petastore")["order"] == "shuffled"
    assert row_of(images, "Lance")["order"] == "runs of 100"
    assert row_of(images, "limit")["order"] == "–"
    images["contenders"]["Lance"]["check"] = {"followers": 1.0, "ascending": True}
    assert row_of(images, "Lance")["order"] == "in order"


def test_a_contender_that_failed_is_shown_with_its_error(images: dict[str, Any]) -> None:
    assert row_of(images, "Broken")["rows/s"] == "failed"
    assert failures(images) == ["Broken failed: ImportError: no <module>"]


def test_a_limit_that_did_not_keep_its_rate_is_a_warning(images: dict[str, Any]) -> None:
    assert "2.2-fold" in restlessness(images)
    for run in images["contenders"]["limit"]["runs"]:
        run["rate"] = 4000.0
    assert restlessness(images) == ""
    del images["contenders"]["limit"]
    assert restlessness(images) == ""


def test_without_a_limit_or_peers_there_are_no_ratios(images: dict[str, Any]) -> None:
    images["contenders"] = {"petastore": images["contenders"]["petastore"]}
    row = row_of(images, "petastore")
    assert [row[name] for name in ("/ limit", "/ Petastorm", "/ best peer")] == ["–"] * 3


def test_columns_of_a_printed_table_are_aligned() -> None:
    assert aligned([("", "a"), ("name", "1,000"), ("n", "1")]).splitlines() == [
        "          a",
        "name  1,000",
        "n         1",
    ]


def test_a_table_of_a_page_has_a_cell_for_each_column() -> None:
    assert markdown([("", "a"), ("x", "1")]).splitlines() == ["| | a |", "|:--|--:|", "| x | 1 |"]
