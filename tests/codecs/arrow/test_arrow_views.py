"""Tests of zero-copy views of Arrow columns: only where no decoding is needed, with a reusable view function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs.arrow.arrow_to_numpy import decode_scalars
from petastore.codecs.arrow.arrow_views import lists_viewer, scalars_viewer
from petastore.schema import UnischemaField

DTYPES = ["int8", "uint16", "int64", "float16", "float32", "datetime64[us]", "datetime64[ns]", "timedelta64[s]"]
TYPES = [
    pa.int8(), pa.uint16(), pa.int64(), pa.float16(), pa.float32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
    pa.timestamp("ns"), pa.duration("s"), pa.date32(), pa.bool_(), pa.string(),
]  # fmt: skip


def column(stored: pa.DataType, values: list[int]) -> pa.Array:
    return pa.array(values, pa.int64() if pa.types.is_integer(stored) else pa.int32()).cast(stored, safe=False)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_scalar_zero_copy_view_function_can_be_reused_for_other_columns(dtype: str, data: st.DataObject) -> None:
    field = UnischemaField("x", dtype)
    view = scalars_viewer(field)
    for stored in data.draw(st.lists(st.sampled_from(TYPES), max_size=6)):
        if pa.types.is_temporal(stored) and not pa.types.is_date(stored):
            cells = pa.array(data.draw(st.lists(st.integers(0, 99), max_size=4)), pa.int64()).cast(stored)
        else:
            cells = column(stored, data.draw(st.lists(st.integers(0, 1), max_size=4)))
        part = cells.slice(data.draw(st.integers(0, len(cells))))
        shown = view(part)
        if shown is not None:
            out = np.empty(len(part), field.dtype)
            decode_scalars(part, field, out)
            np.testing.assert_array_equal(shown, out, strict=True)
        assert (shown is None) == (scalars_viewer(field)(part) is None)


def test_column_view_is_zero_copy() -> None:
    cells = pa.array([1, 2, 3], pa.int32())
    shown = scalars_viewer(UnischemaField("x", "int32"))(cells)
    assert shown is not None
    assert shown.ctypes.data == cells.buffers()[1].address


@pytest.mark.parametrize(
    ("cells", "is_shown"),
    [
        (pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32())), True),
        (pa.array([[1.0, 2.0], [3.0, 4.0]], pa.large_list(pa.float32())), True),
        (pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)), True),
        (pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32())), False),
        (pa.array([[1.0, 2.0], None], pa.list_(pa.float32())), False),
        (pa.array([[1.0, 2.0], [3.0, None]], pa.list_(pa.float32())), False),
        (pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64())), False),
        (pa.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]], pa.list_(pa.float32(), 3)), False),
    ],
)
def test_lists_have_a_zero_copy_view_only_with_declared_size_and_no_nulls(cells: Any, is_shown: bool) -> None:
    shown = lists_viewer(UnischemaField("x", "float32", (2,)))(cells)
    assert (shown is not None) == is_shown
    if shown is not None:
        assert shown.tolist() == cells.to_pylist()
