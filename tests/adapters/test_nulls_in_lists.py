"""Tests of nulls inside lists, and of ragged lists, in plain Parquet: rows, batches, and tensors of each framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import petastore
from petastore.adapters.column_plans import HostArrays
from petastore.adapters.nulls import Fill
from petastore.adapters.torch import DataLoader, MapDataset, ReaderDataset
from petastore.errors import DecodeError, EncodeError, PetastoreError
from petastore.schema.values import each_value
from tests.arrow_values import of_arrow, of_petastore

BIG = 2**60 + 1
"""An integer that float64 cannot represent."""

COLUMNS: dict[str, pa.Array] = {
    "ints": pa.array([[1], [2, None], None, [BIG, 3]]),
    "floats": pa.array([[0.5], [None], [], [1.5, 2.5]], pa.list_(pa.float32())),
    "flags": pa.array([[True, None], [False], None, []], pa.list_(pa.bool_())),
    "times": pa.array([[1, None], [2], None, []], pa.list_(pa.timestamp("us"))),
    "words": pa.array([["a", None], ["b"], None, []], pa.list_(pa.string())),
    "pair": pa.array([[1, 2], [3, None], None, [BIG, 6]], pa.list_(pa.int64(), 2)),
    "square": pa.array(
        [[[1, 2], [3, 4]], [[1, None], [3, 4]], None, [[5, 6], [7, 8]]], pa.list_(pa.list_(pa.int32(), 2), 2)
    ),
    "nested": pa.array([[[1]], [[2, 4], [3]], None, [None, [BIG], [None, 1]]], pa.list_(pa.list_(pa.int64()))),
    "deep": pa.array([[[[1]]], [[[2, 4], [3]], [[5]]], None, [None, [[BIG]], []]]),
    "points": pa.array([[[1, 2], [3, 4]], [], None, [[5, None]]], pa.list_(pa.list_(pa.int32(), 2))),
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    pq.write_table(pa.table(COLUMNS), tmp_path / "x.parquet", row_group_size=2)
    return str(tmp_path)


def batches(folder: str, name: str, **options: Any) -> Any:
    """Return an unshuffled batch reader of one column."""
    return petastore.make_batch_reader(folder, [name], shuffle_row_groups=False, **options)


@pytest.mark.parametrize("seed", [None, 3])
def test_lists_with_nulls_inside_are_read_like_pyarrow(folder: str, seed: int | None) -> None:
    expected = {name: of_arrow(column) for name, column in COLUMNS.items()}
    with petastore.make_reader(folder, shuffle_row_groups=False, shuffle_rows=seed is not None, seed=seed) as reader:
        rows = [{name: of_petastore(value) for name, value in row._asdict().items()} for row in reader]
    assert sorted(map(repr, rows)) == sorted(
        repr(dict(zip(COLUMNS, row, strict=True))) for row in zip(*expected.values(), strict=True)
    )
    with petastore.make_batch_reader(folder, shuffle_row_groups=False) as reader:
        (batch,) = reader.iter_batches(4)
        assert {name: of_petastore(batch[name]) for name in COLUMNS} == expected


def test_dtype_of_lists_is_the_same_with_and_without_nulls_inside(folder: str) -> None:
    with petastore.make_batch_reader(folder, shuffle_row_groups=False) as reader:
        (batch,) = reader.iter_batches(4)
        assert batch["pair"].dtype == np.int64
        assert batch["square"].shape == (4, 2, 2)
        for name in ("ints", "floats", "flags", "times"):
            kinds = {cell.dtype for cell in batch[name] if cell is not None}
            assert kinds == {reader.schema[name].dtype}


def test_fixed_size_lists_without_nulls_inside_have_a_mask_per_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"pair": COLUMNS["pair"].take([0, 2, 3])}), tmp_path / "x.parquet")
    with petastore.make_batch_reader(str(tmp_path), shuffle_row_groups=False) as reader:
        (batch,) = reader.iter_batches(3)
        mask = batch.source.by_name["pair"].missing
        assert mask is not None
        assert mask.shape == (3,)


FILLED: dict[str, tuple[Any, list[Any]]] = {
    "ints": (-1, [[1], [2, -1], [], [BIG, 3]]),
    "floats": (-1, [[0.5], [-1], [], [1.5, 2.5]]),
    "flags": (True, [[True, True], [False], [], []]),
    "words": (Fill("?"), [["a", "?"], ["b"], [], []]),
    "pair": (-1, [[1, 2], [3, -1], [-1, -1], [BIG, 6]]),
    "square": (0, [[[1, 2], [3, 4]], [[1, 0], [3, 4]], [[0, 0], [0, 0]], [[5, 6], [7, 8]]]),
    "nested": (-1, [[[1]], [[2, 4], [3]], [], [[], [BIG], [-1, 1]]]),
    "deep": (-1, [[[[1]]], [[[2, 4], [3]], [[5]]], [], [[], [[BIG]], []]]),
    "points": (9, [[[1, 2], [3, 4]], [], [], [[5, 9]]]),
}
"""A value for `nulls=` for each column, and the expected lists."""


def lists(value: Any) -> Any:
    """Return a tensor, array, ragged tensor, or list of them, as nested lists."""
    if hasattr(value, "to_list"):
        return lists(value.to_list())
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        return [lists(item) for item in value]
    value = value.tolist() if isinstance(value, (torch.Tensor, np.generic)) else value
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("name", FILLED)
def test_nulls_fills_inside_lists_of_tensors(folder: str, name: str) -> None:
    fill, expected = FILLED[name]
    nulls = {name: fill}
    with batches(folder, name) as reader:
        (batch,) = DataLoader(reader, batch_size=4, nulls=nulls, ragged="list")
    assert lists(batch[name]) == expected
    with batches(folder, name) as reader:
        (columns,) = map(HostArrays(reader, nulls=nulls), reader.iter_batches(4))
    assert lists(columns[name]) == expected


@pytest.mark.parametrize("form", ["list", "padded", "arrays"])
@pytest.mark.parametrize("name", ["ints", "nested", "points"])
def test_nulls_inside_lists_raise_unless_nulls_is_set(folder: str, name: str, form: Any) -> None:
    with batches(folder, name) as reader:
        made = (
            map(HostArrays(reader), reader.iter_batches(4))
            if form == "arrays"
            else DataLoader(reader, batch_size=4, ragged=form)
        )
        with pytest.raises(DecodeError, match="nulls= must be set"):
            list(made)


def test_nulls_mask_is_false_for_rows_with_a_null_inside_a_list(folder: str) -> None:
    with petastore.make_batch_reader(folder, shuffle_row_groups=False) as reader:
        (batch,) = DataLoader(reader, batch_size=4, nulls="mask", ragged="list")
        assert {name: batch[f"{name}_valid"].tolist() for name in ("ints", "floats", "pair", "nested")} == {
            "ints": [True, False, False, True],
            "floats": [True, False, True, True],
            "pair": [True, False, False, True],
            "nested": [True, True, False, False],
        }


def test_ragged_padded_pads_uneven_inner_lists(folder: str) -> None:
    with batches(folder, "nested") as reader:
        (batch,) = DataLoader(reader, batch_size=4, nulls={"nested": -1}, ragged="padded")
    check_boxes(batch)


def check_boxes(batch: Any) -> None:
    values, lengths = batch["nested"].numpy(), batch["nested_lengths"].numpy()
    assert values.shape == (4, 3, 2)
    assert values[3].tolist() == [[0, 0], [BIG, 0], [-1, 1]]
    assert lengths.tolist() == [[1, 1], [2, 2], [0, 0], [3, 2]]


@pytest.mark.tf
def test_tensorflow_nulls_fill_ragged_and_padded_tensors(folder: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    names = list(FILLED)
    with petastore.make_batch_reader(folder, names, shuffle_row_groups=False) as reader:
        (batch,) = make_tf_dataset(reader, batch_size=4, nulls={name: fill for name, (fill, _) in FILLED.items()})
    for name, (_, expected) in FILLED.items():
        assert lists(batch[name] if hasattr(batch[name], "to_list") else batch[name].numpy()) == expected
    with batches(folder, "nested") as reader:
        (batch,) = make_tf_dataset(reader, batch_size=4, nulls={"nested": -1}, ragged="padded")
    check_boxes(batch)


def test_ragged_nested_makes_jagged_tensors_of_lists_with_nulls_filled(folder: str) -> None:
    with batches(folder, "ints") as reader:
        (batch,) = DataLoader(reader, batch_size=4, nulls={"ints": -1}, ragged="nested")
        assert [part.tolist() for part in batch["ints"].unbind()] == [[1], [2, -1], [], [BIG, 3]]


@pytest.mark.parametrize("form", ["dense", "nested"])
def test_uneven_inner_lists_raise_unless_padded_or_list(folder: str, form: Any) -> None:
    with batches(folder, "nested") as reader, pytest.raises(PetastoreError, match="inner lists of one length"):
        list(DataLoader(reader, batch_size=2, ragged=form))


def test_list_without_a_null_is_not_a_masked_array(folder: str) -> None:
    with petastore.make_reader(folder, ["ints"], shuffle_row_groups=False) as reader:
        kinds = [type(row.ints) for row in reader]
    assert kinds == [np.ndarray, np.ma.MaskedArray, type(None), np.ndarray]


@pytest.mark.parametrize("name", ["ints", "pair"])
def test_torch_map_and_iterable_datasets_raise_for_nulls_inside_lists(folder: str, name: str) -> None:
    dataset = MapDataset(folder, schema_fields=[name])
    with pytest.raises(DecodeError, match="nulls= must be set"):
        _ = [dataset[row] for row in range(4)]
    loading = torch.utils.data.DataLoader(ReaderDataset(folder, schema_fields=[name], shuffle_row_groups=False))
    with pytest.raises(DecodeError, match="nulls= must be set"):
        list(loading)


def test_dataset_as_dataframe_raises_for_nulls_inside_lists(folder: str) -> None:
    from petastore.spark.decoded import plain_batch, plain_schema

    dataset = petastore.open_dataset(folder)
    for name in ("pair", "ints"):
        schema = plain_schema(petastore.Unischema("x", [dataset.schema[name]]))
        with batches(folder, name) as reader, pytest.raises(EncodeError):
            plain_batch({name: next(reader.iter_batches(4))[name]}, schema)


def test_iterating_over_a_masked_array_keeps_masks_inside_rows() -> None:
    column = np.ma.MaskedArray([[1, 2], [3, 4], [5, 6]], [[False, True], [True, True], [False, False]])
    assert [of_petastore(value) for value in each_value(column)] == [[("int", 1), None], None, [("int", 5), ("int", 6)]]


@pytest.mark.parametrize("nulls", ["mask", 0])
def test_nulls_in_required_lists_are_filled(nulls: Any, tmp_path: Path) -> None:
    column = pa.field("x", pa.list_(pa.float64()), nullable=False)
    pq.write_table(pa.table([[[1.0, None], [2.0]]], schema=pa.schema([column])), tmp_path / "x.parquet")
    with petastore.make_batch_reader(str(tmp_path), shuffle_row_groups=False) as reader:
        (batch,) = DataLoader(reader, batch_size=2, nulls=nulls, ragged="list")
    assert [cell.tolist() for cell in batch["x"]] == [[1, 0], [2]]
    assert nulls == 0 or batch["x_valid"].tolist() == [False, True]
