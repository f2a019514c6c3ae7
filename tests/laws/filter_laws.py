"""Reference implementation of filters, which evaluates row by row, and Hypothesis strategies of filters and rows.

`row_truth` defines the meaning of a filter. It shares no code with the fast implementations, except for literals.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from petastore.expressions import (
    And,
    Comparison,
    Expression,
    Membership,
    Not,
    NullTest,
    Or,
    col,
)
from petastore.expressions.literal import as_literal
from petastore.schema.field import UnischemaField

__all__ = ["FilteredRows", "filtered_rows", "row_truth"]


def row_truth(expression: Expression, row: Mapping[str, Any]) -> bool | None:
    """Evaluate a filter for one row; return True, False, or None for null.

    Args:
        expression: The filter, not bound to a schema.
        row: Decoded values by column; None for null.
    """
    if isinstance(expression, Not):
        inner = row_truth(expression.part, row)
        return None if inner is None else not inner
    if isinstance(expression, (And, Or)):
        outcomes = [row_truth(part, row) for part in expression.parts]
        decisive = isinstance(expression, Or)
        if decisive in outcomes:
            return decisive
        return None if None in outcomes else not decisive
    if isinstance(expression, NullTest):
        return row[expression.column] is None
    assert isinstance(expression, (Comparison, Membership))
    value = row[expression.column]
    if value is None:
        return None
    if isinstance(expression, Membership):
        return any(_compare(value, "==", literal) for literal in expression.literals)
    return _compare(value, expression.operator, expression.literal)


def _compare(value: Any, operator: str, literal: Any) -> bool:
    left, right = _exact(value), _exact(literal)
    if any(isinstance(side, float) and math.isnan(side) for side in (left, right)):
        return operator == "!="
    outcomes = {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return bool(outcomes[operator])


def _exact(value: Any) -> Any:
    """Return a value that Python compares exactly; times become fractions of a second."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        unit = np.datetime_data(value.dtype)[0]
        length = 86400 if unit == "D" else Fraction(1, 1000 ** ("s", "ms", "us", "ns").index(unit))
        return int(value.astype(np.int64)) * length
    return value.item() if isinstance(value, np.generic) else value


@dataclasses.dataclass(frozen=True)
class FilteredRows:
    """A small table, and a filter for it."""

    fields: tuple[UnischemaField, ...]
    columns: Mapping[str, Sequence[Any]]
    """Values by field; None for null."""

    expression: Expression

    @property
    def kept(self) -> list[bool]:
        """Mask of the rows that the filter keeps, by the reference implementation."""
        rows = zip(*self.columns.values(), strict=True)
        return [row_truth(self.expression, dict(zip(self.columns, row, strict=True))) is True for row in rows]


def _integers(dtype: str) -> tuple[Any, Any]:
    limits = np.iinfo(dtype)
    edges = [int(limits.min), int(limits.max), int(limits.max) - 1]
    values = st.sampled_from([max(-1, edges[0]), 0, 1, 2, 3, *edges]).map(np.dtype(dtype).type)
    literals = st.sampled_from(
        [*range(-2, 5), *edges, edges[0] - 1, edges[1] + 1, 10**30, 0.5, 2.0, -math.inf, math.nan]
    )
    return values, literals | st.sampled_from([Decimal("1.5"), Decimal(2), Decimal("1e3000"), Decimal("1e-3000")])


def _floats(dtype: str) -> tuple[Any, Any]:
    numbers = [-math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, float(np.finfo(dtype).max), float(np.finfo(dtype).tiny), math.inf]
    values = st.sampled_from([*numbers, math.nan]).map(lambda number: np.dtype(dtype).type(number))
    literals = st.sampled_from([*numbers, math.nan, 0, 1, 2**53 + 1, 10**400, float(np.float32(0.1)), Decimal("0.1")])
    return values, literals


def _times(kind: str, unit: str) -> tuple[Any, Any]:
    def time(count: int, of_unit: str) -> Any:
        return np.array(count).astype(f"{kind}8[{of_unit}]")[()]

    counts = st.sampled_from([-500_000, -1, 0, 1, 2, 1_000_000])
    literals = st.builds(
        time, st.sampled_from([-1, 0, 1, 999, 86_400_000, 2**62]), st.sampled_from(["s", "ms", "us", "ns"])
    )
    return counts.map(lambda count: time(count, unit)), literals


_TEXTS = ["", "a", "a\x00", "ab", "b", "é", "\uffff", "\U0001f600"]
_KINDS: dict[Any, tuple[Any, Any]] = {
    np.bool_: (st.booleans().map(np.bool_), st.booleans()),
    **{dtype: _integers(dtype) for dtype in ("int8", "uint8", "int64", "uint32", "uint64")},
    **{dtype: _floats(dtype) for dtype in ("float16", "float32", "float64")},
    np.str_: (st.sampled_from(_TEXTS), st.sampled_from([*_TEXTS, "c"])),
    np.bytes_: (
        st.sampled_from([text.encode() for text in _TEXTS] + [b"\xff"]),
        st.sampled_from([b"", b"a\x00", b"\xff"]),
    ),
    Decimal: (
        st.sampled_from(
            [Decimal("-1.5"), Decimal(0), Decimal("0.1"), Decimal("1.000000000000000001"), Decimal(10) ** 19]
        ),
        st.sampled_from([Decimal("0.1"), Decimal("0.10"), 0, 1, Decimal("1e-19"), Decimal(10) ** 40, -(10**30)]),
    ),
    "datetime64[D]": _times("M", "D"),
    "datetime64[us]": _times("M", "us"),
    "datetime64[ns]": _times("M", "ns"),
    "timedelta64[us]": _times("m", "us"),
}


_OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


@st.composite
def filtered_rows(draw: Any, *, max_rows: int = 30, dtypes: Sequence[Any] = tuple(_KINDS)) -> FilteredRows:
    """Draw a table of one to three columns, and a filter for it.

    Args:
        draw: Draw function, passed by Hypothesis.
        max_rows: Largest number of rows.
        dtypes: Dtypes to draw columns from.
    """
    fields, columns, literals = [], {}, {}
    rows = draw(st.integers(0, max_rows))
    for number in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(dtypes))
        field = UnischemaField(f"c{number}", dtype, nullable=draw(st.booleans()))
        values, literals[field.name] = _KINDS[dtype]
        cells = st.none() | values if field.nullable else values
        columns[field.name] = draw(st.lists(cells, min_size=rows, max_size=rows))
        fields.append(field)
    names = draw(st.lists(st.sampled_from(sorted(literals)), min_size=1, max_size=4))
    expression = _joined(draw, [_leaf(draw, name, literals[name]) for name in names])
    return FilteredRows(tuple(fields), columns, expression)


def _leaf(draw: Any, name: str, literals: Any) -> Expression:
    form = draw(st.sampled_from([*_OPERATORS, "in", "null"]))
    if form in _OPERATORS:
        return Comparison(name, form, as_literal(draw(literals)))
    return col(name).isin(draw(st.lists(st.none() | literals, max_size=4))) if form == "in" else col(name).is_null()


def _joined(draw: Any, parts: list[Expression]) -> Expression:
    """Combine the parts into one expression with random and, or and not."""
    while True:
        place = draw(st.integers(0, len(parts) - 1))
        if draw(st.booleans()):
            parts[place] = ~parts[place]
        if len(parts) == 1:
            return parts[0]
        place = min(place, len(parts) - 2)
        left, right = parts[place : place + 2]
        parts[place : place + 2] = [left & right if draw(st.booleans()) else left | right]
