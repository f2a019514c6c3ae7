"""Selected row groups: what a selector picks by the stored indexes of a dataset."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, PetastoreError, TransformError
from petastore.storage.metadata.find_index import find_indexes

__all__ = ["selected_groups"]


def selected_groups(dataset: Dataset, selector: Any) -> NDArray[np.bool_]:
    """Which row groups of a dataset a selector picks.

    Args:
        dataset: Whose indexes are asked; only those that the selector names are read.
        selector: One of `petastore.selectors`, or an object with `get_index_names()` and `select_row_groups(indexes)`.

    Returns:
        Shape (row groups,).

    Raises:
        InvalidArgumentError: It is no selector, names an index that there is not, or picks row groups that there are
            not.
        TransformError: It raised.
        DatasetChangedError: An index is stale.
        MetadataError: An index is damaged.
    """
    methods = [getattr(selector, name, None) for name in ("get_index_names", "select_row_groups")]
    if isinstance(selector, type) or not all(map(callable, methods)):
        raise InvalidArgumentError(
            f"rowgroup_selector={selector!r:.80} is none: give one of petastore.selectors, such as "
            "SingleIndexSelector('by_id', [7])"
        )
    names = selector.get_index_names()
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(
            f"get_index_names() of the selector returned {names!r:.80}; it returns a list of names"
        )
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
                f"the row-group selector picks {group!r:.80}, but {dataset.url} has {len(picked):,} row groups, "
                "numbered from 0"
            )
        picked[int(group)] = True
    return picked
