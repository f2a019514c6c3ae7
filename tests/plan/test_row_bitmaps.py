"""Tests of packed bitmaps of selected rows: select, memory, and use by selections."""

from __future__ import annotations

import copy
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.plan.selection import RowBitmaps, Selection

MOST_BYTES_A_ROW = 0.2


@given(st.lists(st.integers(0, 3000), max_size=6), st.floats(0, 1), st.integers(0, 2**32))
def test_row_bitmap_select_returns_the_positions_of_set_bits(rows: list[int], kept: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    flags = {2 * group: random.random(count) < kept for group, count in enumerate(rows)}
    bitmaps = RowBitmaps.pack(flags.items())
    assert list(bitmaps) == list(flags)
    assert bitmaps.counts.tolist() == [of_group.sum() for of_group in flags.values()]
    counts = [int(of_group.sum()) for of_group in flags.values()]
    groups = np.repeat(np.array(list(flags), np.int32), counts)
    places = np.array([place for count in counts for place in range(count)], np.int64)
    expected = np.array([row for of_group in flags.values() for row in np.flatnonzero(of_group).tolist()], np.int64)
    mixed = random.permutation(len(places))
    assert bitmaps.select(groups[mixed], places[mixed]).tolist() == expected[mixed].tolist()
    for group, of_group in flags.items():
        some = np.arange(of_group.sum())[::500]
        assert (
            bitmaps.select(np.full(len(some), group, np.int32), some).tolist()
            == np.flatnonzero(of_group)[some].tolist()
        )
        assert bitmaps[group].tolist() == of_group.tolist()


def test_row_groups_without_a_bitmap_are_selected_as_a_whole() -> None:
    bitmaps = copy.deepcopy(RowBitmaps.pack([(1, np.array([False, True]))]))
    assert bitmaps.select(np.array([0, 1, 2], np.int32), np.array([5, 0, 6])).tolist() == [5, 1, 6]
    assert (0 in bitmaps, 1 in bitmaps) == (False, True)
    with pytest.raises(KeyError):
        bitmaps[0]


@pytest.mark.parametrize("kept", [0.001, 0.5, 0.999])
def test_selection_takes_less_than_a_fifth_of_a_byte_per_row(kept: float) -> None:
    """A filter over a billion rows must fit in 200 MB; the peak memory for a hundred million rows is measured here."""
    groups, rows = 1000, 100_000
    one = np.random.default_rng(7).random(rows) < kept

    def flags(group: int) -> NDArray[np.bool_]:
        return np.roll(one, group)

    tracemalloc.start()
    try:
        selection = Selection.of_flags(((group, flags(group)) for group in range(groups)), np.full(groups, rows))
        which = np.arange(groups, dtype=np.int32)
        found = selection.rows_at(which, selection.counts - 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tolist() == [int(np.flatnonzero(flags(group))[-1]) for group in range(groups)]
    assert peak < MOST_BYTES_A_ROW * groups * rows
