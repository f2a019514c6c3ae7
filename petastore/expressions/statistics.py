"""What is known of a column before it is read, row group by row group. Pure.

Partition values and the statistics in footers both come down to this; `petastore.plan.prune` decides by it. Values are
in the column's domain (`petastore.expressions.bind`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError

__all__ = ["ColumnStatistics"]


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """Bounds of one column in each row group; all arrays have shape (groups,).

    Bounds enclose the values that are there and not NaN; they need not be taken on. Where nothing is known the arrays
    hold anything at all, and the masks say so.

    Example:
        >>> ColumnStatistics.unknown(2).nulls.tolist()
        [-1, -1]
    """

    minimum: NDArray[Any]
    """No value lies below; of a number's dtype, or of dtype object."""

    maximum: NDArray[Any]
    """No value lies above."""

    has_minimum: NDArray[np.bool_]
    """Where `minimum` is known."""

    has_maximum: NDArray[np.bool_]
    """Where `maximum` is known."""

    nulls: NDArray[np.int64]
    """Missing values; -1 where that is not known."""

    may_be_nan: NDArray[np.bool_]
    """Where values may be NaN, which no bound tells of."""

    def __post_init__(self) -> None:
        shapes = {getattr(self, field.name).shape for field in dataclasses.fields(self)}
        if len(shapes) != 1:
            raise InvalidArgumentError(f"arrays of one ColumnStatistics have the shapes {sorted(shapes)}")

    @classmethod
    def unknown(cls, groups: int) -> ColumnStatistics:
        """Nothing is known of any row group."""
        nothing = np.zeros(groups, dtype=object)
        no = np.zeros(groups, dtype=np.bool_)
        return cls(nothing, nothing, no, no, np.full(groups, -1), ~no)

    @classmethod
    def of_values(cls, values: NDArray[Any], missing: NDArray[np.bool_], rows: NDArray[np.int64]) -> ColumnStatistics:
        """A column that has one value in all rows of a row group.

        Args:
            values: The value of each row group; anything where it is missing.
            missing: Where the value is missing.
            rows: Rows of each row group.
        """
        nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=np.bool_)
        known = ~missing & ~nan
        return cls(values, values, known, known, np.where(missing, rows, 0), nan)
