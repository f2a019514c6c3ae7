"""Columns as predicates are given them, and their values one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.schema.values import each_value

__all__ = ["of_distinct", "python_values"]


def python_values(column: NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
    """As `each_value`, but numbers as Python's, which is quicker to compare; times stay NumPy's."""
    values = each_value(column)
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.tolist()
    return values


def of_distinct(column: NDArray[Any], answer: Callable[[Any], bool]) -> NDArray[np.bool_]:
    """An answer for each value of a column of scalars; numbers and times that are alike in all bits are asked once.

    Example:
        >>> of_distinct(np.array([3, 5, 3]), lambda value: value > 4).tolist()
        [False, True, False]
    """
    if isinstance(column, np.ma.MaskedArray) or column.dtype.kind not in "biufmM" or column.dtype.itemsize > 8:
        return np.fromiter((answer(value) for value in each_value(column)), np.bool_, count=len(column))
    bits = np.ascontiguousarray(column).view(f"u{column.dtype.itemsize}")
    distinct, place = np.unique(bits, return_inverse=True)
    answers = np.fromiter((answer(value) for value in distinct.view(column.dtype)), np.bool_, count=len(distinct))
    return answers[place.reshape(-1)]
