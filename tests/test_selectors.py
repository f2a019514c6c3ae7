"""Selectors pick row groups by what indexes say, joined in any depth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import RequestError
from petastore.indexers import RowGroupIndex
from petastore.selectors import IntersectIndexSelector, SingleIndexSelector, UnionIndexSelector

INDEXES = {
    "a": RowGroupIndex("a", ("x",), [1, 2, 3], [[0, 1], [1, 2], [5]]),
    "b": RowGroupIndex("b", ("y",), ["u", "v"], [[0, 1, 2, 3], [4]]),
    "c": RowGroupIndex("c", ("z",), None, [[1, 4]]),
}
ONE = st.builds(SingleIndexSelector, st.sampled_from("abc"), st.lists(st.sampled_from([1, 2, 3, "u", "v", "w"])))


def picked(selector: Any) -> set[int]:
    """What a selector picks, by definition."""
    if isinstance(selector, SingleIndexSelector):
        index = INDEXES[selector._name]
        return set().union(*(index.get_row_group_indexes(value) for value in selector._values))
    parts = [picked(part) for part in selector._parts]
    return set.union(*parts) if isinstance(selector, UnionIndexSelector) else set.intersection(*parts)


@given(
    selector=st.recursive(
        ONE,
        lambda parts: (
            st.builds(UnionIndexSelector, st.lists(parts, min_size=1, max_size=3))
            | st.builds(IntersectIndexSelector, st.lists(parts, min_size=1, max_size=3))
        ),
    )
)
def test_unions_and_intersections_pick_what_sets_say(selector: Any) -> None:
    assert selector.select_row_groups(INDEXES) == picked(selector)
    assert set(selector.get_index_names()) <= {"a", "b", "c"}


def test_joined_selectors_need_all_indexes_of_their_parts() -> None:
    parts = [SingleIndexSelector("b", ["u"]), SingleIndexSelector("a", [1]), SingleIndexSelector("b", ["v"])]
    assert IntersectIndexSelector([UnionIndexSelector(parts[:2]), parts[2]]).get_index_names() == ["b", "a"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: SingleIndexSelector("", [1]),
        lambda: SingleIndexSelector("a", "text"),
        lambda: SingleIndexSelector("a", 7),  # type: ignore[arg-type]
        lambda: UnionIndexSelector([]),
        lambda: IntersectIndexSelector([]),
        lambda: IntersectIndexSelector(7),  # type: ignore[arg-type]
        lambda: UnionIndexSelector(["a"]),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(RequestError, match="Selector takes"):
        make()
