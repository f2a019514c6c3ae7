"""Row groups that `rowgroup_selector=` picks, and rows that are excluded."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, PetastoreError, TransformError
from petastore.inventory import Inventory, RowPlace
from petastore.plan.selection import Selection
from petastore.storage.metadata.row_group_index import find_indexes

__all__ = ["exclude_rows", "selected_groups"]


def selected_groups(dataset: Dataset, selector: Any) -> NDArray[np.bool_]:
    """Return the row groups of a dataset that a selector picks.

    Args:
        dataset: Dataset whose stored indexes are used; only the indexes named by the selector are read.
        selector: One of `petastore.selectors`, or an object with `get_index_names()` and `select_row_groups(indexes)`.

    Returns:
        Mask of shape (row groups,).

    Raises:
        InvalidArgumentError: The selector has the wrong type, names an unknown index, or picks row groups outside the
            dataset.
        TransformError: The selector raised.
        DatasetChangedError: An index is stale.
        MetadataError: An index is damaged.
    """
    methods = [getattr(selector, name, None) for name in ("get_index_names", "select_row_groups")]
    if isinstance(selector, type) or not all(map(callable, methods)):
        raise InvalidArgumentError(
            "rowgroup_selector must be one of petastore.selectors, such as SingleIndexSelector('by_id', [7]), got "
            f"{selector!r:.80}"
        )
    names = selector.get_index_names()
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"get_index_names() of the selector must return a list of names, got {names!r:.80}")
    indexes = find_indexes(dataset.location, dataset.inventory, names)
    try:
        found = list(selector.select_row_groups(indexes))
    except PetastoreError:
        raise
    except Exception as problem:
        raise TransformError(f"the row-group selector raised {type(problem).__name__}: {problem}") from problem
    picked = np.zeros(dataset.inventory.num_row_groups, dtype=np.bool_)
    for group in found:
        if not isinstance(group, numbers.Integral) or not 0 <= int(group) < len(picked):
            raise InvalidArgumentError(
                f"rowgroup_selector must pick row groups below {len(picked):,}, the number in {dataset.url}, got "
                f"{group!r:.80}"
            )
        picked[int(group)] = True
    return picked


def exclude_rows(selection: Selection | None, inventory: Inventory, places: Iterable[RowPlace]) -> Selection | None:
    """Return a selection without the given rows; None (all rows) if no rows are given.

    Args:
        selection: Rows selected so far; None means all.
        inventory: Inventory of the dataset.
        places: `(file, row group, row)` of each row to exclude.

    Raises:
        InvalidArgumentError: The dataset does not have one of these rows.

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
