"""Tests of loaded row groups: positions of rows, and sizes of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import Unischema, UnischemaField
from petastore.decoding.buffers import Buffers
from petastore.readers.loaded.arena import Arena, Layout, Place
from petastore.readers.loaded.row_group_reader import LoadedRowGroup

LAYOUT = Layout.of(Unischema("s", [UnischemaField("x", np.float32)]), rows=100)


@given(st.integers(0, 30), st.booleans(), st.data())
def test_row_group_finds_rows_in_read_order(rows: int, in_arena: bool, data: st.DataObject) -> None:
    wanted = data.draw(st.permutations(range(rows)).map(lambda order: order[: data.draw(st.integers(0, rows))]))
    arena = Arena(LAYOUT, 40, Buffers())
    before, place = arena.place(4), arena.place(rows) if in_arena else None
    place = place or Place(0, rows, (), np.empty(rows, np.int32))
    place.write_order(np.array(wanted, np.int64))
    assert before is not None
    found = place.places_of(np.arange(rows), in_read_order=True) - place.first
    assert found[wanted].tolist() == list(range(len(wanted)))
    assert int((found >= 0).sum()) == len(wanted)
    assert place.places_of(np.arange(rows), in_read_order=False).tolist() == list(
        range(place.first, place.first + rows)
    )


@pytest.mark.parametrize(("read_order", "written"), [(None, [0, 1, 2]), ([2, 0, 1], [1, 2, 0])])
def test_row_group_positions_in_an_arena_are_correct(read_order: Any, written: list[int]) -> None:
    arena = Arena(LAYOUT, 10, Buffers())
    before, place = arena.place(4), arena.place(3)
    assert before is not None
    assert place is not None
    place.write_order(None if read_order is None else np.array(read_order, np.int64))
    assert place.places is not None
    assert place.places[4:7].tolist() == written


def test_loaded_row_group_reports_the_largest_value_and_total_bytes() -> None:
    row_group = LoadedRowGroup(
        3, Place(0, 3, (), None), {}, {}, {}, {"word": np.array([3, 9, 4]), "none": np.array([], np.int64)}
    )
    assert row_group.largest == {"word": 9, "none": 0}
    assert row_group.total_bytes == {"word": 16, "none": 0}
