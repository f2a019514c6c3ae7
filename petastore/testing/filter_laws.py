"""Laws of filters, for Hypothesis: a slow evaluator that goes row by row, and strategies for fields, rows and filters.

`row_truth` is the definition of what a filter means. It shares nothing with the fast paths but the literals.

`check_pruning` is the law of whatever decides about row groups by what is known of them before they are read.
`pruned_rows()` draws what it is tried with: row groups that are full of the rows of a small table, and statistics that
are true of them.
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
from numpy.typing import NDArray

from petastore.expressions import (
    And,
    ColumnStatistics,
    Comparison,
    Expression,
    Membership,
    Not,
    NullTest,
    Or,
    bind,
    col,
)
from petastore.expressions.literal import as_literal
from petastore.inventory import Inventory
from petastore.plan.prune import Verdict, prune
from petastore.plan.selection import Selection
from petastore.schema.field import UnischemaField
from petastore.testing.plan_laws import uneven_inventories

__all__ = ["FilteredRows", "PrunedRows", "check_pruning", "filtered_rows", "pruned_rows", "row_truth"]


def row_truth(expression: Expression, row: Mapping[str, Any]) -> bool | None:
    """What a filter says of one row: True, False, or None for null.

    Args:
        expression: As it was written, not bound.
        row: Values as they are decoded; None where one is missing.
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
    """A value that Python compares exactly; times are fractions of a second."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        unit = np.datetime_data(value.dtype)[0]
        length = 86400 if unit == "D" else Fraction(1, 1000 ** ("s", "ms", "us", "ns").index(unit))
        return int(value.astype(np.int64)) * length
    return value.item() if isinstance(value, np.generic) else value


@dataclasses.dataclass(frozen=True)
class FilteredRows:
    """A small table and a filter over it."""

    fields: tuple[UnischemaField, ...]
    columns: Mapping[str, Sequence[Any]]
    """Of each field: its values, None where one is missing."""

    expression: Expression

    @property
    def kept(self) -> list[bool]:
        """Which rows the filter keeps, by definition."""
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
    """Tables of one to three columns, with a filter over them.

    Args:
        draw: Hypothesis gives it.
        max_rows: Rows at most.
        dtypes: Dtypes of columns, among those that filters compare.
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
    """The parts as one expression: neighbours are joined in any order, and anything may be negated."""
    while True:
        place = draw(st.integers(0, len(parts) - 1))
        if draw(st.booleans()):
            parts[place] = ~parts[place]
        if len(parts) == 1:
            return parts[0]
        place = min(place, len(parts) - 2)
        left, right = parts[place : place + 2]
        parts[place : place + 2] = [left & right if draw(st.booleans()) else left | right]


@dataclasses.dataclass(frozen=True, eq=False)
class PrunedRows:
    """Row groups of rows of a small table, a filter over them, and what is known of them before they are read."""

    table: FilteredRows
    """The filter, and the distinct rows."""

    inventory: Inventory
    """The row groups."""

    places: NDArray[np.int64]
    """Of each row of the row groups, in file order: its row in the table; shape (rows,)."""

    statistics: Mapping[str, ColumnStatistics]
    """By column; every bound is true, though perhaps wider than need be, and some are not known."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which rows the filter keeps, by definition; shape (rows,)."""
        kept = np.array([*self.table.kept, False], dtype=np.bool_)
        found: NDArray[np.bool_] = kept[self.places]
        return found

    def verdict(self) -> Verdict:
        """What `petastore.plan.prune` says."""
        fields = {field.name: field for field in self.table.fields}
        bound = bind(self.table.expression, fields, among="the rows of a law")
        return prune(bound, self.statistics, self.inventory.rows)

    def selection(self, verdict: Verdict) -> Selection:
        """What is selected by a verdict, and by looking at the rows of what it left undecided."""
        parts = np.split(self.kept, np.cumsum(self.inventory.rows)[:-1])
        counts = np.where(verdict.all, self.inventory.rows, 0)
        bitmaps = {}
        for group in verdict.undecided.tolist():
            counts[group] = parts[group].sum()
            if 0 < counts[group] < len(parts[group]):
                bitmaps[group] = parts[group]
        return Selection(counts, bitmaps)


