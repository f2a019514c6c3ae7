"""Missing values of NumPy columns: the mask of rows, and values one by one with None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["each_value", "masked_rows"]


def each_value(column: NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
    """Return the values of a column in NumPy's types, None where one is missing.

    Example:
        >>> each_value(np.ma.MaskedArray([1, 2], mask=[False, True]))
        [np.int64(1), None]
    """
    if not isinstance(column, np.ma.MaskedArray):
        return column
    missing = masked_rows(column).tolist()
    return [None if is_missing else value for is_missing, value in zip(missing, column.data, strict=True)]


def masked_rows(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each row of a column whether any of it is masked; shape (rows,).

    Example:
        >>> masked_rows(np.ma.masked_equal([[1, 2], [0, 3]], 0)), masked_rows(np.zeros(1))
        (array([False,  True]), array([False]))
    """
    if not isinstance(column, np.ma.MaskedArray) or column.mask is np.ma.nomask:
        return np.zeros(len(column), dtype=np.bool_)
    mask = np.ma.getmaskarray(column)
    return np.logical_or.reduce(mask, axis=tuple(range(1, mask.ndim)), dtype=np.bool_)
