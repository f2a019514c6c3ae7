"""Times of every spelling, as NumPy has them. Pure."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

__all__ = ["numpy_time"]


def numpy_time(value: Any) -> np.datetime64 | np.timedelta64 | None:
    """A date, instant, duration or time of day of Python, pandas or NumPy; None for anything else.

    A `date` is a `datetime64[D]`. A `datetime` is a `datetime64[us]`, taken to UTC where it has a zone. A `timedelta`
    is a `timedelta64[us]`, and a `time` that since midnight. What is NumPy's or pandas' keeps its unit.

    Raises:
        OverflowError: It is out of range in UTC.

    Example:
        >>> numpy_time(dt.time(0, 1)), numpy_time(dt.date(2026, 1, 31)), numpy_time("2026-01-31")
        (np.timedelta64(60000000,'us'), np.datetime64('2026-01-31'), None)
    """
    for convert in ("to_datetime64", "to_timedelta64"):  # pandas, whose own types keep nanoseconds
        if hasattr(value, convert):
            value = getattr(value, convert)()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return value
    if isinstance(value, dt.datetime):
        return np.datetime64(value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None), "us")
    if isinstance(value, dt.date):
        return np.datetime64(value, "D")
    if isinstance(value, dt.timedelta):
        return np.timedelta64(value, "us")
    if isinstance(value, dt.time) and value.tzinfo is None:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return np.timedelta64(seconds * 1_000_000 + value.microsecond, "us")
    return None
