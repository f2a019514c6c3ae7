"""Selectors: row groups picked by stored indexes, for `make_reader(rowgroup_selector=…)`. Pure.

A selector narrows down what is read to whole row groups, before filters and predicates are asked: all rows of a row
group that holds a wanted value come along. `petastore.indexing` builds the indexes.
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
    """What picks row groups by indexes. Derive from it for a selector of your own."""

    @abc.abstractmethod
    def get_index_names(self) -> list[str]:
        """Names of the indexes that it needs."""

    @abc.abstractmethod
    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Numbers of the row groups that it picks.

        Args:
            index_dict: By name, at least the indexes that it needs; each has `get_row_group_indexes(value)`.
        """


class SingleIndexSelector(RowGroupSelectorBase):
    """Picks the row groups that hold one of some values.

    Args:
        index_name: Name of the index.
        values_list: The values; for an index of where a field has a value, any one.

    Raises:
        InvalidArgumentError: The name is none, or the values are no list.

    Example:
        >>> from petastore.indexers import RowGroupIndex
        >>> by_label = RowGroupIndex("by_label", ("label",), ["cat", "dog"], [[0, 3], [1, 3]])
        >>> sorted(SingleIndexSelector("by_label", ["dog", "cow"]).select_row_groups({"by_label": by_label}))
        [1, 3]
    """

    def __init__(self, index_name: str, values_list: Iterable[Any]) -> None:
        if not isinstance(index_name, str) or not index_name:
            raise InvalidArgumentError(f"SingleIndexSelector takes the name of an index, not {index_name!r:.80}")
        if isinstance(values_list, (str, bytes)) or not isinstance(values_list, Iterable):
            raise InvalidArgumentError(f"SingleIndexSelector takes a list of values, not {values_list!r:.80}")
        self._name, self._values = index_name, list(values_list)

    def get_index_names(self) -> list[str]:
        """The one index."""
        return [self._name]

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Numbers of the row groups that hold one of the values."""
        index = index_dict[self._name]
        return {group for value in self._values for group in index.get_row_group_indexes(value)}


class _JoinedSelector(RowGroupSelectorBase):
    """A selector that is made of others."""

    def __init__(self, single_index_selectors: Iterable[RowGroupSelectorBase]) -> None:
        parts = list(single_index_selectors) if isinstance(single_index_selectors, Iterable) else []
        if not parts or not all(callable(getattr(part, "select_row_groups", None)) for part in parts):
            raise InvalidArgumentError(
                f"{type(self).__name__} takes a list of at least one selector, not {single_index_selectors!r:.80}"
            )
        self._parts = parts

    def get_index_names(self) -> list[str]:
        """The indexes that any of its parts needs, each once."""
        return list(dict.fromkeys(name for part in self._parts for name in part.get_index_names()))


class IntersectIndexSelector(_JoinedSelector):
    """Picks the row groups that each of several selectors picks.

    Args:
        single_index_selectors: The selectors, at least one; they may be joined ones.

    Raises:
        InvalidArgumentError: They are no list of selectors.

    Example:
        >>> from petastore.indexers import RowGroupIndex
        >>> index = {"by_label": RowGroupIndex("by_label", ("label",), ["cat", "dog"], [[0, 3], [1, 3]])}
        >>> parts = [SingleIndexSelector("by_label", [label]) for label in ("cat", "dog")]
        >>> IntersectIndexSelector(parts).select_row_groups(index)
        {3}
    """

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Numbers of the row groups that all of them pick."""
        return functools.reduce(operator.and_, [set(part.select_row_groups(index_dict)) for part in self._parts])


class UnionIndexSelector(_JoinedSelector):
    """Picks the row groups that one of several selectors picks.

    Args:
        single_index_selectors: The selectors, at least one; they may be joined ones.

    Raises:
        InvalidArgumentError: They are no list of selectors.

    Example:
        >>> from petastore.indexers import RowGroupIndex
        >>> index = {"by_label": RowGroupIndex("by_label", ("label",), ["cat", "dog"], [[0, 3], [1, 3]])}
        >>> parts = [SingleIndexSelector("by_label", [label]) for label in ("cat", "dog")]
        >>> sorted(UnionIndexSelector(parts).select_row_groups(index))
        [0, 1, 3]
    """

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Numbers of the row groups that one of them picks."""
        return functools.reduce(operator.or_, [set(part.select_row_groups(index_dict)) for part in self._parts])
