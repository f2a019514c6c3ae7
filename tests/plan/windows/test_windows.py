"""Tests of windows over selected rows: equal to a reference implementation (double loop)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.selection import Selection
from petastore.plan.windows.windows import Windows


@st.composite
def selected_rows(draw: st.DrawFn) -> list[list[bool]]:
    return draw(st.lists(st.lists(st.booleans(), max_size=6), min_size=1, max_size=8))


def selection_of(kept: list[list[bool]]) -> Selection:
    bitmaps = {group: np.array(flags) for group, flags in enumerate(kept) if any(flags) and not all(flags)}
    return Selection(np.array([sum(flags) for flags in kept]), bitmaps)


@given(kept=selected_rows(), length=st.integers(1, 7), data=st.data())
def test_windows_cover_their_start_and_following_selected_rows(
    kept: list[list[bool]], length: int, data: st.DataObject
) -> None:
    line = [(group, row) for group, flags in enumerate(kept) for row, flag in enumerate(flags) if flag]
    possible = list(range(len(line) - length + 1))
    firsts = sorted(data.draw(st.sets(st.sampled_from(possible)))) if possible else []
    is_start = [[False] * len(flags) for flags in kept]
    for first in firsts:
        group, row = line[first]
        is_start[group][row] = True
    rows = np.array([len(flags) for flags in kept])
    windows = Windows(rows, selection_of(kept), selection_of(is_start), length)
    groups = np.array([line[first][0] for first in firsts], np.int32)
    starts = np.array([line[first][1] for first in firsts], np.int64)
    covered = windows.covered(groups, starts)
    assert covered.shape == (len(firsts), length)
    found = windows.origin(np.repeat(groups, length), covered.ravel())
    expected = [place for first in firsts for place in line[first : first + length]]
    assert list(zip(*(array.tolist() for array in found), strict=True)) == expected
    for group in range(len(kept)):
        assert windows.num_following(group) <= length - 1
        assert all(rest.rows[-1] < windows.head(rest.group) for rest in windows.following(group))


def test_windows_over_all_rows_continue_into_the_next_row_group() -> None:
    windows = Windows(np.array([2, 2]), None, Selection(np.array([2, 0]), {}), 3)
    assert windows.covered(np.array([0, 0], np.int32), np.array([0, 1])).tolist() == [[0, 1, 2], [1, 2, 3]]
    assert [(rest.group, rest.rows.tolist()) for rest in windows.following(0)] == [(1, [0, 1])]
    assert windows.following(1) == ()
