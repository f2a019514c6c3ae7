"""Tests of tensors as Arrow columns: nested lists, flat lists and bytes encode to the same cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec
from petastore.codecs.arrow_cells import encode_cells
from petastore.codecs.registry import codec_of
from petastore.schema import UnischemaField

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64"]
CODECS = [None, NdarrayCodec(), CompressedNdarrayCodec()]


def spark_leaves(values: Any) -> Any:
    """Return elements with a dtype that Spark has: no unsigned integers and no float16."""
    if values.dtype == np.float16:
        return values.astype(np.float32)
    return values.astype(np.int64) if values.dtype.kind == "u" else values


def forms(values: list[Any]) -> dict[str, pa.Array]:
    """Return the same tensors as nested lists, flat lists and bytes, as Spark may pass them; None stays None."""
    nested = [None if value is None else spark_leaves(value).tolist() for value in values]
    flat = [None if value is None else spark_leaves(value).reshape(-1) for value in values]
    little = [None if value is None else value.astype(value.dtype.newbyteorder("<")).tobytes() for value in values]
    leaf = pa.from_numpy_dtype(next((one.dtype for one in flat if one is not None), np.dtype(np.int64)))
    lists = leaf
    for _ in range(next((value.ndim for value in values if value is not None), 1)):
        lists = pa.list_(lists)
    return {
        "nested": pa.array(nested, lists),
        "flat": pa.array(flat, pa.list_(leaf)),
        "bytes": pa.array(little, pa.binary()),
    }


@st.composite
def tensors(draw: st.DrawFn, *, free: bool) -> tuple[UnischemaField, list[Any]]:
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    declared: list[int | None] = list(shape)
    axis = draw(st.integers(0, len(shape) - 1))
    if free:
        declared[axis] = None
    values: list[Any] = []
    for missing in draw(st.lists(st.booleans(), min_size=1, max_size=5)):
        # Nested lists do not record the sizes below an empty list, so only the first dimension may be 0.
        own = [*shape]
        own[axis] = draw(st.integers(0 if axis == 0 else 1, 3)) if free else shape[axis]
        elements = {"allow_nan": False} if dtype.kind == "f" else {}
        value = draw(arrays.arrays(dtype, tuple(own), elements=elements))
        values.append(None if missing else value)
    field = UnischemaField("t", dtype, tuple(declared), draw(st.sampled_from(CODECS)), nullable=True)
    return field, values


@given(tensors(free=False))
def test_fixed_shape_arrays_encode_equally_from_every_arrow_type(drawn: tuple[UnischemaField, list[Any]]) -> None:
    field, values = drawn
    expected = codec_of(field).encode_column(values, field)
    for form, column in forms(values).items():
        assert encode_cells(column, field).equals(expected), form


@given(tensors(free=True))
def test_ragged_arrays_encode_equally_from_every_arrow_type(
    drawn: tuple[UnischemaField, list[Any]],
) -> None:
    field, values = drawn
    expected = codec_of(field).encode_column(values, field)
    for form, column in forms(values).items():
        assert encode_cells(column, field).equals(expected), form


def test_slice_of_an_arrow_column_encodes_only_its_rows() -> None:
    field = UnischemaField("t", np.uint8, (2, 2), NdarrayCodec(), nullable=True)
    values = [np.full((2, 2), number, np.uint8) for number in range(6)]
    for form, column in forms([*values[:3], None, *values[3:]]).items():
        expected = codec_of(field).encode_column([values[2], None, values[3]], field)
        assert encode_cells(column.slice(2, 3), field).equals(expected), form


def test_empty_arrow_column_encodes_to_an_empty_column() -> None:
    field = UnischemaField("t", np.uint8, (2, None), NdarrayCodec())
    assert len(encode_cells(pa.array([], pa.list_(pa.list_(pa.int16()))), field)) == 0
    assert len(encode_cells(pa.array([], pa.binary()), field)) == 0
    assert len(encode_cells(pa.array([], pa.list_(pa.int16())), field)) == 0
