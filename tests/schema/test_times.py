"""Tests of converting datetime and pandas timestamps to NumPy times; other values give None."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.schema.values import numpy_time


@given(st.datetimes(timezones=st.none() | st.timezones(), allow_imaginary=False))
def test_numpy_time_of_datetime_and_pandas_timestamp_is_same_utc_instant(instant: dt.datetime) -> None:
    try:
        in_utc = instant if instant.tzinfo is None else instant.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:
        with pytest.raises(OverflowError):
            numpy_time(instant)
        return
    assert numpy_time(instant) == np.datetime64(in_utc, "us")
    if 1700 < in_utc.year < 2200:
        assert numpy_time(pd.Timestamp(instant)) == np.datetime64(in_utc, "us")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (dt.date(2026, 1, 31), np.datetime64("2026-01-31", "D")),
        (dt.timedelta(seconds=3), np.timedelta64(3_000_000, "us")),
        (dt.time(1, 2, 3, 4), np.timedelta64(3_723_000_004, "us")),
        (pd.Timedelta(5, "ns"), np.timedelta64(5, "ns")),
        (np.timedelta64(5, "ps"), np.timedelta64(5, "ps")),
    ],
)
def test_numpy_time_keeps_the_unit_of_its_argument(value: Any, expected: Any) -> None:
    found = numpy_time(value)
    assert found is not None
    assert (found, found.dtype) == (expected, expected.dtype)


@pytest.mark.parametrize("value", [None, 3, np.int64(3), "2026-01-31", dt.time(1, tzinfo=dt.UTC), b"x"])
def test_numpy_time_is_none_for_values_that_are_not_times(value: Any) -> None:
    assert numpy_time(value) is None