def check_pruning(verdict: Verdict, rows: NDArray[np.int64], kept: NDArray[np.bool_]) -> None:
    """No row group is dropped that has a row which the filter keeps, and none kept whole that has one it does not.

    Args:
        verdict: What was decided.
        rows: Rows of each row group, shape (groups,).
        kept: Which rows the filter keeps, in file order, shape (rows,).

    Example:
        >>> verdict = Verdict(none=np.array([True, False]), all=np.array([False, False]))
        >>> check_pruning(verdict, np.array([2, 2]), np.array([False, True, True, False]))
        Traceback (most recent call last):
        AssertionError: row groups [0] are dropped, but have rows that the filter keeps
    """
    upto = np.concatenate([[0], np.cumsum(kept)])
    ends = np.cumsum(rows)
    counts = upto[ends] - upto[ends - rows]
    both = np.flatnonzero(verdict.none & verdict.all)
    assert len(both) == 0, f"row groups {both[:5].tolist()} are both dropped and kept whole"
    dropped = np.flatnonzero(verdict.none & (counts > 0))
    assert len(dropped) == 0, f"row groups {dropped[:5].tolist()} are dropped, but have rows that the filter keeps"
    whole = np.flatnonzero(verdict.all & (counts < rows))
    assert len(whole) == 0, f"row groups {whole[:5].tolist()} are kept whole, but have rows that the filter drops"


@st.composite
def pruned_rows(draw: Any, *, max_groups: int = 5000) -> PrunedRows:
    """Row groups, 1 to `max_groups`, each of rows that lie near each other in a small table, with true statistics."""
    table = draw(filtered_rows(max_rows=12))
    inventory = draw(uneven_inventories(max_groups=max_groups))
    random = np.random.RandomState(draw(st.integers(0, 2**32 - 1)))
    distinct = len(table.kept)
    if distinct == 0:
        inventory = Inventory.of_rows(np.zeros_like(inventory.rows))
    # of each row group: where its rows begin in the table, and how many of them it has
    begins = np.repeat(random.randint(max(distinct, 1), size=inventory.num_row_groups), inventory.rows)
    widths = np.repeat(random.randint(1, 5, size=inventory.num_row_groups), inventory.rows)
    places = (begins + random.randint(10**6, size=inventory.num_rows) % widths) % max(distinct, 1)
    statistics = {
        field.name: _statistics(field, table.columns[field.name], places, inventory.rows, random)
        for field in table.fields
        if draw(st.sampled_from([True, True, False]))
    }
    return PrunedRows(table, inventory, places, statistics)


def _statistics(
    field: UnischemaField,
    cells: Sequence[Any],
    places: NDArray[np.int64],
    rows: NDArray[np.int64],
    random: np.random.RandomState,
) -> ColumnStatistics:
    """What may truly be said of a column in each row group."""
    values = [None if cell is None else _in_domain(cell) for cell in cells]
    numbers = sorted({value for value in values if value is not None and value == value})
    rank = {value: place for place, value in enumerate(numbers)}
    is_nan = np.array([value is not None and value != value for value in values] or [False])[places]
    is_null = np.array([value is None for value in values] or [False])[places]
    ranks = np.array([rank.get(value, -1) for value in values] or [-1])[places]
    groups = np.repeat(np.arange(len(rows)), rows)
    low, high = np.full(len(rows), len(numbers)), np.full(len(rows), -1)
    real = ranks >= 0
    np.minimum.at(low, groups[real], ranks[real])
    np.maximum.at(high, groups[real], ranks[real])
    has_values = high >= 0
    # A bound need not be taken on: writers cut long texts short.
    low, high = (
        bound.clip(0, max(len(numbers) - 1, 0)) for bound in (low - random.randint(2), high + random.randint(2))
    )
    known = [has_values & (random.rand(len(rows)) < 0.9) for _ in range(2)]
    nulls = np.where(random.rand(len(rows)) < 0.2, -1, np.bincount(groups, is_null, len(rows)).astype(np.int64))
    may_be_nan = np.bincount(groups, is_nan, len(rows)) > 0
    if field.dtype.kind == "f":
        may_be_nan |= random.rand(len(rows)) < 0.5
    bounds = _bounds(numbers, typed=bool(random.randint(2)))
    return ColumnStatistics(bounds[low], bounds[high], known[0], known[1], nulls, may_be_nan)


def _bounds(numbers: list[Any], *, typed: bool) -> NDArray[Any]:
    """Values as an array of their own dtype, as footers give them, or of objects; one that means nothing if none."""
    if typed and numbers and all(isinstance(number, (int, float)) for number in numbers):
        array = np.array(numbers)
        if array.dtype.kind in "iufb" and array.tolist() == numbers:
            return array
    objects = np.empty(max(len(numbers), 1), dtype=object)
    objects[: len(numbers)] = numbers
    return objects


def _in_domain(value: Any) -> Any:
    """A value as filters compare it: text as UTF-8, times as counts of their unit."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return int(value.astype(np.int64))
    return value.item() if isinstance(value, np.generic) else value
