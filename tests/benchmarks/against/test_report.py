"""Tests of the comparison report: figures with units, ratios, verdicts and a summary line."""

from __future__ import annotations

import doctest
from typing import Any

from benchmarks.against import report
from benchmarks.against.report import closing_line, failures_of, table_of
from benchmarks.against.verdicts import OURS, QUANTITIES, THEIRS, Verdict, judged


def verdict(name: str, ours: float, theirs: float) -> Verdict:
    quantity = QUANTITIES[name]
    runs: list[dict[str, Any]] = [
        {"round": number, "tree": tree, quantity.key: value}
        for number in range(3)
        for tree, value in ((OURS, ours), (THEIRS, theirs), (THEIRS, theirs), (OURS, ours))
    ]
    return judged(runs, quantity, 0.03)


def test_report_doctests_pass() -> None:
    assert doctest.testmod(report) == doctest.TestResults(0, 1)


def test_report_table_has_units_ratios_and_verdicts() -> None:
    verdicts = [verdict("rate", 9_700_000.0, 10_000_000.0), verdict("cpu", 2.1e-6, 2.0e-6), verdict("memory", 6e8, 6e8)]
    header, rate, cpu, memory = table_of(verdicts, "this tree", "a7806d7").splitlines()
    assert header.split() == ["this", "tree", "a7806d7", "ratio", "least", "–", "most", "same", "twice", "bound"]
    assert rate.split("  steady rate")[1].split() == [
        *("9,700,000", "10,000,000", "rows/s", "0.970", "0.970", "–", "0.970", "±", "0.0%", "≥", "0.97", "KEPT"),
    ]
    assert cpu.split("  CPU a row")[1].split()[:4] == ["2.10", "2.00", "µs", "1.050"]
    assert cpu.endswith("≤ 1.03  NOT KEPT")
    assert "600" in memory
    assert memory.endswith(" KEPT")


def test_report_shows_a_dash_for_a_missing_measurement() -> None:
    nothing = judged([{"round": 0, "tree": OURS, "error": "no"}], QUANTITIES["cpu"], 0.03)
    assert table_of([nothing], "this tree", "a7806d7").splitlines()[1].split() == [
        *("CPU", "a", "row", "–", "–", "µs", "–", "–", "–", "≤", "1.03", "NOT", "KEPT"),
    ]


def test_report_summary_names_failed_bounds() -> None:
    good, bad = verdict("cpu", 1.0, 1.0), verdict("rate", 90.0, 100.0)
    assert closing_line({"images, petastore": [good, good]}, "a7806d7", 0.03) == (
        "KEPT: all 2 figures are not worse than a7806d7 by more than 3 %"
    )
    assert closing_line({"images, petastore": [good, bad], "import": [good]}, "a7806d7", 0.03) == (
        "NOT KEPT: 2 of 3 figures are not worse than a7806d7 by more than 3 %, and these are worse: "
        "images, petastore: steady rate 0.900"
    )


def test_report_failures_name_the_tree_and_the_cause() -> None:
    runs: list[dict[str, Any]] = [
        {"tree": OURS, "rate": 1.0},
        {"tree": OURS, "error": "first"},
        {"tree": OURS, "error": "last"},
    ]
    assert failures_of(runs, "this tree", "a7806d7") == ["this tree failed: last"]
