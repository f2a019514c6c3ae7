"""Evaluate a filter on stored columns, vectorized over rows.

Numbers and times are compared as NumPy arrays of the field's dtype. Arrow compares text and bytes as UTF-8, and
decimals with their own scale. Only decimals that are stored as text need a Python object for each row.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from petastore.arrow import flags_of
from petastore.errors import DecodeError
from petastore.expressions.bind import Test, decimal_test
from petastore.expressions.expression import Expression, fold
from petastore.expressions.statistics import Outcomes
from petastore.schema.field import UnischemaField
from petastore.selecting.bounds import Bounds, domain_values

__all__ = ["true_rows"]

_UNBOUNDED = Bounds(None, None)
_COMPARE = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_COMPARE_CELLS = {"==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def true_rows(
    expression: Expression,
    columns: Mapping[str, Any],
    fields: Mapping[str, UnischemaField],
    bounds: Mapping[str, Bounds] | None = None,
) -> NDArray[np.bool_]:
    """Return a mask of the rows for which a filter is true, neither null nor false.

    Args:
        expression: The filter, bound (`petastore.expressions.bind`).
        columns: Stored cells of each column of the filter, by name; each a `pyarrow.Array`.
        fields: Fields of these columns.
        bounds: Minimum and maximum in the footer of some columns of this row group; decoded values are compared with
            them.

    Returns:
        Mask of shape (rows,).

    Raises:
        DecodeError: A cell does not match its field, or is outside the bounds; `row` is its position.
    """
    known = bounds or {}

    def tested(test: Test) -> Outcomes:
        name = test.column
        try:
            return _tested(test, columns[name], fields[name], known.get(name, _UNBOUNDED))
        except DecodeError as problem:
            raise problem.at(column=name) from problem.__cause__

    return fold(expression, tested).be_true


def _tested(test: Test, cells: Any, field: UnischemaField, bounds: Bounds) -> Outcomes:
    missing = flags_of(cells.is_null())
    if test.operator == "null":
        return Outcomes(missing, ~missing, np.zeros_like(missing))
    passed = (
        np.full(len(cells), test.operand)
        if test.operator == "constant"
        else _passed(test, cells, field, missing, bounds)
    )
    return Outcomes(passed & ~missing, ~passed & ~missing, missing)


def _passed(
    test: Test, cells: Any, field: UnischemaField, missing: NDArray[np.bool_], bounds: Bounds
) -> NDArray[np.bool_]:
    """Return a mask of the values for which a comparison is true, shape (rows,).

    The mask is arbitrary for missing values.
    """
    domain = domain_values(cells, field)
    bounds.check(domain, missing, sampled=True)
    if isinstance(domain, np.ndarray):
        return _passed_values(test, domain)
    if field.numpy_dtype is Decimal:
        test = decimal_test(test, domain.type.precision, domain.type.scale)
    return _passed_cells(test, domain)


def _passed_cells(test: Test, cells: Any) -> NDArray[np.bool_]:
    if test.operator == "constant":
        return np.full(len(cells), test.operand)
    if test.operator == "in":
        return flags_of(pc.is_in(cells, value_set=pa.array(test.operand, cells.type)))
    compared = _COMPARE_CELLS[test.operator](cells, pa.scalar(test.operand, cells.type))
    return flags_of(compared.fill_null(False))


def _passed_values(test: Test, values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype == np.dtype(object):
        return _passed_objects(test, values)
    if test.operator == "in":
        return np.isin(values, np.array(test.operand, dtype=values.dtype))
    found: NDArray[np.bool_] = _COMPARE[test.operator](values, test.operand)
    return found


def _passed_objects(test: Test, values: NDArray[Any]) -> NDArray[np.bool_]:
    if test.operator == "in":
        among = frozenset(test.operand)
        return np.fromiter((value in among for value in values), np.bool_, count=len(values))
    compare = _COMPARE[test.operator]
    passed = (value is not None and compare(value, test.operand) for value in values)
    return np.fromiter(passed, np.bool_, count=len(values))
