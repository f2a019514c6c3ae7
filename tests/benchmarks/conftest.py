"""Fixtures of the benchmark tests: results in the benchmarks' format, small enough to check by hand."""

from __future__ import annotations

from typing import Any

import pytest


def _runs(*rates: float) -> list[dict[str, Any]]:
    return [
        {
            "round": number, "rate": rate, "first_batch": 0.5, "first_batch_of_process": 2.0, "first_epoch": 3.0,
            "peak_megabytes": 400.0,
        }
        for number, rate in enumerate(rates)
    ]  # fmt: skip


@pytest.fixture
def images() -> dict[str, Any]:
    """Return the results of three rounds; in the second round the machine was twice as slow."""
    shuffled = {"followers": 0.001, "ascending": False, "distinct": 1.0}
    in_runs = {"followers": 0.99, "ascending": False, "distinct": 1.0}
    return {
        "workload": "images",
        "date": "2026-11-21",
        "scale": 1.0,
        "rounds": 3,
        "seconds": 4.0,
        "patience": 30.0,
        "load_before": 0.5,
        "load_after": 2.0,
        "contenders": {
            "limit": {"role": "limit", "settings": "two threads", "runs": _runs(4000, 2000, 4400)},
            "petastore": {
                "role": "ours", "settings": "shuffled", "runs": _runs(3900, 1960, 4300), "check": shuffled,
                "versions": {"petastore": "0.1"},
            },
            "Petastorm": {"role": "peer", "settings": "threads", "runs": _runs(1500, 800, 1400), "check": shuffled},
            "Lance": {"role": "peer", "settings": "take", "runs": _runs(2000, 1000, 2200), "check": in_runs},
            "by hand": {"role": "hand-made", "settings": "loop", "runs": _runs(3000, 1500, 3300), "check": shuffled},
            "Broken": {"role": "peer", "settings": "", "runs": [{"round": 0, "error": "ImportError: no <module>"}]},
        },
    }  # fmt: skip
