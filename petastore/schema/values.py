"""Missing values and times in NumPy columns: masks, None, and conversions."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ATTOSECONDS", "date_or_bool", "each_value", "mask_of", "masked_rows", "numpy_time", "with_missing"]


ATTOSECONDS = {
    "W": 604_800 * 10**18,
    "D": 86_400 * 10**18,
    "h": 3_600 * 10**18,
    "m": 60 * 10**18,
    "s": 10**18,
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 10**3,
    "as": 1,
}
"""Attoseconds of each fixed unit of `numpy.datetime64`."""


def numpy_time(value: Any) -> np.datetime64 | np.timedelta64 | None:
    """Convert a date, timestamp, duration or time of day to a NumPy scalar.

    Types of Python, pandas and NumPy are converted; other values give None. A `date` becomes `datetime64[D]`. A
    `datetime` becomes `datetime64[us]`, converted to UTC if it has a time zone. A `timedelta` becomes
    `timedelta64[us]`, and a `time` the `timedelta64[us]` since midnight. Values of NumPy and pandas keep their unit.

    Raises:
        OverflowError: The time is out of range in UTC.

    Example:
        >>> numpy_time(dt.time(0, 1)), numpy_time(dt.date(2026, 1, 31)), numpy_time("2026-01-31")
        (np.timedelta64(60000000,'us'), np.datetime64('2026-01-31'), None)
    """
    for convert in ("to_datetime64", "to_timedelta64"):  # methods of pandas types, which keep nanoseconds
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


_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def date_or_bool(text: str) -> np.datetime64 | bool | None:
    """Parse a text as a date or boolean, as in the names of partition directories.

    Only `YYYY-MM-DD`, `true` and `false` are accepted, so each value can be converted back to the same text.
    Return None for any other text.

    Example:
        >>> date_or_bool("2026-01-31"), date_or_bool("true"), date_or_bool("2026-02-30"), date_or_bool("True")
        (np.datetime64('2026-01-31'), True, None, None)
    """
    if text in ("true", "false"):
        return text == "true"
    if _ISO_DATE.fullmatch(text) is None:
        return None
    try:
        return np.datetime64(dt.date.fromisoformat(text), "D")
    except ValueError:  # the date does not exist, such as 2026-02-30
        return None


def each_value(column: NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
    """Return the values of a column, one by one.

    A missing value is None, and a value with missing parts is a masked array.

    Example:
        >>> each_value(np.ma.MaskedArray([1, 2], mask=[False, True]))
        [np.int64(1), None]
    """
    if not isinstance(column, np.ma.MaskedArray):
        return column
    mask = mask_of(column)
    if mask.ndim > 1:
        values = zip(column.data, mask, strict=True)
        return [None if is_missing.all() else with_missing(value, is_missing) for value, is_missing in values]
    missing = mask.tolist()
    return [None if is_missing else value for is_missing, value in zip(missing, column.data, strict=True)]


def with_missing(values: NDArray[Any], is_missing: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Return the values as a masked array if some of them are missing, else unchanged.

    Example:
        >>> with_missing(np.array([1, 0]), np.array([False, True]))
        masked_array(data=[1, --],
                     mask=[False,  True],
               fill_value=999999)
    """
    return values if is_missing is None or not is_missing.any() else np.ma.MaskedArray(values, is_missing)


def mask_of(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the mask of a column, in the shape (rows,) or in the shape of the values.

    The mask has the shape of the values only if a value is partly masked.

    Example:
        >>> mask_of(np.ma.masked_equal([[1, 2], [0, 0]], 0)), mask_of(np.ma.masked_equal([[1, 0]], 0))
        (array([False,  True]), array([[False,  True]]))
    """
    rows = masked_rows(column)
    if column.ndim == 1 or not rows.any():
        return rows
    mask = np.ma.getmaskarray(column)
    return rows if bool(mask[rows].all()) else mask


def masked_rows(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the rows that are at least partly masked, shape (rows,).

    Example:
        >>> masked_rows(np.ma.masked_equal([[1, 2], [0, 3]], 0)), masked_rows(np.zeros(1))
        (array([False,  True]), array([False]))
    """
    if not isinstance(column, np.ma.MaskedArray) or column.mask is np.ma.nomask:
        return np.zeros(len(column), dtype=np.bool_)
    mask = np.ma.getmaskarray(column)
    return np.logical_or.reduce(mask, axis=tuple(range(1, mask.ndim)), dtype=np.bool_)
