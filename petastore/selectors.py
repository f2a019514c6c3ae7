"""Selectors: select row groups by stored indexes. No I/O.

Pass a selector as `make_reader(rowgroup_selector=…)`. A selector selects whole row groups, before filters and
predicates are applied. A row group that contains a wanted value is read with all of its rows. `petastore.indexing`
builds the indexes.
"""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from petastore.errors import InvalidArgumentError

__all__ = ["IntersectIndexSelector", "RowGroupSelectorBase", "SingleIndexSelector", "UnionIndexSelector"]


class RowGroupSelectorBase(abc.ABC):
    """Base class of row-group selectors. Derive from it for your own selector."""

    @abc.abstractmethod
    def get_index_names(self) -> list[str]:
        """Return the names of the indexes that the selector needs."""

    @abc.abstractmethod
    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the selected row groups, numbered from 0 through the whole dataset.

        Args:
            index_dict: Dict from index name to index, with at least the indexes that the selector needs. An index has a
                method `get_row_group_indexes(value)`.
        """


class SingleIndexSelector(RowGroupSelectorBase):
    """A row-group selector by one index: row groups with any of the given values.

    Args:
        index_name: Name of the index.
        values_list: The values; for an index by `FieldNotNullIndexer`, any single value.

    Raises:
        InvalidArgumentError: `index_name` is not a name, or `values_list` is not a list.

    Example:
        >>> from petastore.indexers import RowGroupIndex
        >>> by_label = RowGroupIndex("by_label", ("label",), ["cat", "dog"], [[0, 3], [1, 3]])
        >>> sorted(SingleIndexSelector("by_label", ["dog", "cow"]).select_row_groups({"by_label": by_label}))
        [1, 3]
    """

    def __init__(self, index_name: str, values_list: Iterable[Any]) -> None:
        if not isinstance(index_name, str) or not index_name:
            raise InvalidArgumentError(f"index_name must be a non-empty str, got {index_name!r:.80}")
        if isinstance(values_list, (str, bytes)) or not isinstance(values_list, Iterable):
            raise InvalidArgumentError(f"values_list must be a list, got {values_list!r:.80}")
        self._name, self._values = index_name, list(values_list)

    def get_index_names(self) -> list[str]:
        """Return the name of the index."""
        return [self._name]

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the numbers of the row groups that contain any of the values."""
        index = index_dict[self._name]
        return {group for value in self._values for group in index.get_row_group_indexes(value)}


class _JoinedSelector(RowGroupSelectorBase):
    """Base class of selectors that combine the results of other selectors."""

    def __init__(self, single_index_selectors: Iterable[RowGroupSelectorBase]) -> None:
        parts = list(single_index_selectors) if isinstance(single_index_selectors, Iterable) else []
        if not parts or not all(callable(getattr(part, "select_row_groups", None)) for part in parts):
            raise InvalidArgumentError(
                f"single_index_selectors must be a list of at least one selector, got {single_index_selectors!r:.80}"
            )
        self._parts = parts

    def get_index_names(self) -> list[str]:
        """Return the distinct names of the indexes that any of the selectors needs."""
        return list(dict.fromkeys(name for part in self._parts for name in part.get_index_names()))


class IntersectIndexSelector(_JoinedSelector):
    """A row-group selector that combines selectors with AND.

    It selects the row groups that all of them select.

    Args:
        single_index_selectors: At least one selector; joined selectors are allowed.

    Raises:
        InvalidArgumentError: `single_index_selectors` is not a list of selectors.

    Example:
        >>> from petastore.indexers import RowGroupIndex
        >>> index = {"by_label": RowGroupIndex("by_label", ("label",), ["cat", "dog"], [[0, 3], [1, 3]])}
        >>> parts = [SingleIndexSelector("by_label", [label]) for label in ("cat", "dog")]
        >>> IntersectIndexSelector(parts).select_row_groups(index)
        {3}
    """

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the numbers of the row groups that all selectors select."""
        return functools.reduce(operator.and_, [set(part.select_row_groups(index_dict)) for part in self._parts])


class UnionIndexSelector(_JoinedSelector):
    """A row-group selector that combines selectors with OR.

    It selects the row groups that any of them selects.

    Args:
        single_index_selectors: At least one selector; joined selectors are allowed.

    Raises:
        InvalidArgumentError: `single_index_selectors` is not a list of selectors.

    Example:
        >>> from petastore.indexers import RowGroupIndex
        >>> index = {"by_label": RowGroupIndex("by_label", ("label",), ["cat", "dog"], [[0, 3], [1, 3]])}
        >>> parts = [SingleIndexSelector("by_label", [label]) for label in ("cat", "dog")]
        >>> sorted(UnionIndexSelector(parts).select_row_groups(index))
        [0, 1, 3]
    """

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the numbers of the row groups that any selector selects."""
        return functools.reduce(operator.or_, [set(part.select_row_groups(index_dict)) for part in self._parts])
