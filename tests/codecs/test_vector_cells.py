"""Tests of parsing vector columns: the row, position and value of each number, and errors for invalid sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.codecs.vector import DENSE, MAX_ELEMENTS, SPARSE, STORED, sizes_of_vectors, vector_cells
from petastore.errors import DecodeError

FREE = UnischemaField("v", "float64", (None,))

numbers = st.floats(allow_nan=False)
dense = st.lists(numbers, max_size=5).map(
    lambda values: {"type": DENSE, "size": None, "indices": None, "values": values}
)
sparse = st.tuples(st.integers(0, 9), st.dictionaries(st.integers(0, 8), numbers, max_size=5)).map(
    lambda pair: {
        "type": SPARSE,
        "size": max([pair[0], *(place + 1 for place in pair[1])]),
        "indices": sorted(pair[1]),
        "values": [pair[1][place] for place in sorted(pair[1])],
    }
)


def vector_of(cell: dict[str, Any]) -> list[float]:
    if cell["type"] == DENSE:
        return list(cell["values"])
    vector = [0.0] * cell["size"]
    for place, value in zip(cell["indices"], cell["values"], strict=True):
        vector[place] = value
    return vector


@given(st.lists(dense | sparse, max_size=6), st.data())
def test_spark_vectors_parse_to_row_position_and_value_of_each_number(
    drawn: list[dict[str, Any]], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(drawn)))
    cells, wanted = pa.array(drawn, STORED)[first:], [vector_of(cell) for cell in drawn[first:]]
    found = vector_cells(cells, FREE)
    assert found.sizes.tolist() == [len(vector) for vector in wanted] == sizes_of_vectors(cells, FREE).tolist()
    vectors = [[0.0] * size for size in found.sizes.tolist()]
    places = found.place
    if places is None:
        assert np.concatenate([[], *wanted]).tolist() == found.values.tolist()
        return
    for row, place, value in zip(found.row().tolist(), places.tolist(), found.values.tolist(), strict=True):
        vectors[row][place] = value
    assert vectors == wanted


def test_dense_spark_vectors_parse_without_indices() -> None:
    cells = pa.array([{"type": DENSE, "values": [1.0, 2.0]}, {"type": DENSE, "values": []}], STORED)
    found = vector_cells(cells, FREE)
    assert (found.place, found.values.tolist(), found.row().tolist()) == (None, [1.0, 2.0], [0, 0])


def test_sizes_of_invalid_spark_vectors_are_reported_before_they_raise() -> None:
    cells = pa.array(
        [
            {"type": SPARSE, "size": MAX_ELEMENTS + 1, "indices": [0], "values": [1.0]},
            {"type": SPARSE, "size": -5, "indices": [], "values": []},
            {"type": SPARSE, "size": None, "indices": [], "values": []},
        ],
        STORED,
    )
    assert sizes_of_vectors(cells, FREE).tolist() == [MAX_ELEMENTS + 1, 0, 0]
    with pytest.raises(DecodeError) as caught:
        vector_cells(cells, FREE)
    assert caught.value.row == 1


def test_vector_of_another_size_raises_with_its_row() -> None:
    cells = pa.array([{"type": DENSE, "values": [1.0, 2.0]}, {"type": DENSE, "values": [1.0]}], STORED)
    with pytest.raises(
        DecodeError, match=r"column 'v', row 1: the vector must have shape \(2,\), got 1 elements"
    ) as caught:
        vector_cells(cells, UnischemaField("v", "float64", (2,)))
    assert caught.value.row == 1


def test_indices_of_dense_vectors_are_ignored() -> None:
    cells = pa.array(
        [
            {"type": DENSE, "size": 1, "indices": [7, 7, 3], "values": [1.0, 2.0]},
            {"type": SPARSE, "size": 3, "indices": [2], "values": [5.0]},
        ],
        STORED,
    )
    found = vector_cells(cells, FREE)
    assert found.sizes.tolist() == [2, 3]
    assert found.place is not None
    assert found.place.tolist() == [0, 1, 2]
