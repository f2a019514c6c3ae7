"""Tests of arrays encoded as nested Arrow lists: equal values in order, or an error with the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.codecs.arrow.numpy_to_arrow import encode_lists
from petastore.errors import EncodeError

FLAT = UnischemaField("x", "int32", (None,))
MATRIX = UnischemaField("x", "int32", (None, 2))


def lists_of(field: UnischemaField) -> pa.DataType:
    stored = pa.int32()
    for _ in field.shape:
        stored = pa.list_(stored)
    return stored


def encoded(values: Any, field: UnischemaField) -> pa.Array:
    column = encode_lists(values, field, lists_of(field))
    column.validate(full=True)
    assert column.type == lists_of(field)
    return column


shapes = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@given(st.lists(shapes, max_size=5), st.integers(1, 3), st.data())
def test_arrays_encode_to_arrow_lists_of_their_values(drawn: list[list[int]], depth: int, data: st.DataObject) -> None:
    field = UnischemaField("x", "int32", (None,) * depth)
    values: list[Any] = []
    for sizes in drawn:
        shape = (*sizes, 1, 1)[:depth]
        array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
        values.append(data.draw(st.sampled_from([array, array.tolist(), np.asfortranarray(array), None])))
    expected = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    assert encoded(values, field).to_pylist() == expected


def test_stacked_array_encodes_like_its_rows() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 2, 2)
    assert encoded(array, MATRIX).to_pylist() == array.tolist()
    assert encoded(array[:0], MATRIX).to_pylist() == []
    assert encoded(np.zeros((2, 0), np.int32), FLAT).to_pylist() == [[], []]


def test_empty_nested_list_encodes_with_declared_inner_sizes() -> None:
    assert encoded([[], [[1, 2]]], MATRIX).to_pylist() == [[], [[1, 2]]]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([[1, 2, 3]], r"column 'x', row 3: the value must have shape \(None, 2\), got \(1, 3\)"),
        ([[1, 2], [3]], "the lists of one level must have equal lengths, got 1 to 2"),
        (
            [1, 2],
            r"column 'x', row 3: list \[1, 2\] cannot be written with shape \(None, 2\): the value must be lists",
        ),
        ([[1, None]], "only whole values may be missing"),
        (
            [[1, 2.5]],
            r"column 'x', row 3: float 2\.5 cannot be written as int32 stored as int32: the value must be an integer",
        ),
        ([[1, 2**40]], "the range of int32"),
        (np.zeros((1, 2)), "as the field declares, got dtype float64"),
        (np.zeros((1, 3), np.int32), r"as the field declares, got shape \(1, 3\)"),
    ],
    ids=str,
)
def test_array_that_does_not_match_the_field_raises_with_its_row(bad: Any, said: str) -> None:
    good = np.zeros((2, 2), np.int32)
    with pytest.raises(EncodeError, match=said) as caught:
        encoded([good, None, good, bad, good], MATRIX)
    assert (caught.value.row, caught.value.column) == (3, "x")
