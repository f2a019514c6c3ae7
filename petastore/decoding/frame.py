"""Frames: columns as a pandas DataFrame.

They are needed for predicates that were written for Petastorm's batch reader, and for `Dataset.to_pandas`.

No value changes: integers and booleans with missing values become pandas' nullable types instead of floats, and
timestamps keep their time zone. pandas is imported only when a DataFrame is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import MissingExtraError
from petastore.schema.values import each_value

__all__ = ["frame_answers", "frame_of"]


def frame_of(
    columns: Mapping[str, NDArray[Any]],
    zones: Mapping[str, str],
    *,
    needed_by: str = "a predicate with do_include in a batch reader",
) -> Any:
    """Return a DataFrame of columns.

    Args:
        columns: Arrays of shape (rows, …), masked where values are missing; arrays in rows become objects.
        zones: Dict from timestamp column to time zone; if this machine does not know the zone, timestamps are in UTC.
        needed_by: Name of the feature that needs pandas, for the message.

    Raises:
        MissingExtraError: pandas is not installed.

    Example:
        >>> frame_of({"id": np.ma.MaskedArray([2**53 + 1, 0], mask=[False, True])}, {})["id"].tolist()
        [9007199254740993, <NA>]
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError(needed_by, package="pandas") from None
    series = {name: pd.Series(_values(column, pd), copy=False) for name, column in columns.items()}
    for name, zone in zones.items():
        if name in series:
            series[name] = _in_zone(series[name].dt.tz_localize("UTC"), zone)
    return pd.DataFrame(series, copy=False)


def _in_zone(instants: Any, zone: str) -> Any:
    """Return the same instants in a time zone; in UTC if the zone is unknown here."""
    try:
        return instants.dt.tz_convert(zone)
    except (KeyError, ValueError):
        return instants


def _values(column: NDArray[Any], pandas: Any) -> Any:
    if column.ndim > 1:
        return list(each_value(column))
    if not isinstance(column, np.ma.MaskedArray):
        return column
    missing = np.ma.getmaskarray(column)
    kind = column.dtype.kind
    if kind in "iu":
        return pandas.arrays.IntegerArray(column.data, missing)
    if kind == "b":
        return pandas.arrays.BooleanArray(column.data, missing)
    gone: Any = np.nan if kind == "f" else np.array("NaT", column.dtype)
    return column.filled(gone)


def frame_answers(answer: Any) -> Any:
    """Convert a pandas Series of booleans to an array; missing values become False.

    Anything else is returned unchanged.
    """
    dtype = getattr(answer, "dtype", None)
    if not hasattr(answer, "iloc") or (str(dtype) not in ("bool", "boolean") and dtype != np.dtype(object)):
        return answer
    found = answer.to_numpy(dtype=object, na_value=False)
    is_boolean = all(isinstance(value, (bool, np.bool_)) for value in found)
    return found.astype(np.bool_) if is_boolean else answer
