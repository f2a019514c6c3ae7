"""Tests of row ranges that are decoded together: limits on bytes and rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.decoding.decode import row_ranges


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 500), st.integers(1, 70))
def test_rows_are_divided_into_ranges_within_byte_and_row_limits(
    sizes: list[int], most_bytes: int, most_rows: int
) -> None:
    ranges = row_ranges(np.array(sizes, np.int64), most_bytes, most_rows)
    assert [row for first, stop in ranges for row in range(first, stop)] == list(range(len(sizes)))
    for first, stop in ranges:
        assert first < stop <= first + most_rows
        assert sum(sizes[first + 1 : stop]) < most_bytes
