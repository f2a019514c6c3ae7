"""Tests of `VectorCodec`: codec laws, dense and sparse Spark vectors, and errors for invalid vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import petastore
from petastore import Unischema
from petastore.codecs import VectorCodec
from petastore.codecs.vector import MAX_ELEMENTS, STORED
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import Case, empty_column
from tests.codecs import bombs_of
from tests.codecs.measured_laws import MeasuredCodecLaws

CODEC = VectorCodec()
FIXED = UnischemaField("v", "float64", (3,), CODEC)
SINGLE = UnischemaField("v", "float32", (3,), CODEC)
FREE = UnischemaField("v", "float64", (None,), CODEC, nullable=True)


class Dense:
    """Has the attributes of `pyspark.ml.linalg.DenseVector`."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = np.array(values, np.float64)

    def toArray(self) -> Any:  # noqa: N802 - Spark's name
        return self._values


class Sparse(Dense):
    """Has the attributes of `pyspark.ml.linalg.SparseVector`."""

    def __init__(self, size: int, indices: Sequence[int], values: Sequence[float]) -> None:
        self.size = size
        self.indices = np.array(indices, np.int32)
        self.values = np.array(values, np.float64)


class TestVectorLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        refused = [np.zeros(4), np.zeros((3, 1)), np.zeros(3, "int64"), [0.0, 0.0, 0.0], Sparse(4, [0], [1.0])]
        return {
            "fixed": Case(FIXED, hnp.arrays("float64", 3), [*refused, np.zeros(3, "float32")]),
            "float32": Case(SINGLE, hnp.arrays("float32", 3), [*refused, np.zeros(3, "float64")]),
            "free": Case(FREE, hnp.arrays("float64", hnp.array_shapes(max_dims=1, min_side=0)), [np.zeros((2, 2))]),
        }

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any]:
        return bombs_of.vectors(field)

    def golden_folder(self) -> Path:
        return Path(__file__).parent / "golden" / "vector"

    def golden_values(self, name: str) -> Sequence[Any]:
        dtype = "float32" if name == "float32" else "float64"
        values = [np.array(value, dtype) for value in ([1.5, 0, -2], [0, 0, 0], [0, 7, np.inf])]
        return [*values, np.zeros(0), np.array([0, 0.25])] if name == "free" else values


def cell(kind: int | None, size: int | None, indices: Any, values: Any) -> dict[str, Any]:
    return {"type": kind, "size": size, "indices": indices, "values": values}


def both(field: UnischemaField, cells: list[Any]) -> list[Any]:
    """Decode cells as a column, check that each equals its single decode, and return the rows."""
    column = pa.array(cells, STORED)
    out = empty_column(field, len(cells))
    CODEC.decode_column(column, field, out)
    for row, found in enumerate(out):
        expected = CODEC.decode(field, cells[row])
        assert expected.dtype == found.dtype
        assert np.array_equal(expected, found, equal_nan=True)
    return list(out)


@st.composite
def vectors(draw: st.DrawFn, size: int | None) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """Draw a dense or sparse cell, and the array that it represents."""
    length = draw(st.integers(0, 6)) if size is None else size
    floats = st.floats(width=32)
    if draw(st.booleans()):
        values = draw(st.lists(floats, min_size=length, max_size=length))
        ignored = draw(st.sampled_from([None, [], [0]]))
        return cell(1, draw(st.sampled_from([None, 9])), ignored, values), np.array(values, np.float64)
    places = sorted(draw(st.sets(st.integers(0, length - 1)))) if length else []
    values = draw(st.lists(floats, min_size=len(places), max_size=len(places)))
    array = np.zeros(length)
    array[places] = values
    return cell(0, length, places, values), array


