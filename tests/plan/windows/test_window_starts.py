"""Tests of window starts: equal to a reference implementation (double loop), regardless of row group borders."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.plan.windows.series import SeriesLine, SeriesOfGroup, series_of_group
from petastore.plan.windows.window_starts import comparable, most_between
from tests.windows_by_hand import windows_by_hand

SEQUENCES = st.lists(
    st.lists(st.integers(0, 4), min_size=1, max_size=12).map(lambda steps: np.cumsum(steps).tolist()),
    min_size=1,
    max_size=6,
)


def one_series(times: Any, most: Any) -> SeriesOfGroup:
    return series_of_group(np.zeros(len(times), np.int32), [()], comparable(np.asarray(times)), most)


def starts_of(parts: list[Any], most: Any, *, length: int, overlap: bool = True) -> list[tuple[int, int]]:
    kept = {group: one_series(part, most) for group, part in enumerate(parts)}
    found = list(SeriesLine.of(len(parts), kept).window_starts(kept, most, length=length, overlap=overlap))
    assert [(group, len(flags)) for group, flags in found] == [(group, len(part)) for group, part in enumerate(parts)]
    return [(group, row) for group, flags in found for row in np.flatnonzero(flags).tolist()]


@pytest.mark.parametrize("overlap", [True, False])
@given(parts=SEQUENCES, length=st.integers(1, 5), most=st.integers(0, 3))
def test_window_starts_equal_a_reference_implementation(
    parts: list[list[int]], length: int, most: int, overlap: bool
) -> None:
    by_hand = windows_by_hand(parts, length=length, most=most, overlap=overlap)
    assert starts_of(parts, np.uint64(most), length=length, overlap=overlap) == [window[0] for window in by_hand]


@pytest.mark.parametrize("overlap", [True, False])
@given(
    steps=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    length=st.integers(1, 5),
    cuts=st.sets(st.integers(1, 39)),
)
def test_window_starts_do_not_depend_on_row_group_borders(
    steps: list[int], length: int, cuts: set[int], overlap: bool
) -> None:
    times = np.cumsum(steps)
    inside = sorted(cut for cut in cuts if cut < len(times))
    whole = starts_of([times], np.uint64(2), length=length, overlap=overlap)
    parts = np.split(times, inside)
    first = [0, *inside]
    cut = [first[group] + row for group, row in starts_of(parts, np.uint64(2), length=length, overlap=overlap)]
    assert cut == [row for _, row in whole]


def test_row_group_with_an_earlier_timestamp_starts_a_sequence() -> None:
    parts = [[5, 6, 7], [1, 2, 3]]
    assert starts_of(parts, np.uint64(10), length=2) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_timestamp_overlap_false_windows_share_no_timestamp() -> None:
    assert starts_of([[0, 1, 1, 1, 2, 3]], np.uint64(1), length=2, overlap=False) == [(0, 0), (0, 4)]


def test_timestamp_overlap_false_starts_a_window_after_each_gap() -> None:
    assert starts_of([[0, 1, 2, 9, 10, 11, 12]], np.uint64(1), length=2, overlap=False) == [(0, 0), (0, 3), (0, 5)]


def test_windows_inside_a_row_group_equal_petastorms() -> None:
    """The golden file has results of Petastorm 0.13.1's `NGram.form_ngram` for timestamps with ties and gaps."""
    cases = json.loads((Path(__file__).parents[1] / "golden" / "petastorm_windows.json").read_text(encoding="utf-8"))
    for case in cases:
        times, length = np.array(case["times"]), case["length"]
        most = most_between(case["delta_threshold"], UnischemaField("t", np.int64))
        found = starts_of([times], most, length=length, overlap=case["timestamp_overlap"])
        assert [times[row : row + length].tolist() for _, row in found] == case["windows"]
    assert sum(len(case["windows"]) > 0 for case in cases) > 40


def test_empty_rows_have_no_windows() -> None:
    assert starts_of([], np.uint64(1), length=2) == []


@pytest.mark.parametrize(
    ("times", "threshold"),
    [
        (np.array([-(2**63), -(2**63) + 3, 2**63 - 1], np.int64), 3),
        (np.array([0, 3, 2**64 - 1], np.uint64), 3.9),
        (np.array([-128, -125, 127], np.int8), Decimal(3)),
        (np.array([0.0, 0.5, np.inf]), 0.5),
        (np.array(["2020-01-01", "2020-01-04", "2021-01-01"], "datetime64[D]"), dt.timedelta(days=3, hours=5)),
        (np.array([0, 3000, 3000000], "timedelta64[ms]"), np.timedelta64(3, "s")),
        (np.array([Decimal("0.1"), Decimal("0.4"), Decimal(1)], dtype=object), 0.3),
    ],
)
def test_window_starts_are_exact_for_every_timestamp_type(times: Any, threshold: Any) -> None:
    dtype = Decimal if times.dtype == np.dtype(object) else times.dtype
    most = most_between(threshold, UnischemaField("t", dtype))
    assert starts_of([times], most, length=2) == [(0, 0)]
    assert one_series(times, most).unsorted is None
    assert one_series(times[::-1].copy(), most).unsorted == (1, 0)


def test_infinite_threshold_accepts_any_gap() -> None:
    for dtype in ("int64", "uint64", "float64"):
        most = most_between(float("inf"), UnischemaField("t", dtype))
        assert starts_of([np.array([0, 2**62], dtype)], most, length=2) == [(0, 0)]
