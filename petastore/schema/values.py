"""Values of a NumPy column one by one, with None where one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["each_value"]


def each_value(column: NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
    """The values of a column, None where one is missing, in NumPy's own types.

    Example:
        >>> each_value(np.ma.MaskedArray([1, 2], mask=[False, True]))
        [np.int64(1), None]
    """
    if not isinstance(column, np.ma.MaskedArray):
        return column
    gone: Any = np.ma.getmaskarray(column).reshape(len(column), -1).any(axis=1)
    return [None if missing else value for missing, value in zip(gone.tolist(), column.data, strict=True)]