@given(st.data(), st.sampled_from([FIXED, SINGLE, FREE]))
def test_dense_and_sparse_vectors_decode_to_dense_arrays(data: st.DataObject, field: UnischemaField) -> None:
    drawn = data.draw(st.lists(vectors(field.shape[0]), max_size=8))
    found = both(field, [stored for stored, _ in drawn])
    for (_, expected), array in zip(drawn, found, strict=True):
        assert np.array_equal(expected.astype(field.dtype), array, equal_nan=True)


@given(st.lists(vectors(3), max_size=6), st.data())
def test_vector_column_slice_decodes_only_its_rows(drawn: list[Any], data: st.DataObject) -> None:
    column = pa.array([stored for stored, _ in drawn], STORED)
    start = data.draw(st.integers(0, len(column)))
    part = column.slice(start, data.draw(st.integers(0, len(column) - start)))
    out = empty_column(FIXED, len(part))
    CODEC.decode_column(part, FIXED, out)
    expected = [array for _, array in drawn][start : start + len(part)]
    assert all(np.array_equal(one, other, equal_nan=True) for one, other in zip(expected, out, strict=True))


def test_spark_vectors_are_stored_as_dense_or_sparse_as_given() -> None:
    values = [Dense([1, 2, 3]), None, Sparse(3, [0, 2], [5, 6]), np.array([7.0, 8.0, 9.0])]
    column = CODEC.encode_column(values, FREE)
    assert column.type == STORED
    assert column.to_pylist() == [
        cell(1, None, None, [1, 2, 3]),
        None,
        cell(0, 3, [0, 2], [5, 6]),
        cell(1, None, None, [7, 8, 9]),
    ]
    assert CODEC.decode(FIXED, CODEC.encode(FIXED, Sparse(3, [1], [4]))).tolist() == [0, 4, 0]


