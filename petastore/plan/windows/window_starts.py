"""Window starts: find the rows at which windows of sorted data begin. No I/O.

A *run* is a sequence of rows without a gap: consecutive timestamps differ by at most `delta_threshold`. Differences of
integers and times are exact. A run may extend over several row groups. A window has `length` consecutive rows of one
run.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField
from petastore.schema.values import ATTOSECONDS

__all__ = ["Line", "comparable", "follow_closely", "most_between"]


def comparable(timestamps: NDArray[Any]) -> NDArray[Any]:
    """Convert timestamps to a dtype in which they can be compared and subtracted.

    The result is int64, uint64, float64 or objects, of shape (rows,), without a copy if possible.

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
    """Convert a threshold to the largest allowed difference of two timestamps.

    The result is a `numpy.uint64` for integers and times, otherwise a float or a Decimal. For times, it is in the unit
    of the field's dtype.

    Args:
        threshold: Value of `NGram.delta_threshold`.
        field: Timestamp field.

    Raises:
        InvalidArgumentError: The type of the field is not valid for timestamps, or the threshold does not match it.

    Example:
        >>> most_between(dt.timedelta(seconds=1.5), UnischemaField("at", "datetime64[ms]"))
        np.uint64(1500)
        >>> most_between(2.5, UnischemaField("frame", "int32"))
        np.uint64(2)
    """
    kind = "O" if field.numpy_dtype is Decimal else field.dtype.kind
    if not field.is_scalar or kind not in "iufmMO" or (kind == "O" and field.numpy_dtype is not Decimal):
        raise InvalidArgumentError(f"timestamp_field must be a scalar of numbers, decimals or times, got {field!r}")
    is_time = isinstance(threshold, (dt.timedelta, np.timedelta64))
    if is_time != (kind in "mM"):
        wanted = "datetime.timedelta or numpy.timedelta64" if kind in "mM" else "a number"
        raise InvalidArgumentError(
            f"delta_threshold must be {wanted} for timestamps {field.name!r} of {field.dtype_name}, got {threshold!r}"
        )
    if kind == "f":
        return float(threshold)
    if kind == "O":
        return Decimal(str(threshold if isinstance(threshold, (int, Decimal)) else float(threshold)))
    whole = _units(threshold, field) if is_time else threshold
    largest = int(np.iinfo(np.uint64).max)
    return np.uint64(largest if whole > largest else math.floor(whole))


def _units(threshold: dt.timedelta | np.timedelta64, field: UnischemaField) -> Fraction:
    """Return a duration as an exact number of units of a time column."""
    unit, count = np.datetime_data(field.dtype)
    if isinstance(threshold, dt.timedelta):
        tick_attoseconds, ticks = 10**12, threshold // dt.timedelta(microseconds=1)
    else:
        threshold_unit, threshold_count = np.datetime_data(threshold.dtype)
        tick_attoseconds, ticks = ATTOSECONDS.get(threshold_unit, 0) * threshold_count, int(threshold.view(np.int64))
    if not tick_attoseconds or unit not in ATTOSECONDS:
        raise InvalidArgumentError(
            f"delta_threshold must have a unit with a fixed length (days or less) for timestamps {field.name!r} of "
            f"{field.dtype_name}, got {threshold!r}"
        )
    return Fraction(ticks * tick_attoseconds, ATTOSECONDS[unit] * count)


