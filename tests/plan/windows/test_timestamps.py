"""Tests of window timestamps: exact comparison for every dtype, and thresholds in the unit of the column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.errors import InvalidArgumentError
from petastore.plan.windows.window_starts import comparable, follow_closely, most_between

SIGNED, UNSIGNED = st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1)
UNITS = {"h": 3600 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def edges(whole: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Draw pairs of integers, some of them close to each other."""
    close = st.tuples(whole, st.integers(0, 3)).map(lambda pair: (pair[0], min(pair[0] + pair[1], 2**63 - 1)))
    return st.lists(st.tuples(whole, whole) | close, min_size=1, max_size=20)


@given(edges(SIGNED), UNSIGNED)
def test_timestamps_of_signed_integers_are_exact(pairs: list[tuple[int, int]], most: int) -> None:
    before, after = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    assert follow_closely(before, after, np.uint64(most)).tolist() == [0 <= b - a <= most for a, b in pairs]


@given(edges(st.integers(0, 2**63 - 1)), UNSIGNED)
def test_timestamps_of_unsigned_integers_are_exact(pairs: list[tuple[int, int]], most: int) -> None:
    before, after = (np.array(column, dtype=np.uint64) for column in zip(*pairs, strict=True))
    assert follow_closely(before, after, np.uint64(most)).tolist() == [0 <= b - a <= most for a, b in pairs]


def test_nan_or_infinite_timestamp_step_ends_a_window_sequence() -> None:
    nan, inf = float("nan"), float("inf")
    before, after = np.array([0.0, nan, 0.0, inf, -inf]), np.array([nan, 0.0, inf, inf, inf])
    assert follow_closely(before, after, 5.0).tolist() == [False] * 5
    assert follow_closely(before[2:3], after[2:3], inf).tolist() == [True]


def test_timestamps_are_zero_copy_when_possible() -> None:
    for dtype in ("int64", "uint64", "float64", "datetime64[ms]", "timedelta64[s]", "O"):
        times = np.zeros(3, dtype=dtype)
        assert np.shares_memory(comparable(times), times)
    assert [comparable(np.zeros(1, dtype)).dtype.name for dtype in ("i2", "u4", "f4")] == ["int64", "uint64", "float64"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("asked", UNITS)
@given(count=st.integers(0, 10**6))
def test_delta_threshold_is_rounded_down_to_the_unit(unit: str, asked: str, count: int) -> None:
    most = most_between(np.array(count, f"timedelta64[{asked}]")[()], UnischemaField("t", f"datetime64[{unit}]"))
    assert most == count * UNITS[asked] // UNITS[unit]


def test_delta_threshold_timedelta_max_allows_any_gap() -> None:
    assert most_between(dt.timedelta.max, UnischemaField("t", "datetime64[ns]")) == 2**64 - 1


@pytest.mark.parametrize(
    ("threshold", "field"),
    [
        (1, UnischemaField("t", "datetime64[us]")),
        (dt.timedelta(1), UnischemaField("t", "int64")),
        (np.timedelta64(1, "M"), UnischemaField("t", "datetime64[us]")),
        (dt.timedelta(1), UnischemaField("t", "datetime64[M]")),
        (1, UnischemaField("t", np.str_)),
        (1, UnischemaField("t", np.bool_)),
        (1, UnischemaField("t", np.int64, (2,))),
    ],
)
def test_delta_threshold_of_another_type_raises(threshold: Any, field: UnischemaField) -> None:
    with pytest.raises(InvalidArgumentError, match=r"delta_threshold|timestamp_field"):
        most_between(threshold, field)


def test_delta_threshold_of_decimals_is_exact() -> None:
    assert most_between(0.3, UnischemaField("t", Decimal)) == Decimal("0.3")
