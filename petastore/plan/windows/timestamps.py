"""Timestamps: the column by which rows are sorted, in a form in which neighbours are compared exactly. Pure."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField
from petastore.schema.units import ATTOSECONDS

__all__ = ["comparable", "follow_closely", "most_between"]


def comparable(timestamps: NDArray[Any]) -> NDArray[Any]:
    """Timestamps as int64, uint64, float64 or objects, shape (rows,), without a copy where they are.

    Example:
        >>> comparable(np.array(["1970-01-02"], "datetime64[D]")), comparable(np.array([3], np.int8))
        (array([1]), array([3]))
    """
    kind = timestamps.dtype.kind
    if kind in "mM":
        return timestamps.view(np.int64)
    if kind == "O":
        return timestamps
    return timestamps.astype({"i": np.int64, "u": np.uint64, "f": np.float64}[kind], copy=False)


def most_between(threshold: Any, field: UnischemaField) -> Any:
    """What timestamps may differ by at most, in the form of `comparable`; `numpy.uint64` for whole numbers.

    Args:
        threshold: `NGram.delta_threshold`.
        field: The column of timestamps.

    Raises:
        InvalidArgumentError: The column cannot be one of timestamps, or the threshold is not of its kind.

    Example:
        >>> most_between(dt.timedelta(seconds=1.5), UnischemaField("at", "datetime64[ms]"))
        np.uint64(1500)
        >>> most_between(2.5, UnischemaField("frame", "int32"))
        np.uint64(2)
    """
    kind = "O" if field.numpy_dtype is Decimal else field.dtype.kind
    if not field.is_scalar or kind not in "iufmMO" or (kind == "O" and field.numpy_dtype is not Decimal):
        raise InvalidArgumentError(
            f"timestamp_field is {field!r}, but rows are sorted by a scalar of numbers, decimals or times"
        )
    is_time = isinstance(threshold, (dt.timedelta, np.timedelta64))
    if is_time != (kind in "mM"):
        wanted = "datetime.timedelta or numpy.timedelta64" if kind in "mM" else "a number"
        raise InvalidArgumentError(
            f"delta_threshold={threshold!r}, but the timestamps {field.name!r} are {field.dtype_name}: give {wanted}"
        )
    if kind == "f":
        return float(threshold)
    if kind == "O":
        return Decimal(str(threshold if isinstance(threshold, (int, Decimal)) else float(threshold)))
    whole = _units(threshold, field) if is_time else threshold
    largest = int(np.iinfo(np.uint64).max)
    return np.uint64(largest if whole > largest else math.floor(whole))


def _units(threshold: dt.timedelta | np.timedelta64, field: UnischemaField) -> Fraction:
    """A duration in the unit of a column of times."""
    unit, count = np.datetime_data(field.dtype)
    if isinstance(threshold, dt.timedelta):
        asked, ticks = 10**12, threshold // dt.timedelta(microseconds=1)
    else:
        asked_unit, asked_count = np.datetime_data(threshold.dtype)
        asked, ticks = ATTOSECONDS.get(asked_unit, 0) * asked_count, int(threshold.view(np.int64))
    if not asked or unit not in ATTOSECONDS:
        raise InvalidArgumentError(
            f"delta_threshold={threshold!r} and the timestamps {field.name!r}, {field.dtype_name}: months and years "
            "have no fixed length; give days or less"
        )
    return Fraction(ticks * asked, ATTOSECONDS[unit] * count)


def follow_closely(before: NDArray[Any], after: NDArray[Any], most: Any) -> NDArray[np.bool_]:
    """Of pairs of timestamps: whether the second is not less than the first, and not by more than `most` larger.

    Args:
        before: From `comparable`, shape (n,).
        after: Of the same dtype and shape.
        most: From `most_between`.

    Example:
        >>> follow_closely(np.array([0, 5, -2**63]), np.array([3, 4, 2**63 - 1]), np.uint64(2**64 - 2))
        array([ True, False, False])
    """
    if before.dtype.kind in "iu":
        # Modulo 2**64 the difference of ascending integers is right, whatever their signs.
        near = (after.view(np.uint64) - before.view(np.uint64)) <= most
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            near = (after - before) <= most
    return ((before <= after) & near).astype(np.bool_, copy=False)
