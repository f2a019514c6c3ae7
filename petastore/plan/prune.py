"""Prune: which row groups a filter surely drops or surely keeps whole, from what is known before reading. Pure.

Of every row group it is worked out whether the filter *may* be true, *may* be false and *may* be null in some row.
Each answer errs on the side of "may": a row group that cannot be true is dropped, one that can only be true is kept
whole, and what remains undecided has to be looked at. All row groups are worked out at once.
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
from petastore.expressions.statistics import ColumnStatistics

__all__ = ["Verdict", "prune"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Verdict:
    """What is certain of each row group; both arrays have shape (groups,) and are nowhere both True."""

    none: NDArray[np.bool_]
    """No row is kept; also where there are no rows."""

    all: NDArray[np.bool_]
    """Every row is kept."""

    @property
    def undecided(self) -> NDArray[np.int64]:
        """Numbers of the row groups that have to be looked at, ascending."""
        return np.flatnonzero(~(self.none | self.all))


def prune(expression: Expression, statistics: Mapping[str, ColumnStatistics], rows: NDArray[np.int64]) -> Verdict:
    """What is certain of each row group without reading it.

    Args:
        expression: The filter, bound (`petastore.expressions.bind`).
        statistics: What is known, by column; of the others nothing is.
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


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _May:
    """Which outcomes some row of each row group may have."""

    be_true: NDArray[np.bool_]
    be_false: NDArray[np.bool_]
    be_null: NDArray[np.bool_]

    def __and__(self, other: _May) -> _May:
        null = self.be_null & (other.be_null | other.be_true) | other.be_null & self.be_true
        return _May(self.be_true & other.be_true, self.be_false | other.be_false, null)

    def __or__(self, other: _May) -> _May:
        return ~(~self & ~other)

    def __invert__(self) -> _May:
        return _May(self.be_false, self.be_true, self.be_null)


def _may(test: Test, known: ColumnStatistics, rows: NDArray[np.int64]) -> _May:
    has_values, has_nulls = known.nulls != rows, known.nulls != 0
    if test.operator == "null":
        return _May(has_nulls, has_values, np.zeros_like(has_nulls))
    if test.operator == "constant":
        answer = np.full(len(rows), test.operand)
        return _May(answer & has_values, ~answer & has_values, has_nulls)
    be_true, be_false = _OUTCOMES[test.operator](known, test.operand)
    return _May(be_true & has_values, (be_false | known.may_be_nan) & has_values, has_nulls)


_Outcomes = tuple[NDArray[np.bool_], NDArray[np.bool_]]


def _minimum_is(known: ColumnStatistics, compare: Callable[[Any, Any], Any], value: Any) -> NDArray[np.bool_]:
    return _known_and(known.has_minimum, known.minimum, compare, value)


def _maximum_is(known: ColumnStatistics, compare: Callable[[Any, Any], Any], value: Any) -> NDArray[np.bool_]:
    return _known_and(known.has_maximum, known.maximum, compare, value)


def _known_and(
    known: NDArray[np.bool_], bounds: NDArray[Any], compare: Callable[[Any, Any], Any], value: Any
) -> NDArray[np.bool_]:
    """Where a bound is known and compares so."""
    if bounds.dtype != np.dtype(object):
        holds: NDArray[np.bool_] = known & compare(bounds, value)
        return holds
    result = np.zeros(len(known), dtype=np.bool_)
    result[known] = compare(bounds[known], _objects([value]))
    return result


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    # NumPy's own conversion would cut trailing zero bytes.
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _less(known: ColumnStatistics, value: Any) -> _Outcomes:
    return ~_minimum_is(known, operator.ge, value), ~_maximum_is(known, operator.lt, value)


def _at_most(known: ColumnStatistics, value: Any) -> _Outcomes:
    return ~_minimum_is(known, operator.gt, value), ~_maximum_is(known, operator.le, value)


def _more(known: ColumnStatistics, value: Any) -> _Outcomes:
    return ~_maximum_is(known, operator.le, value), ~_minimum_is(known, operator.gt, value)


def _at_least(known: ColumnStatistics, value: Any) -> _Outcomes:
    return ~_maximum_is(known, operator.lt, value), ~_minimum_is(known, operator.ge, value)


def _equal(known: ColumnStatistics, value: Any) -> _Outcomes:
    lies_outside = _minimum_is(known, operator.gt, value) | _maximum_is(known, operator.lt, value)
    is_it = _minimum_is(known, operator.eq, value) & _maximum_is(known, operator.eq, value)
    return ~lies_outside, ~is_it


def _among(known: ColumnStatistics, values: tuple[Any, ...]) -> _Outcomes:
    if not values:
        return np.zeros(len(known.nulls), np.bool_), np.ones(len(known.nulls), np.bool_)
    dtype = known.minimum.dtype
    among = _objects(values) if dtype == np.dtype(object) else np.array(values, dtype=dtype)
    # first, stop: (groups,) the values that lie within the bounds are among[first:stop]
    first, stop = np.zeros(len(known.nulls), np.int64), np.full(len(known.nulls), len(among), np.int64)
    first[known.has_minimum] = np.searchsorted(among, known.minimum[known.has_minimum], side="left")
    stop[known.has_maximum] = np.searchsorted(among, known.maximum[known.has_maximum], side="right")
    both = known.has_minimum & known.has_maximum
    one_value = np.zeros_like(both)
    one_value[both] = known.minimum[both] == known.maximum[both]
    return first < stop, ~(one_value & (first < stop))


_OUTCOMES: dict[str, Callable[[ColumnStatistics, Any], _Outcomes]] = {
    "<": _less,
    "<=": _at_most,
    ">": _more,
    ">=": _at_least,
    "==": _equal,
    "in": _among,
}
