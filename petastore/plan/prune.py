"""Prune row groups by partition values and statistics, before reading. No I/O.

For each row group, this module computes whether the filter *may* be true, *may* be false and *may* be null in some row.
If in doubt, the answer is "may". A row group in which the filter cannot be true is skipped. A row group in which the
filter is always true is selected whole. All other row groups must be read. The computation is vectorized over row
groups.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.expressions.bind import Test
from petastore.expressions.expression import Expression, fold
from petastore.expressions.statistics import ColumnStatistics, Outcomes

__all__ = ["Verdict", "prune"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Verdict:
    """Decision about each row group: skip it, select it whole, or read it.

    Both masks have shape (groups,).
    """

    none: NDArray[np.bool_]
    """Whether certainly no row of a row group is selected; True for empty row groups."""

    all: NDArray[np.bool_]
    """Whether certainly every row of a row group is selected.

    False for empty row groups."""

    @property
    def undecided(self) -> NDArray[np.int64]:
        """Numbers of the row groups that must be read to apply the filter, ascending."""
        return np.flatnonzero(~(self.none | self.all))


def prune(expression: Expression, statistics: Mapping[str, ColumnStatistics], rows: NDArray[np.int64]) -> Verdict:
    """Decide from statistics which row groups are certainly skipped or selected whole.

    Args:
        expression: The filter, bound (`petastore.expressions.bind`).
        statistics: Statistics by column; columns without statistics are treated as unknown.
        rows: Rows of each row group, shape (groups,).

    Example:
        >>> known = ColumnStatistics(
        ...     minimum=np.array([0, 5, 9]), maximum=np.array([4, 9, 12]), nulls=np.array([0, 0, 0]),
        ...     has_minimum=np.ones(3, bool), has_maximum=np.ones(3, bool), may_be_nan=np.zeros(3, bool))
        >>> verdict = prune(Test("x", ">=", 7), {"x": known}, rows=np.array([10, 10, 10]))
        >>> verdict.none.tolist(), verdict.all.tolist(), verdict.undecided.tolist()
        ([True, False, False], [False, False, True], [1])
    """
    unknown = ColumnStatistics.unknown(len(rows))
    may = fold(expression, lambda test: _may(test, statistics.get(test.column, unknown), rows))
    none = ~may.be_true | (rows == 0)
    return Verdict(none, ~none & ~may.be_false & ~may.be_null)


def _may(test: Test, known: ColumnStatistics, rows: NDArray[np.int64]) -> Outcomes:
    """Return whether a test may be true, false or null in some row of each row group."""
    has_values, has_nulls = known.nulls != rows, known.nulls != 0
    if test.operator == "null":
        return Outcomes(has_nulls, has_values, np.zeros_like(has_nulls))
    if test.operator == "constant":
        answer = np.full(len(rows), test.operand)
        return Outcomes(answer & has_values, ~answer & has_values, has_nulls)
    if test.operator in _EXCLUDED:
        never_true, never_false = (_bound_is(known, *bound, test.operand) for bound in _EXCLUDED[test.operator])
        be_true, be_false = ~never_true, ~never_false
    else:
        be_true, be_false = (_equal if test.operator == "==" else _among)(known, test.operand)
    return Outcomes(be_true & has_values, (be_false | known.may_be_nan) & has_values, has_nulls)


_EXCLUDED: dict[str, tuple[tuple[str, Callable[[Any, Any], Any]], tuple[str, Callable[[Any, Any], Any]]]] = {
    "<": (("minimum", operator.ge), ("maximum", operator.lt)),
    "<=": (("minimum", operator.gt), ("maximum", operator.le)),
    ">": (("maximum", operator.le), ("minimum", operator.gt)),
    ">=": (("maximum", operator.lt), ("minimum", operator.ge)),
}
"""For each operator: when a test is never true, and when it is never false.

Each of the two conditions is the name of a bound and the comparison of this bound with the operand of the test."""

_TrueFalse = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""Whether a test may be true, and whether it may be false, in each row group.

Both arrays have shape (groups,)."""


def _bound_is(
    statistics: ColumnStatistics, bound: str, compare: Callable[[Any, Any], Any], value: Any
) -> NDArray[np.bool_]:
    """Return a mask of the row groups whose bound is known and satisfies a comparison.

    Args:
        statistics: Statistics of a column.
        bound: `"minimum"` or `"maximum"`.
        compare: Comparison of the bound with `value`.
        value: Operand of the test.
    """
    known, bounds = getattr(statistics, f"has_{bound}"), getattr(statistics, bound)
    if bounds.dtype != np.dtype(object):
        holds: NDArray[np.bool_] = known & compare(bounds, value)
        return holds
    result = np.zeros(len(known), dtype=np.bool_)
    result[known] = compare(bounds[known], _objects([value]))
    return result


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    """Return an array of dtype object with the given values.

    `np.array` would instead cut trailing zero bytes of byte strings.
    """
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _equal(known: ColumnStatistics, value: Any) -> _TrueFalse:
    """Return whether `column == value` may be true, and whether it may be false."""
    lies_outside = _bound_is(known, "minimum", operator.gt, value) | _bound_is(known, "maximum", operator.lt, value)
    is_it = _bound_is(known, "minimum", operator.eq, value) & _bound_is(known, "maximum", operator.eq, value)
    return ~lies_outside, ~is_it


def _among(known: ColumnStatistics, values: tuple[Any, ...]) -> _TrueFalse:
    """Return whether `column in values` may be true, and whether it may be false.

    `values` are sorted in ascending order.
    """
    if not values:
        return np.zeros(len(known.nulls), np.bool_), np.ones(len(known.nulls), np.bool_)
    dtype = known.minimum.dtype
    among = _objects(values) if dtype == np.dtype(object) else np.array(values, dtype=dtype)
    # first, stop: (groups,) the values within the bounds are among[first:stop]
    first, stop = np.zeros(len(known.nulls), np.int64), np.full(len(known.nulls), len(among), np.int64)
    first[known.has_minimum] = np.searchsorted(among, known.minimum[known.has_minimum], side="left")
    stop[known.has_maximum] = np.searchsorted(among, known.maximum[known.has_maximum], side="right")
    both = known.has_minimum & known.has_maximum
    one_value = np.zeros_like(both)
    one_value[both] = known.minimum[both] == known.maximum[both]
    return first < stop, ~(one_value & (first < stop))
