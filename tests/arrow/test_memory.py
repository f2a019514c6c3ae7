"""Tests of zero-copy views between Arrow and NumPy: they equal the libraries' own conversions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from petastore.arrow import arrow_numbers, flags_of, numbers_of

TYPES = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]


@given(st.lists(st.integers(0, 100)), st.sampled_from(TYPES), st.integers(0, 9), st.integers(0, 9))
def test_numpy_view_of_arrow_numbers_equals_the_array_and_its_slices(
    values: list[int], stored: pa.DataType, first: int, count: int
) -> None:
    part = pa.array(values, stored).slice(min(first, len(values)), count)
    found = numbers_of(part)
    assert found.tolist() == part.to_pylist()
    assert found.dtype == part.to_numpy().dtype
    assert arrow_numbers(found).equals(part)


@given(st.lists(st.booleans() | st.none()), st.integers(0, 20), st.integers(0, 20))
def test_numpy_array_of_arrow_booleans_equals_the_array_and_its_slices(
    values: list[bool | None], first: int, count: int
) -> None:
    part = pa.array(values, pa.bool_()).slice(min(first, len(values)), count)
    assert flags_of(part.is_null()).tolist() == part.is_null().to_pylist()
    present = part.drop_null()
    assert flags_of(present).tolist() == present.to_pylist()


def test_numpy_view_of_arrow_numbers_is_zero_copy() -> None:
    values = np.arange(10)
    found = numbers_of(arrow_numbers(values))
    assert found.ctypes.data == values.ctypes.data
