"""Tests of equality keys: values that compare equal have equal keys, regardless of their type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from petastore.errors import InvalidArgumentError
from petastore.expressions.literal import equality_key, equality_keys


@pytest.mark.parametrize(
    "alike",
    [
        [1, 1.0, np.uint8(1), np.float16(1), Decimal(1)],
        ["a", np.str_("a")],
        [b"a", np.bytes_(b"a"), bytearray(b"a")],
        [
            dt.datetime(2026, 1, 31, 12),  # noqa: DTZ001
            np.datetime64("2026-01-31T12", "h"),
            np.datetime64("2026-01-31T12", "ns"),
            pd.Timestamp("2026-01-31T12"),
            pd.Timestamp("2026-01-31T13", tz="Europe/Berlin"),
        ],
        [dt.date(2026, 1, 31), np.datetime64("2026-01-31"), np.datetime64("2026-01-31", "us")],
        [dt.timedelta(hours=1), np.timedelta64(3600, "s"), pd.Timedelta(hours=1)],
        [None],
        [(1, "a")],
    ],
)
def test_values_that_compare_equal_have_equal_keys(alike: list[Any]) -> None:
    assert len({equality_key(value) for value in alike}) == 1


def test_different_values_have_different_keys() -> None:
    others = [1, 2, "1", b"1", None, np.datetime64(1, "s"), np.datetime64(1, "ms"), np.timedelta64(1, "s"), 0.1]
    assert len({equality_key(value) for value in [*others, np.float32(0.1)]}) == 10


def test_nan_and_nat_have_no_equality_key() -> None:
    assert equality_keys([float("nan"), np.datetime64("NaT"), Decimal("NaN"), 1], name="values") == {1}


@pytest.mark.parametrize("values", ["text", b"bytes", 7, None, [np.zeros(2)], [[1]]])
def test_unhashable_value_raises(values: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="inclusion_values"):
        equality_keys(values, name="inclusion_values")
