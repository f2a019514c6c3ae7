"""Arrays and lists of any depth become nested lists whose items are theirs, in order; what is wrong names its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.codecs.arrow.lists_to_arrow import encode_lists
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
def test_items_are_those_of_the_values(drawn: list[list[int]], depth: int, data: st.DataObject) -> None:
    field = UnischemaField("x", "int32", (None,) * depth)
    values: list[Any] = []
    for sizes in drawn:
        shape = (*sizes, 1, 1)[:depth]
        array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
        values.append(data.draw(st.sampled_from([array, array.tolist(), np.asfortranarray(array), None])))
    expected = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    assert encoded(values, field).to_pylist() == expected


def test_one_array_of_all_rows_is_its_rows() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 2, 2)
    assert encoded(array, MATRIX).to_pylist() == array.tolist()
    assert encoded(array[:0], MATRIX).to_pylist() == []
    assert encoded(np.zeros((2, 0), np.int32), FLAT).to_pylist() == [[], []]


def test_an_empty_list_has_the_declared_sizes_below_it() -> None:
    assert encoded([[], [[1, 2]]], MATRIX).to_pylist() == [[], [[1, 2]]]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([[1, 2, 3]], r"a value of shape \(1, 3\) came, but \(None, 2\) is declared"),
        ([[1, 2], [3]], "different lengths"),
        ([1, 2], "2 levels of lists were declared"),
        ([[1, None]], "only whole values may be missing"),
        ([[1, 2.5]], "no whole number"),
        ([[1, 2**40]], "int32 holds"),
        (np.zeros((1, 2)), "an array of float64 came"),
        (np.zeros((1, 3), np.int32), r"an array of shape \(1, 3\) came"),
    ],
    ids=str,
)
def test_what_is_wrong_names_its_row(bad: Any, said: str) -> None:
    good = np.zeros((2, 2), np.int32)
    with pytest.raises(EncodeError, match=said) as caught:
        encoded([good, None, good, bad, good], MATRIX)
    assert (caught.value.row, caught.value.column) == (3, "x")
