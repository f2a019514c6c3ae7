"""The page of what writing costs has the table, and what the figures were taken on."""

from __future__ import annotations

from benchmarks.writing.__main__ import ENCODER, LEAST, PETASTORM, lines
from benchmarks.writing.page import page_of
from benchmarks.writing.ways import WAYS


def figures(*rates: float) -> list[dict[str, float]]:
    return [{"rate": rate, "seconds": 2.0, "cpu": 4.0, "bytes": 1.0, "once": 4.25} for rate in rates]


def test_ratios_are_taken_within_a_round() -> None:
    found = {PETASTORM: figures(100, 10, 50), "rows": figures(300, 20, 150), ENCODER: figures(7)}
    table = list(lines(found))
    assert table[3].startswith("| rows | 150 | 20 – 300 | 13.33 | 4.2 s | 3.00 × Petastorm, rows | ≥ 2 × | kept")
    assert table[4] == "| the encoder alone | 7 | 7 – 7 | 285.71 | 4.2 s | | | |"


def test_a_way_that_is_too_slow_is_said_to_be() -> None:
    found = {ENCODER: figures(100), "write_dataset, pictures": figures(89)}
    assert list(lines(found))[-1].endswith("0.89 × the encoder alone | ≥ 0.9 × | not kept |")


def test_every_bound_is_of_ways_that_there_are() -> None:
    assert {name for name, (other, _) in LEAST.items() for name in (name, other)} <= set(WAYS)


def test_a_page_has_table_and_machine() -> None:
    page = page_of(["| a | b |"], "9 rows", {"CPU": "Abacus"})
    assert "\n* CPU: Abacus\n" in page
    assert ": 9 rows.\n\n| a | b |\n" in page
