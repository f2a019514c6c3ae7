"""Column statistics of row groups, and possible results of a filter. No I/O.

Partition values and the statistics in footers are both represented as `ColumnStatistics`, which `petastore.plan.prune`
uses to skip row groups. Values are Python values that compare exactly (the column's domain,
`petastore.expressions.bind`). A filter is true, false or null for a row, and may have several results in a row group.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError

__all__ = ["ColumnStatistics", "Outcomes"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Outcomes:
    """Possible results of a filter: may it be true, false or null?

    The three masks have one entry per row, exactly one of which is True; or one entry per row group, where several may
    be True. `&`, `|` and `~` combine results as in SQL.

    Example:
        >>> yes, no = np.array([True]), np.array([False])
        >>> true, null = Outcomes(yes, no, no), Outcomes(no, no, yes)
        >>> (true & null).be_null.tolist(), (true | null).be_true.tolist(), (~true).be_false.tolist()
        ([True], [True], [True])
    """

    be_true: NDArray[np.bool_]
    be_false: NDArray[np.bool_]
    be_null: NDArray[np.bool_]

    def __and__(self, other: Outcomes) -> Outcomes:
        null = self.be_null & (other.be_null | other.be_true) | other.be_null & self.be_true
        return Outcomes(self.be_true & other.be_true, self.be_false | other.be_false, null)

    def __or__(self, other: Outcomes) -> Outcomes:
        return ~(~self & ~other)

    def __invert__(self) -> Outcomes:
        return Outcomes(self.be_false, self.be_true, self.be_null)


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """Bounds of one column in each row group; all arrays have shape (groups,).

    Example:
        >>> ColumnStatistics.unknown(2).nulls.tolist()
        [-1, -1]
    """

    minimum: NDArray[Any]
    """Lower bound of all values; the dtype is numeric or object."""

    maximum: NDArray[Any]
    """Upper bound of all values; the dtype is numeric or object."""

    has_minimum: NDArray[np.bool_]
    """Mask of the row groups whose `minimum` is known."""

    has_maximum: NDArray[np.bool_]
    """Mask of the row groups whose `maximum` is known."""

    nulls: NDArray[np.int64]
    """Number of missing values (nulls) of each row group; -1 if unknown."""

    may_be_nan: NDArray[np.bool_]
    """Mask of the row groups that may contain NaN, which the bounds do not cover."""

    def __post_init__(self) -> None:
        shapes = {getattr(self, field.name).shape for field in dataclasses.fields(self)}
        if len(shapes) != 1:
            raise InvalidArgumentError(
                f"the arrays of a ColumnStatistics must have the same shape, got {sorted(shapes)}"
            )

    @classmethod
    def unknown(cls, groups: int) -> ColumnStatistics:
        """Return statistics in which everything is unknown, for a number of row groups."""
        nothing = np.zeros(groups, dtype=object)
        no = np.zeros(groups, dtype=np.bool_)
        return cls(nothing, nothing, no, no, np.full(groups, -1), ~no)

    @classmethod
    def of_values(cls, values: NDArray[Any], missing: NDArray[np.bool_], rows: NDArray[np.int64]) -> ColumnStatistics:
        """Return the statistics of a column that has a single value in each row group.

        Args:
            values: Value in each row group, shape (groups,); arbitrary if missing.
            missing: Mask of the row groups in which the value is missing, shape (groups,).
            rows: Number of rows of each row group, shape (groups,).
        """
        nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=np.bool_)
        known = ~missing & ~nan
        return cls(values, values, known, known, np.where(missing, rows, 0), nan)
