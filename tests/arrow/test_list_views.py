"""Tests of the conversion of list views to lists: equal values, also where pyarrow's cast loses some."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.arrow import conformed

LISTS = st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3), max_size=7)


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("wanted", [pa.list_, pa.large_list])
@given(data=st.data())
def test_list_views_become_lists_of_the_same_values(view: Any, wanted: Any, data: st.DataObject) -> None:
    values = data.draw(LISTS)
    cells = pa.array(values, view(pa.int32())).slice(data.draw(st.integers(0, len(values))))
    if len(cells) and data.draw(st.booleans()):
        picked = st.lists(st.integers(0, len(cells) - 1), max_size=4)
        cells = cells.take(pa.array(data.draw(picked), pa.int64()))
    found = conformed(cells, wanted(pa.int64()))
    found.validate(full=True)
    assert found.type == wanted(pa.int64())
    assert found.to_pylist() == cells.to_pylist()


def test_overlapping_list_views_become_lists_of_the_same_values() -> None:
    offsets, sizes = pa.array([2, 0, 1], pa.int32()), pa.array([1, 3, 0], pa.int32())
    cells = pa.ListViewArray.from_arrays(offsets, sizes, pa.array([7, 8, 9]))
    assert conformed(cells, pa.list_(pa.int64())).to_pylist() == cells.to_pylist() == [[9], [7, 8, 9], []]
