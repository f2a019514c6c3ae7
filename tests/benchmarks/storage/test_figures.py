"""Tests of storage figures: comparison of the median with its bounds, text, and round trip through a dict."""

from __future__ import annotations

import dataclasses

from benchmarks.storage.figures import Figure, line_of


def test_median_is_compared_with_the_bounds() -> None:
    assert Figure("ratio", [0.7, 0.9, 0.8], least=0.8).is_kept
    assert Figure("ratio", [0.7, 0.9, 0.8], most=0.8).is_kept
    assert Figure("ratio", [0.7, 0.9, 0.79], least=0.8).is_kept is False
    assert Figure("rate", [3.0]).is_kept is None


def test_figure_line_shows_spread_and_bound() -> None:
    assert line_of(Figure("epoch", [2.0, 1.0, 4.0], "s", most=1.5)) == (
        *("epoch", "2.00 s", "1.00 – 4.00", "≤ 1.5 s", "not kept"),
    )
    assert line_of(Figure("damages", [500], least=500, most=500)) == ("damages", "500", "", "= 500", "kept")
    assert line_of(Figure("rate", [123_456.7], "rows/s")) == ("rate", "123,000 rows/s", "", "", "")


def test_figure_round_trips_through_a_dict() -> None:
    figure = Figure("epoch", [2.0], "s", most=1.5)
    assert Figure.parse(dataclasses.asdict(figure)) == figure
