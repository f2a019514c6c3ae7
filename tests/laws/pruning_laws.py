"""Laws of pruning: decisions about row groups from their statistics must agree with their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.expressions import ColumnStatistics, bind
from petastore.inventory import Inventory
from petastore.plan.prune import Verdict, prune
from petastore.plan.selection import Selection
from petastore.schema.field import UnischemaField
from tests.laws.filter_laws import FilteredRows, filtered_rows
from tests.laws.plan_laws import uneven_inventories

__all__ = ["PrunedRows", "check_pruning", "pruned_rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class PrunedRows:
    """Row groups with rows of a small table, a filter, and the statistics of the row groups."""

    table: FilteredRows
    """The filter and the distinct rows."""

    inventory: Inventory
    """The row groups."""

    places: NDArray[np.int64]
    """For each row in file order, its row number in the table; shape (rows,)."""

    statistics: Mapping[str, ColumnStatistics]
    """Statistics by column; bounds are correct, but may be wider than needed or missing."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Mask of the rows that the filter keeps, by the reference implementation; shape (rows,)."""
        kept = np.array([*self.table.kept, False], dtype=np.bool_)
        found: NDArray[np.bool_] = kept[self.places]
        return found

    def verdict(self) -> Verdict:
        """Return the result of `petastore.plan.prune`."""
        fields = {field.name: field for field in self.table.fields}
        bound = bind(self.table.expression, fields, among="the rows of a law")
        return prune(bound, self.statistics, self.inventory.rows)

    def selection(self, verdict: Verdict) -> Selection:
        """Return the selection for a verdict, with undecided row groups decided by their rows."""
        parts = np.split(self.kept, np.cumsum(self.inventory.rows)[:-1])
        counts = np.where(verdict.all, self.inventory.rows, 0)
        bitmaps = {}
        for group in verdict.undecided.tolist():
            counts[group] = parts[group].sum()
            if 0 < counts[group] < len(parts[group]):
                bitmaps[group] = parts[group]
        return Selection(counts, bitmaps)


def check_pruning(verdict: Verdict, rows: NDArray[np.int64], kept: NDArray[np.bool_]) -> None:
    """Check that no dropped row group has matching rows, and that all rows of row groups kept whole match.

    Args:
        verdict: Decision for each row group.
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
    """Draw up to `max_groups` row groups, each with adjacent rows of a small table, and correct statistics."""
    table = draw(filtered_rows(max_rows=12))
    inventory = draw(uneven_inventories(max_groups=max_groups))
    random = np.random.RandomState(draw(st.integers(0, 2**32 - 1)))
    distinct = len(table.kept)
    if distinct == 0:
        inventory = Inventory.of_rows(np.zeros_like(inventory.rows))
    # first row in the table of each row group, repeated for its rows
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
    """Return correct, possibly incomplete statistics of a column in each row group."""
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
    # A bound may be a value that does not occur, because writers truncate long text.
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
    """Return values as an array of their own dtype, like footers, or of objects; at least one element."""
    if typed and numbers and all(isinstance(number, (int, float)) for number in numbers):
        array = np.array(numbers)
        if array.dtype.kind in "iufb" and array.tolist() == numbers:
            return array
    objects = np.empty(max(len(numbers), 1), dtype=object)
    objects[: len(numbers)] = numbers
    return objects


def _in_domain(value: Any) -> Any:
    """Return a value as filters compare it: text as UTF-8, times as integer counts."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return int(value.astype(np.int64))
    return value.item() if isinstance(value, np.generic) else value
