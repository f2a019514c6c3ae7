"""Rows that are grouped by row group are the rows that were asked for, in any cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.grouped_rows import GroupedRows, inverse


@given(st.lists(st.integers(0, 5), min_size=0, max_size=8), st.integers(0, 2**32 - 1), st.booleans())
def test_parts_that_are_cut_off_are_the_rows_that_were_asked_for(sizes: list[int], seed: int, in_order: bool) -> None:
    random, count = np.random.RandomState(seed), sum(sizes)
    groups = np.sort(random.randint(0, 4, count)).astype(np.int32)
    where = None if in_order else random.permutation(count).astype(np.int64)
    whole = GroupedRows(groups, random.randint(0, 99, count).astype(np.int64), where)
    asked = whole.in_order()
    borders = np.cumsum([0, *sizes])
    parts = whole.cut(borders)
    for part, first, stop in zip(parts, borders[:-1], borders[1:], strict=True):
        assert [array.tolist() for array in part.in_order()] == [array[first:stop].tolist() for array in asked]
        assert part.groups.tolist() == sorted(part.groups.tolist()) or in_order


@given(st.permutations(range(9)))
def test_an_inverse_undoes_a_permutation(numbers: list[int]) -> None:
    permutation = np.array(numbers)
    assert permutation[inverse(permutation)].tolist() == list(range(9))