def follow_closely(before: NDArray[Any], after: NDArray[Any], most: Any) -> NDArray[np.bool_]:
    """Return a mask of the timestamp pairs without a gap in time, shape (n,).

    The second timestamp of such a pair is later than the first by 0 to `most`.

    Args:
        before: Timestamps from `comparable`, shape (n,).
        after: Timestamps of the same dtype and shape.
        most: Maximum difference, from `most_between`.

    Example:
        >>> follow_closely(np.array([0, 5, -2**63]), np.array([3, 4, 2**63 - 1]), np.uint64(2**64 - 2))
        array([ True, False, False])
    """
    if before.dtype.kind in "iu":
        # Subtracting as uint64 is exact for ascending integers of any sign; subtracting as int64 could overflow.
        near = (after.view(np.uint64) - before.view(np.uint64)) <= most
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            near = (after - before) <= most
    return ((before <= after) & near).astype(np.bool_, copy=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """Sequence of rows in which windows are formed.

    It is divided into *runs*, sequences without gaps in time. The rows are stored in several *stretches* of consecutive
    rows, such as row groups. All arrays have row indices in the whole sequence.

    Example:
        >>> line = Line(np.array([0, 3, 5]), np.array([0, 4]), np.array([4, 5]), np.array([], np.int64))
        >>> [starts.tolist() for starts in line.starts(2, overlap=True)]
        [[True, True, True], [False, False]]
        >>> [starts.tolist() for starts in line.starts(2, overlap=False)]
        [[True, False, True], [False, False]]
    """

    offsets: NDArray[np.int64]
    """Index of the first row of each stretch, then the number of all rows.

    A stretch is a stored part, such as a row group. Shape (stretches + 1,)."""

    begins: NDArray[np.int64]
    """Index of the first row of each run (sequence without gaps in time); (runs,)."""

    ends: NDArray[np.int64]
    """Index after the last row of each run (sequence without gaps in time); (runs,)."""

    ties: NDArray[np.int64]
    """Indices of rows whose timestamp equals that of the previous row in their run.

    A run is a sequence without gaps in time. The indices are in ascending order."""

    def starts(self, length: int, *, overlap: bool) -> Iterator[NDArray[np.bool_]]:
        """Yield a mask of the rows at which windows begin, for each stretch of rows.

        A stretch is a stored part of the sequence, such as a row group.

        Args:
            length: Number of rows of a window.
            overlap: Whether windows may share timestamps; see `petastore.plan.windows.ngram.NGram`.
        """
        if overlap:
            firsts, stops = self.begins, self.ends - (length - 1)
            long_enough = stops > firsts
            return _cut_ranges(firsts[long_enough], stops[long_enough], self.offsets)
        return _cut_places(self.greedy(length), self.offsets)

    def greedy(self, length: int) -> NDArray[np.int64]:
        """Return the first rows of windows that share no timestamp, ascending.

        Each window begins as early as possible.
        """
        first_tie, stop_tie = np.searchsorted(self.ties, self.begins, "right"), np.searchsorted(self.ties, self.ends)
        tied = np.flatnonzero(first_tie < stop_tie)
        plain = first_tie >= stop_tie
        begins, counts = self.begins[plain], (self.ends - self.begins)[plain] // length
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = [np.repeat(begins, counts) + length * within]
        for run in tied.tolist():
            ties = self.ties[first_tie[run] : stop_tie[run]]
            starts.append(_greedy_run(int(self.begins[run]), int(self.ends[run]), ties, length))
        return np.sort(np.concatenate(starts))


def _greedy_run(begin: int, end: int, ties: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return the first rows of windows that share no timestamp, in one run with ties.

    A run is a sequence without gaps in time; the rows `ties` have the same timestamp as the row before them.
    """
    is_new = np.ones(end - begin + 1, dtype=np.bool_)
    is_new[ties - begin] = False
    places = np.arange(end - begin + 1)
    # new_from[i]: first row, from row i on, whose timestamp differs from that of the row before it
    new_from = np.minimum.accumulate(np.where(is_new, places, end - begin)[::-1])[::-1].tolist()
    starts = []
    place = 0
    while place + length <= end - begin:
        starts.append(place)
        place = new_from[place + length]
    return np.array(starts, dtype=np.int64) + begin


def _cut_ranges(
    firsts: NDArray[np.int64], stops: NDArray[np.int64], offsets: NDArray[np.int64]
) -> Iterator[NDArray[np.bool_]]:
    """Yield a mask of the rows inside given ranges, for each stretch of rows.

    A stretch is a stored part of the sequence, such as a row group.

    Args:
        firsts: First row of each range; ranges are ascending and disjoint.
        stops: Row after the last row of each range.
        offsets: Start of each stretch, then the number of all rows.
    """
    begin = np.searchsorted(stops, offsets[:-1], "right")
    end = np.searchsorted(firsts, offsets[1:], "left")
    for (offset, stop), first_range, stop_range in zip(itertools.pairwise(offsets.tolist()), begin, end, strict=True):
        steps = np.zeros(stop - offset + 1, dtype=np.int8)
        if stop_range > first_range:
            steps[np.maximum(firsts[first_range:stop_range], offset) - offset] += 1
            steps[np.minimum(stops[first_range:stop_range], stop) - offset] -= 1
        yield np.cumsum(steps[:-1], dtype=np.int8).astype(np.bool_)


def _cut_places(places: NDArray[np.int64], offsets: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """Yield a mask of the rows at given indices, for each stretch of rows.

    A stretch is a stored part of the sequence, such as a row group.

    Args:
        places: Row indices, ascending.
        offsets: Start of each stretch, then the number of all rows.
    """
    borders = np.searchsorted(places, offsets).tolist()
    for (offset, stop), (first, last) in zip(
        itertools.pairwise(offsets.tolist()), itertools.pairwise(borders), strict=True
    ):
        flags = np.zeros(stop - offset, dtype=np.bool_)
        flags[places[first:last] - offset] = True
        yield flags
