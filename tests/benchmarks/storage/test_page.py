"""Tests of the storage benchmark page: a table for each measurement, and the failures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from benchmarks.storage.__main__ import PAGE, PUBLISHED
from benchmarks.storage.figures import Figure
from benchmarks.storage.page import page_of
from benchmarks.storage.roster import SHOWN

MEASURED = {"date": "2026-11-22", "load": 0.5, "seconds": 12.3, "rounds": 3, "scale": 1.0, "machine": {"CPU": "one"}}


def test_storage_benchmark_page_lists_measurements_in_order() -> None:
    figure = dataclasses.asdict(Figure("rows that were wrong", [0], most=0))
    page = page_of(
        {
            "faults": {**MEASURED, "figures": [figure]},
            "hit": {
                **MEASURED,
                "scale": 0.1,
                "error": "OSError: <no disk>",
                "machine": {"CPU": "two", "memory": "8 GiB"},
            },
        }
    )
    assert page.index("## hit") < page.index("## faults")
    assert "| rows that were wrong | 0 |" in page
    assert "It failed: OSError: &lt;no disk>" in page
    assert "in 3 rounds, which took 12 s" in page
    assert "with 10% of the rows" in page
    assert page.count("The machine: one.") == page.count("The machine: two; 8 GiB.") == 1


def test_storage_benchmark_page_equals_the_published_results() -> None:
    results = json.loads(Path(PUBLISHED).read_text(encoding="utf-8"))
    assert Path(PAGE).read_text(encoding="utf-8") == page_of(results)
    assert list(results) == list(SHOWN)
