"""Tests of row group selectors: unions and intersections of index lookups, nested to any depth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.indexers import RowGroupIndex
from petastore.selectors import (
    IntersectIndexSelector,
    RowGroupSelectorBase,
    SingleIndexSelector,
    UnionIndexSelector,
)

INDEXES = {
    "a": RowGroupIndex("a", ("x",), [1, 2, 3], [[0, 1], [1, 2], [5]]),
    "b": RowGroupIndex("b", ("y",), ["u", "v"], [[0, 1, 2, 3], [4]]),
    "c": RowGroupIndex("c", ("z",), None, [[1, 4]]),
}
Picks = tuple[RowGroupSelectorBase, set[int]]
"""A selector, and the row groups that it must select."""


def of_one(name: str, values: list[Any]) -> Picks:
    picked = set[int]().union(*(INDEXES[name].get_row_group_indexes(value) for value in values))
    return SingleIndexSelector(name, values), picked


def of_all(parts: list[Picks]) -> Picks:
    return UnionIndexSelector([part for part, _ in parts]), set.union(*(picked for _, picked in parts))


def of_each(parts: list[Picks]) -> Picks:
    return IntersectIndexSelector([part for part, _ in parts]), set.intersection(*(picked for _, picked in parts))


ONE = st.builds(of_one, st.sampled_from("abc"), st.lists(st.sampled_from([1, 2, 3, "u", "v", "w"])))


@given(
    drawn=st.recursive(
        ONE,
        lambda inner: st.one_of(
            [st.builds(join, st.lists(inner, min_size=1, max_size=3)) for join in (of_all, of_each)]
        ),
    )
)
def test_union_and_intersection_selectors_equal_set_operations(drawn: Picks) -> None:
    selector, picked = drawn
    assert selector.select_row_groups(INDEXES) == picked
    assert set(selector.get_index_names()) <= {"a", "b", "c"}


def test_combined_selectors_need_the_indexes_of_all_parts() -> None:
    parts = [SingleIndexSelector("b", ["u"]), SingleIndexSelector("a", [1]), SingleIndexSelector("b", ["v"])]
    assert IntersectIndexSelector([UnionIndexSelector(parts[:2]), parts[2]]).get_index_names() == ["b", "a"]


_LISTED = "single_index_selectors must be a list of at least one selector"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SingleIndexSelector("", [1]), "index_name must be a non-empty str, got ''"),
        (lambda: SingleIndexSelector("a", "text"), "values_list must be a list, got 'text'"),
        (lambda: SingleIndexSelector("a", 7), "values_list must be a list, got 7"),  # type: ignore[arg-type]
        (lambda: UnionIndexSelector([]), rf"{_LISTED}, got \[\]"),
        (lambda: IntersectIndexSelector([]), rf"{_LISTED}, got \[\]"),
        (lambda: IntersectIndexSelector(7), f"{_LISTED}, got 7"),  # type: ignore[arg-type]
        (lambda: UnionIndexSelector(["a"]), rf"{_LISTED}, got \['a'\]"),  # type: ignore[list-item]
    ],
)
def test_selector_invalid_arguments_raise(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{message}$"):
        make()