@pytest.mark.parametrize("value", [Sparse(3, [2, 1], [1, 1]), Sparse(3, [0], [1, 2]), Sparse(3, [3], [1]), Dense([1])])
def test_invalid_vectors_raise_when_encoded(value: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        CODEC.encode_column([None, value], FIXED)
    assert (caught.value.column, caught.value.row) == ("v", 1)


GOOD = cell(1, None, None, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (cell(2, 3, [0], [1.0]), "type of the vector must be 1"),
        (cell(1, None, None, [1.0, 2.0]), "got 2 elements"),
        (cell(1, None, None, None), "no values"),
        (cell(0, 4, [0], [1.0]), "got 4 elements"),
        (cell(0, None, [0], [1.0]), "lacks its size"),
        (cell(0, -1, [], []), "lacks its size"),
        (cell(0, 3, [0, 1], [1.0]), "one index per value"),
        (cell(0, 3, None, [1.0]), "one index per value"),
        (cell(0, 3, [3], [1.0]), "must be below its size"),
        (cell(0, 3, [-1], [1.0]), "must be below its size"),
        (cell(0, 3, [2, 1], [1.0, 2.0]), "ascend"),
        (cell(0, 3, [1, 1], [1.0, 2.0]), "ascend"),
    ],
)
def test_invalid_vector_cell_raises_with_its_row(bad: dict[str, Any], problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        CODEC.decode(FIXED, bad)
    with pytest.raises(DecodeError, match=problem) as caught:
        CODEC.decode_column(pa.array([GOOD, GOOD, bad, GOOD], STORED), FIXED, np.empty((4, 3)))
    assert (caught.value.column, caught.value.row) == ("v", 2)


@pytest.mark.parametrize("bad", [7, "text", {"type": "dense"}, cell(300, 3, [], [])])
def test_vector_decode_of_a_non_struct_raises(bad: Any) -> None:
    with pytest.raises(DecodeError):
        CODEC.decode(FIXED, bad)


def test_vector_with_missing_members_raises_with_its_row() -> None:
    loose = pa.struct([(part.name, pa.list_(pa.float64()) if part.name == "values" else part.type) for part in STORED])
    for bad in (cell(None, 3, [], []), cell(1, None, None, [1.0, None, 2.0])):
        with pytest.raises(DecodeError, match=r"lacks the type of the vector|null") as caught:
            CODEC.decode_column(pa.array([GOOD, bad], loose), FIXED, np.empty((2, 3)))
        assert caught.value.row == 1


def test_vector_decode_of_another_column_type_raises() -> None:
    for column in (pa.array([[1.0, 2.0, 3.0]]), pa.array([{"type": 1}]), pa.array([b"x"])):
        with pytest.raises(
            DecodeError,
            match="column 'v': the column must be stored as Spark ML vectors, struct<type: int8 not null, size:",
        ):
            CODEC.decode_column(column, FIXED, np.empty((1, 3)))
    with pytest.raises(
        DecodeError,
        match="column 'v': the column does not contain vectors: Integer value 300 not in range: -128 to 127",
    ):
        CODEC.decode_column(pa.array([{**GOOD, "type": 300}]), FIXED, np.empty((1, 3)))


def test_sparse_vector_size_is_checked_before_allocation() -> None:
    with pytest.raises(
        DecodeError,
        match="column 'v', row 0: the vector must have at most 134,217,728 elements, got 134,217,729, which",
    ) as caught:
        CODEC.decode_column(pa.array([cell(0, MAX_ELEMENTS + 1, [0], [1.0])], STORED), FREE, np.empty(1, object))
    assert caught.value.row == 0


def test_vector_float32_rounds_and_overflow_raises() -> None:
    assert both(SINGLE, [cell(1, None, None, [0.1, np.inf, np.nan])])[0][0] == np.float32(0.1)
    for huge in (cell(1, None, None, [0.0, 1e39, 0.0]), cell(0, 3, [1], [1e39])):
        with pytest.raises(
            DecodeError, match=r"values must fit into float32, which the field declares, got 1e\+39"
        ) as caught:
            both(SINGLE, [GOOD, huge])
        assert caught.value.row in (0, 1)
        with pytest.raises(DecodeError) as caught:
            CODEC.decode_column(pa.array([GOOD, huge], STORED), SINGLE, np.empty((2, 3), np.float32))
        assert caught.value.row == 1


@pytest.mark.parametrize(("dtype", "shape"), [("int64", (3,)), ("float16", (3,)), ("float64", ()), ("float64", (2, 2))])
def test_vector_codec_raises_for_fields_that_are_not_float_vectors(dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        SchemaError, match=r"field 'v': VectorCodec needs float32 or float64 of shape \(n,\) or \(None,\), got"
    ):
        UnischemaField("v", dtype, shape, CODEC)


@pytest.mark.parametrize("field", [FIXED, SINGLE, FREE])
def test_dataset_of_vectors_round_trips(tmp_path: Path, field: UnischemaField) -> None:
    schema = Unischema("vectors", [UnischemaField("id", "int64"), field])
    size = field.shape[0]
    rows: list[dict[str, Any]] = [
        {"id": n, "v": np.full(n % 4 if size is None else size, n, field.dtype)} for n in range(50)
    ]
    rows[7]["v"] = Sparse(len(rows[7]["v"]), [1], [7.0])
    if field.nullable:
        rows[3]["v"] = None
    petastore.write_dataset(tmp_path / "v", schema, rows, rows_per_row_group=16)
    expected = [None if row["v"] is None else row["v"] for row in rows]
    expected[7] = np.array([0, 7] + [0] * (rows[7]["v"].size - 2), field.dtype)
    asked: list[dict[str, Any]] = [{}, {"shuffle_rows": True, "seed": 1}, {"filters": [("id", ">", 2)]}]
    for arguments in asked:
        with petastore.make_reader(tmp_path / "v", **arguments) as reader:
            found = list(reader)
        assert sorted(row.id for row in found) == list(range(3 if "filters" in arguments else 0, 50))
        for row in found:
            if expected[row.id] is None:
                assert row.v is None
            else:
                assert row.v.dtype == field.dtype
                assert np.array_equal(row.v, expected[row.id])
