"""Tests of the conversion of several Arrow columns to one NumPy array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.codecs.registry import BoundCodec
from petastore.readers.loaded.arena import Stack, stacked_array
from petastore.schema.field import UnischemaField

DTYPES = st.sampled_from(["<i8", "<u2", "<f4", "<f8"]).map(np.dtype)


def seen(names: tuple[str, ...], dtype: np.dtype[np.generic], table: pa.Table) -> NDArray[np.generic] | None:
    columns = {name: BoundCodec.of(UnischemaField(name, dtype)) for name in names}
    return stacked_array(Stack(names, dtype, ()), table, columns)


@given(dtype=DTYPES, count=st.integers(1, 6), rows=st.integers(0, 9), first=st.integers(0, 3), together=st.booleans())
def test_array_of_stacked_columns_equals_the_columns(
    dtype: np.dtype[np.generic], count: int, rows: int, first: int, together: bool
) -> None:
    names = tuple(f"c{number}" for number in range(count))
    numbers = np.arange(count * (rows + first)).astype(dtype).reshape(count, rows + first)
    of_each = numbers if together else [column.copy() for column in numbers]
    table = pa.table({name: pa.array(column) for name, column in zip(names, of_each, strict=True)}).slice(first)
    values = seen(names, dtype, table)
    if rows == 0:
        assert values is None
    else:
        assert values is not None
        np.testing.assert_array_equal(values, numbers[:, first:])
        assert values.dtype == dtype


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3], pa.int64()),  # a null
        pa.array([1, 2, 3], pa.int32()),  # another type than declared
    ],
)
def test_columns_with_nulls_or_other_types_have_no_stacked_array(column: pa.Array) -> None:
    table = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "b": column})
    assert seen(("a", "b"), np.dtype("<i8"), table) is None
