"""Exclude rows that are named by file, row group and row (`exclude_rows=`) from the rows that a plan reads. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import Inventory, RowPlace
from petastore.plan.selection import Selection

__all__ = ["exclude_rows"]


def exclude_rows(selection: Selection | None, inventory: Inventory, places: Iterable[RowPlace]) -> Selection | None:
    """Return a selection without the given rows; None (all rows) if no rows are given.

    Raises:
        InvalidArgumentError: The dataset has no row at a place.

    Example:
        >>> inventory = Inventory.of_rows([3, 5])
        >>> exclude_rows(None, inventory, [("part-00000.parquet", 1, 4)])
        Selection(7 rows in 2 of 2 row groups)
    """
    wanted = sorted(set(places))
    if not wanted:
        return selection
    _, groups, rows = inventory.find_rows(wanted, name="exclude_rows")
    excluded: dict[int, NDArray[np.bool_]] = {}
    for group, row in zip(groups.tolist(), rows.tolist(), strict=True):
        excluded.setdefault(group, np.zeros(inventory.rows[group], np.bool_))[row] = True
    whole = Selection(inventory.rows, {}) if selection is None else selection
    return whole.without(excluded, inventory.rows, by="excluded rows")
