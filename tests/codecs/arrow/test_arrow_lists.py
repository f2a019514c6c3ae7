"""Tests of Arrow tensor columns: logical axis order for every storage order, in batches, rows and torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import petastore
from petastore.adapters.torch import DataLoader
from petastore.codecs.arrow.arrow_lists import decode_lists
from petastore.codecs.arrow.arrow_views import lists_viewer
from petastore.schema import UnischemaField
from petastore.schema.arrow import field_from_arrow
from petastore.testing.codec_laws import empty_column

VALUES: dict[str, pa.DataType] = {
    "numbers": pa.int32(),
    "halves": pa.float16(),
    "flags": pa.bool_(),
    "instants": pa.timestamp("ns", "+05:30"),
    "text": pa.string(),
}


def tensors(rows: int, shape: tuple[int, ...], axes: tuple[int, ...] | None, stored: pa.DataType) -> Any:
    """Return an Arrow tensor column, its field, and its values; logical axis i is stored axis `axes[i]`."""
    count = rows * math.prod(shape)
    values = pa.array(np.arange(count)).cast(pa.string() if stored == pa.string() else pa.int64())
    values = (
        pa.array([n % 3 == 0 for n in range(count)], pa.bool_()) if pa.types.is_boolean(stored) else values.cast(stored)
    )
    kind = pa.fixed_shape_tensor(stored, shape, permutation=None if axes is None else list(axes))
    cells = pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(values, math.prod(shape)))
    field = field_from_arrow(pa.field("t", kind, nullable=False))
    flat = values.cast(pa.int64()).to_numpy().view(field.dtype) if field.dtype.kind == "M" else values.to_pylist()
    laid = np.array(flat, field.dtype).reshape(rows, *shape)
    return cells, field, laid if axes is None else laid.transpose(0, *(axis + 1 for axis in axes))


def same_rows(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert len(found) == len(expected)
    for one, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, wanted, strict=True)


@st.composite
def tensor_columns(draw: st.DrawFn) -> Any:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = draw(st.none() | st.permutations(range(len(shape))).map(tuple))
    return tensors(draw(st.integers(0, 5)), shape, axes, draw(st.sampled_from(list(VALUES.values()))))


@given(tensor_columns(), st.integers(0, 2), st.integers(0, 5))
def test_arrow_tensor_columns_are_decoded_and_viewed_in_logical_axis_order(column: Any, first: int, rows: int) -> None:
    cells, field, expected = column
    part, wanted = cells.slice(first, rows), expected[first : first + rows]
    out = empty_column(field, len(part))
    decode_lists(part, field, out)
    same_rows(out, wanted)
    viewed = lists_viewer(field)(part)
    assert (viewed is not None) == (field.dtype.kind in "ifM")
    if viewed is not None:
        np.testing.assert_array_equal(viewed, out)


@pytest.mark.parametrize("axes", [(1, 0), (0, 1)])
def test_arrow_tensor_column_equals_to_numpy_ndarray(axes: tuple[int, int]) -> None:
    cells, field, expected = tensors(3, (2, 5), axes, pa.int64())
    np.testing.assert_array_equal(cells.to_numpy_ndarray(), expected)
    np.testing.assert_array_equal(cells.to_tensor().to_numpy(), expected)
    out = empty_column(field, 3)
    decode_lists(cells, field, out)
    np.testing.assert_array_equal(out, expected)


def test_arrow_tensors_inside_lists_have_logical_axis_order() -> None:
    cells, _, expected = tensors(4, (2, 3), (1, 0), pa.int32())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 4], pa.int32()), cells)
    field = field_from_arrow(pa.field("t", lists.type, nullable=False))
    assert field == UnischemaField("t", "int32", (None, 3, 2), nullable=True)
    out = empty_column(field, 3)
    decode_lists(lists, field, out)
    for found, wanted in zip(out, np.split(expected, [1, 1]), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_arrow_tensor_of_another_shape_than_declared_raises() -> None:
    cells, field, _ = tensors(2, (2, 3), (1, 0), pa.int32())
    assert field.shape == (3, 2)
    with pytest.raises(
        petastore.errors.DecodeError,
        match=r"tensors of shape \(2, 3, 1\), as the field declares, got tensors of shape \(3, 2\)",
    ):
        decode_lists(cells, UnischemaField("t", "int32", (2, 3, 1)), np.empty((2, 2, 3, 1), "int32"))


@pytest.fixture(scope="module", params=list(VALUES))
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, NDArray[Any]]:
    """Write a tensor column and a copy with one null, in row groups of three rows; return the URL and the values."""
    cells, field, expected = tensors(11, (2, 3, 4), (2, 0, 1), VALUES[request.param])
    assert field.shape == (4, 2, 3)
    folder = tmp_path_factory.mktemp("tensors")
    there = pa.array(np.arange(11) != 5)
    holed = pa.ExtensionArray.from_storage(cells.type, _holed(cells.storage, there))
    table = pa.table({"id": np.arange(11), "t": cells, "holed": holed})
    pq.write_table(table, folder / "part-0.parquet", row_group_size=3)
    return str(folder), expected


def _holed(lists: Any, there: Any) -> Any:
    values = [value if is_there else None for value, is_there in zip(lists.to_pylist(), there.to_pylist(), strict=True)]
    return pa.array(values, lists.type)


@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_batches_of_arrow_tensors_have_logical_axis_order(files: tuple[str, NDArray[Any]], shuffle_rows: bool) -> None:
    url, expected = files
    with petastore.make_batch_reader(url, shuffle_rows=shuffle_rows, seed=3) as reader:
        for batch in reader.iter_batches(4):
            same_rows(batch["t"], expected[batch["id"]])
            there = batch["id"] != 5
            same_rows(batch["holed"][there], expected[batch["id"][there]])


def test_rows_of_arrow_tensors_have_logical_axis_order(files: tuple[str, NDArray[Any]]) -> None:
    url, expected = files
    with petastore.make_reader(url, seed=3, shuffle_rows=True) as reader:
        rows = list(reader)
        assert len(rows) == len(expected)
        for row in rows:
            np.testing.assert_array_equal(row.t, expected[row.id])
            if row.id == 5:
                assert row.holed is None
            else:
                np.testing.assert_array_equal(row.holed, expected[row.id])


def test_torch_batches_of_arrow_tensors_have_logical_axis_order(files: tuple[str, NDArray[Any]]) -> None:
    url, expected = files
    with petastore.make_reader(url, ["id", "t"], seed=3) as reader:
        loader = DataLoader(reader, batch_size=4)
        batches = list(loader)
        assert sum(len(batch["id"]) for batch in batches) == len(expected)
        for batch in batches:
            # Text does not become a tensor, so the batch has a list with one array per row.
            found = np.stack(batch["t"]) if isinstance(batch["t"], list) else batch["t"].numpy()
            wanted = expected[batch["id"].numpy()]
            np.testing.assert_array_equal(found, wanted.astype(np.int64) if wanted.dtype.kind == "M" else wanted)


def test_dataset_of_arrow_tensors_is_equal_after_rewriting(files: tuple[str, NDArray[Any]], tmp_path: Path) -> None:
    url, expected = files
    with petastore.make_reader(url, ["id", "t"], shuffle_row_groups=False) as reader:
        schema = petastore.Unischema("copy", list(reader.schema))
        petastore.write_dataset(str(tmp_path / "copy"), schema, [row._asdict() for row in reader])
    with petastore.make_reader(str(tmp_path / "copy")) as reader:
        rows = list(reader)
        assert len(rows) == len(expected)
        for row in rows:
            np.testing.assert_array_equal(row.t, expected[row.id])
