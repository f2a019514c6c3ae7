"""A loaded row group knows where each of its rows lies, and how large its values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import Unischema, UnischemaField
from petastore.decoding.buffers import Buffers
from petastore.readers.loaded.arena import Arena
from petastore.readers.loaded.layout import Layout
from petastore.readers.loaded.row_group import LoadedRowGroup

LAYOUT = Layout.of(Unischema("s", [UnischemaField("x", np.float32)]), rows=100)


def loaded(rows: int, read_order: Any, **more: Any) -> LoadedRowGroup:
    order = None if read_order is None else np.array(read_order, np.int64)
    return LoadedRowGroup(rows, order, (), {}, {}, {}, **{"sizes": {}, **more})


@given(st.integers(0, 30), st.data())
def test_each_row_that_is_wanted_lies_where_it_comes_in_read_order(rows: int, data: st.DataObject) -> None:
    wanted = data.draw(st.permutations(range(rows)).map(lambda order: order[: data.draw(st.integers(0, rows))]))
    places = loaded(rows, wanted).places
    assert places is not None
    assert places[wanted].tolist() == list(range(len(wanted))) if wanted else (places == -1).all()
    assert (places >= 0).sum() == len(wanted)


def test_in_the_order_of_the_file_places_are_not_looked_up() -> None:
    assert loaded(5, None).places is None


@pytest.mark.parametrize(("read_order", "written"), [(None, [0, 1, 2]), ([2, 0, 1], [1, 2, 0])])
def test_in_an_arena_places_are_written_down_there(read_order: Any, written: list[int]) -> None:
    arena = Arena(LAYOUT, 10, Buffers())
    before, place = arena.place(4), arena.place(3)
    assert before is not None
    assert place is not None
    row_group = loaded(3, read_order, place=place)
    found = row_group.places
    assert (found is None) == (read_order is None)
    assert arena.places[4:7].tolist() == written


def test_the_largest_value_and_all_of_them_are_known() -> None:
    row_group = loaded(3, None, sizes={"word": np.array([3, 9, 4]), "none": np.array([], np.int64)})
    assert row_group.largest == {"word": 9, "none": 0}
    assert row_group.total_bytes == {"word": 16, "none": 0}
