"""Hypothesis strategies of columns for predicates, and their conversion to single rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.schema.values import each_value

__all__ = ["arrays_in_rows", "rows_of", "scalars"]

_NAT = np.datetime64("NaT", "us")
_VALUES: dict[Any, list[Any]] = {
    "int8": [-128, -1, 0, 1, 3],
    "int64": [-(2**63), 2**53, 2**53 + 1, 3, 0],
    "uint64": [2**64 - 1, 2**53 + 1, 3, 0],
    "bool": [True, False],
    "float32": [0.1, 0.0, -0.0, 3.0, float("nan")],
    "float64": [0.1, 0.0, -0.0, 3.0, float("nan"), float("inf")],
    "datetime64[us]": [np.datetime64(3, "s"), np.datetime64(0, "us"), np.datetime64(-1, "us"), _NAT],
    "datetime64[D]": [np.datetime64("1970-01-01"), np.datetime64("2026-01-31")],
    "timedelta64[ns]": [np.timedelta64(3, "s"), np.timedelta64(3, "ns")],
    "text": ["", "3", "a", "é", "\U0001f600"],
    "bytes": [b"", b"3", b"a\0"],
    "decimals": [Decimal(3), Decimal("3.00"), Decimal("0.1")],
}
ANY_VALUE: list[Any] = [value for values in _VALUES.values() for value in values] + [None, 10**30, (1, 2)]


@st.composite
def scalars(draw: st.DrawFn) -> NDArray[Any]:
    """Draw a column of scalars, shape (rows,); missing values are masked, or None."""
    kind = draw(st.sampled_from(sorted(_VALUES)))
    values = draw(st.lists(st.sampled_from([*_VALUES[kind], None]), min_size=1, max_size=12))
    if kind in ("text", "bytes", "decimals"):
        column = np.empty(len(values), dtype=object)
        column[:] = values
        return column
    dtype = np.dtype(kind)
    filled = np.array([np.zeros((), dtype)[()] if value is None else value for value in values], dtype)
    missing = np.array([value is None for value in values])
    return np.ma.MaskedArray(filled, mask=missing) if missing.any() else filled


@st.composite
def arrays_in_rows(draw: st.DrawFn) -> NDArray[Any]:
    """Draw a column of arrays: one array if all have the same shape, otherwise an object array."""
    rows = draw(st.integers(1, 6))
    missing = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    numbers = st.sampled_from([0, 1, 3, 2**53 + 1])
    if draw(st.booleans()):
        block = np.array(draw(st.lists(numbers, min_size=rows * 4, max_size=rows * 4)), np.int64).reshape(rows, 2, 2)
        mask = np.broadcast_to(missing.reshape(-1, 1, 1), block.shape)
        return np.ma.MaskedArray(block, mask=mask) if missing.any() else block
    column = np.empty(rows, dtype=object)
    for row in range(rows):
        if draw(st.booleans()):
            cell = np.array(draw(st.lists(numbers, max_size=4)), np.int64)
        else:
            cell = np.array(draw(st.lists(st.sampled_from(["a", "3"]), max_size=3)), object)
        column[row] = None if missing[row] else cell
    return column


def rows_of(columns: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Return the rows of columns as dicts, with None for missing values."""
    values = {name: each_value(column) for name, column in columns.items()}
    return [{name: of_name[row] for name, of_name in values.items()} for row in range(len(next(iter(values.values()))))]
