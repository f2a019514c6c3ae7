"""Tests of `MapDataset`: random access with any sampler, in worker processes, with `DataLoader`'s tensors."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)

import petastore
import petastore.adapters.torch
from petastore.adapters.torch import MapDataset, decimal_friendly_collate
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.predicates import in_lambda
from tests.adapters.counted import counted
from tests.tier import examples

# More workers than CPUs are slow, but correct.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

FIELDS = [
    petastore.UnischemaField("id", "int32"),
    petastore.UnischemaField("small", "uint16"),
    petastore.UnischemaField("flag", "bool"),
    petastore.UnischemaField("at", "datetime64[us]"),
    petastore.UnischemaField("name", str),
    petastore.UnischemaField("price", Decimal),
    petastore.UnischemaField("age", "int64", nullable=True),
    petastore.UnischemaField("image", "uint8", (4, 6, 3), CompressedImageCodec("png")),
    petastore.UnischemaField("free", "float64", (None, 2), NdarrayCodec()),
]
REQUIRED = pa.field("element", pa.int64(), nullable=False)
EQUAL = ["id", "small", "flag", "at", "name", "image"]  # columns that torch's own default_collate accepts
ROWS, PER_ROW_GROUP = 101, 9


def row(i: int) -> dict[str, Any]:
    """Return the row with this id."""
    return {
        "id": i,
        "small": 65_535 - i,
        "flag": i % 2 == 0,
        "at": np.datetime64(i, "s").astype("datetime64[us]"),
        "name": f"n{i}",
        "price": Decimal(i) / 4,
        "age": None if i % 10 == 3 else i,
        "image": np.full((4, 6, 3), i, np.uint8),
        "free": np.full((i % 3, 2), i, np.float64),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("map") / "dataset")
    rows = (row(i) for i in range(ROWS))
    petastore.write_dataset(url, petastore.Unischema("row", FIELDS), rows, rows_per_row_group=PER_ROW_GROUP)
    return url


@pytest.fixture(scope="module")
def rows(url: str) -> MapDataset:
    return MapDataset(url)


def same(left: Any, right: Any) -> bool:
    """Return whether values are equal, including dtypes of tensors; dicts and lists are compared recursively."""
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, torch.Tensor):
        return left.dtype is right.dtype and torch.equal(left, right)
    return bool(left == right)


def ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


def test_map_dataset_rows_equal_an_unshuffled_reader(url: str, rows: MapDataset) -> None:
    names = [field.name for field in FIELDS if field.name != "age"]
    with petastore.make_reader(url, names, shuffle_row_groups=False) as reader:
        (whole,) = petastore.adapters.torch.DataLoader(reader, batch_size=ROWS)
    assert len(rows) == ROWS
    for number in range(ROWS):
        found = rows[number]
        assert found.pop("age") == row(number)["age"]
        assert same(found, {name: whole[name][number] for name in names})


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=st.lists(st.integers(-ROWS, ROWS - 1), max_size=20))
def test_map_dataset_getitems_equals_single_rows(rows: MapDataset, numbers: list[int]) -> None:
    many = rows.__getitems__(numbers)
    assert len(many) == len(numbers)
    assert same(list(many), [rows[number] for number in numbers])
    assert same(many[1:3], [rows[number] for number in numbers[1:3]])


def test_map_dataset_accepts_every_index_type_of_torch(rows: MapDataset) -> None:
    indices: list[Any] = [7, np.int64(7), torch.tensor(7), 7 - ROWS]
    for index in indices:
        assert rows[index]["id"].item() == 7
    with pytest.raises(TypeError, match=r"index must be an int, got slice\(0, 3, None\)"):
        rows[slice(0, 3)]  # type: ignore[index]


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1])
def test_map_dataset_index_out_of_range_raises(rows: MapDataset, index: int) -> None:
    with pytest.raises(IndexError, match=f"must be at least -{ROWS} and below {ROWS}, the rows of .*, got {index}$"):
        rows[index]


def test_iterating_over_a_map_dataset_ends_after_the_last_row(url: str) -> None:
    assert [int(one["id"]) for one in MapDataset(url, ["id"])] == list(range(ROWS))  # type: ignore[attr-defined]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_map_dataset_works_with_torch_samplers(url: str, num_workers: int) -> None:
    rows = MapDataset(url, EQUAL, cache_bytes=20_000)

    def seen(**asked: Any) -> list[int]:
        return ids(DataLoader(rows, num_workers=num_workers, **asked))

    assert seen(batch_size=10) == list(range(ROWS))
    assert sorted(seen(batch_size=10, sampler=RandomSampler(rows))) == list(range(ROWS))
    assert seen(batch_sampler=BatchSampler(SequentialSampler(rows), 7, drop_last=True)) == list(range(98))
    assert set(seen(batch_size=9, sampler=WeightedRandomSampler([0.0] * 50 + [1.0] * 51, 30))) <= set(range(50, ROWS))
    ranks = [seen(batch_size=8, sampler=DistributedSampler(rows, 2, rank, shuffle=True)) for rank in range(2)]
    assert len(ranks[0]) == len(ranks[1]) == 51
    assert set(ranks[0]) | set(ranks[1]) == set(range(ROWS))


def test_map_dataset_works_without_batching(rows: MapDataset) -> None:
    assert [one["name"] for one in DataLoader(rows, batch_size=None, sampler=[3, 1])] == ["n3", "n1"]


def test_map_dataset_subset_reads_batches_at_once(url: str) -> None:
    rows = MapDataset(url, EQUAL, cache_bytes=0)
    assert ids(DataLoader(Subset(rows, range(20, 30)), batch_size=10)) == list(range(20, 30))
    assert rows.cache_info().reads == 2


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_map_dataset_works_in_fork_and_forkserver_workers(url: str, start: str) -> None:
    rows = MapDataset(url, EQUAL)
    assert int(rows[5]["id"]) == 5
    loader = DataLoader(rows, batch_size=10, num_workers=2, multiprocessing_context=start)
    assert ids(loader) == list(range(ROWS))
    assert rows.cache_info().reads == 1


def test_default_collate_equals_decimal_friendly_collate(url: str) -> None:
    rows = MapDataset(url, EQUAL)
    for theirs, ours in zip(
        DataLoader(rows, batch_size=10),
        DataLoader(rows, batch_size=10, collate_fn=decimal_friendly_collate),
        strict=True,
    ):
        assert same(theirs, ours)


def test_decimal_friendly_collate_equals_dataloader_batches(url: str) -> None:
    names = [field.name for field in FIELDS if field.name != "age"]
    ours = list(DataLoader(MapDataset(url, names), batch_size=10, collate_fn=decimal_friendly_collate))
    with petastore.make_reader(url, names, shuffle_row_groups=False) as reader:
        assert same(ours, list(petastore.adapters.torch.DataLoader(reader, batch_size=10)))


def test_decimal_friendly_collate_batches_map_dataset_rows_contiguously(rows: MapDataset) -> None:
    many = rows.__getitems__([4, 2])
    first = many[0]["image"]
    many[1]["image"] += 1
    with pytest.raises(DecodeError, match=r"column 'age': nulls= must be set .* 1 of 2 values missing\."):
        decimal_friendly_collate(rows.__getitems__([2, 3]))
    batch = decimal_friendly_collate(MapDataset(rows.rows.dataset, ["image"]).__getitems__([4, 2]))
    assert batch["image"].is_contiguous()
    assert first.untyped_storage().data_ptr() == many[1]["image"].untyped_storage().data_ptr()
    assert rows[2]["image"].unique().tolist() == [2]  # rows are copies, so writing into them does not change the cache


def test_decimal_friendly_collate_accepts_modified_rows(rows: MapDataset) -> None:
    """`Subset` and wrappers pass such plain lists of dicts of tensors."""
    batch = decimal_friendly_collate([{**rows[i], "age": 0} for i in (4, 5)])
    assert batch["id"].tolist() == [4, 5]
    assert batch["price"] == [Decimal("1.0"), Decimal("1.25")]
    assert [tuple(value.shape) for value in batch["free"]] == [(1, 2), (2, 2)]
    with pytest.raises(DecodeError, match=r"column 'age': nulls= must be set .* 1 of 2 values missing\."):
        decimal_friendly_collate([rows[i] for i in (3, 4)])


def test_map_dataset_batch_reads_each_row_group_once(url: str, tmp_path: Path) -> None:
    dataset = counted(petastore.open_dataset(url), tmp_path / "reads")
    rows = MapDataset(dataset, ["id"], cache_bytes=0)
    batch = [95, 0, 50, 1, 96, 51, 0]
    assert [int(one["id"]) for one in rows.__getitems__(batch)] == batch
    assert dataset.reads() == {number // PER_ROW_GROUP: 1 for number in batch}


def test_map_dataset_transform_runs_in_the_worker(url: str) -> None:
    def twice(values: dict[str, Any]) -> dict[str, Any]:
        return {"id": values["id"], "twice": np.float32(values["id"] * 2)}

    spec = petastore.TransformSpec(twice, edit_fields=[("twice", np.float32, (), False)])
    rows = MapDataset(url, ["id"], transform_spec=spec)
    assert list(rows.schema.fields) == ["id", "twice"]
    batches = DataLoader(rows, batch_size=50, num_workers=1)
    assert [float(x) for batch in batches for x in batch["twice"]] == [2.0 * i for i in range(ROWS)]


def test_map_dataset_indexes_selected_rows(url: str) -> None:
    dataset = petastore.open_dataset(url)
    selection = petastore.select_rows(dataset, filters=[("flag", "==", True)], filter_cache=False)
    rows = MapDataset(dataset, ["id"], selection=selection)
    assert ids(DataLoader(rows, batch_size=20)) == list(range(0, ROWS, 2))


def test_map_dataset_indexes_filtered_rows(url: str) -> None:
    rows = MapDataset(
        url,
        ["id"],
        filters=[("flag", "==", False)],
        predicate=in_lambda(["age"], lambda age: age is not None),
        filter_cache=False,
    )
    assert [int(one["id"]) for one in rows.__getitems__(range(len(rows)))] == [
        i for i in range(ROWS) if i % 2 and i % 10 != 3
    ]
    with pytest.raises(
        InvalidArgumentError,
        match=r"schema_fields must match fields of.*\('id', 'small', 'flag', 'at', 'name', 'price', 'age',",
    ):
        MapDataset(url, iter(["nothing"]), filters=[("flag", "==", True)], filter_cache=False)
    assert list(MapDataset(url, iter(["id"]), filters=[("id", "<", 3)], filter_cache=False).schema.fields) == ["id"]


def test_map_dataset_invalid_arguments_raise(url: str) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"schema_fields must match fields of.*\('id', 'small', 'flag', 'at', 'name', 'price', 'age',",
    ):
        MapDataset(url, ["nothing"])
    with pytest.raises(InvalidArgumentError, match="cache_bytes must be at least 0 bytes, got -1"):
        MapDataset(url, cache_bytes=-1)
    with pytest.raises(
        InvalidArgumentError,
        match=r"storage_options, filesystem, storage_timeout and schema must be left out with an open Dataset\. Pass",
    ):
        MapDataset(petastore.open_dataset(url), storage_options={})


def test_repr_describes_the_map_dataset(rows: MapDataset) -> None:
    assert repr(rows).endswith(f"dataset', {ROWS} rows, {len(FIELDS)} columns)")
    assert list(itertools.islice(rows.schema.fields, 2)) == ["id", "small"]


@pytest.mark.parametrize(
    ("required", "nullable", "cells"),
    [
        (pa.list_(REQUIRED), pa.list_(pa.int64()), [[1], [2]]),
        (pa.list_(REQUIRED, 1), pa.list_(pa.int64(), 1), [[1], [2]]),
        (pa.large_list(REQUIRED), pa.large_list(pa.int64()), [[1], [2]]),
        (pa.struct([REQUIRED]), pa.struct({"element": pa.int64()}), [{"element": 1}, {"element": 2}]),
    ],
)
def test_map_dataset_reads_files_with_different_nested_nullability(
    tmp_path: Path, required: pa.DataType, nullable: pa.DataType, cells: list[Any]
) -> None:
    for number, kind in enumerate((required, nullable, required)):
        pq.write_table(pa.table({"x": pa.array(cells, kind)}), tmp_path / f"{number}.parquet")
    rows = MapDataset(str(tmp_path)).rows.take([5, 0, 2])["x"]
    assert [cell if isinstance(cell, dict) else cell.tolist() for cell in rows] == [cells[1], cells[0], cells[0]]


def loaded(dataset: MapDataset, batch_size: int = ROWS) -> list[dict[str, Any]]:
    return list(torch.utils.data.DataLoader(dataset, batch_size=batch_size, collate_fn=decimal_friendly_collate))


@pytest.mark.parametrize(
    "options", [{"nulls": "mask"}, {"nulls": {"age": -1}}, {"ragged": "padded"}, {"ragged": "nested"}]
)
def test_map_dataset_nulls_and_ragged_equal_dataloader_batches(url: str, options: dict[str, Any]) -> None:
    names = ["id", "age"] if "nulls" in options else ["id", "free"]
    with petastore.make_reader(url, names, shuffle_row_groups=False) as reader:
        expected = list(petastore.adapters.torch.DataLoader(reader, batch_size=20, **options))
    batches = loaded(MapDataset(url, names, **options), batch_size=20)
    expected_rows, rows = (
        [{name: column[row] for name, column in batch.items()} for batch in made for row in range(len(batch["id"]))]
        for made in (expected, batches)
    )
    widths = [row.pop("free").shape for row in (*expected_rows, *rows) if "free" in row]  # of the batch, if padded
    assert same(rows, expected_rows)
    assert len(widths) in (0, 2 * ROWS)


def test_map_dataset_nulls_fill_single_rows(url: str) -> None:
    rows = MapDataset(url, ["id", "age"], nulls="mask")
    assert [rows[number]["age_valid"].item() for number in (2, 3)] == [True, False]
    batch = next(iter(torch.utils.data.DataLoader(rows, batch_size=5)))
    assert batch["age"].tolist() == [0, 1, 2, 0, 4]


def test_map_dataset_pads_ragged_rows_in_batches(url: str) -> None:
    (batch,) = loaded(MapDataset(url, ["free"], ragged="padded"))
    assert batch["free"].shape == (ROWS, 2, 2)
    assert batch["free_lengths"].tolist() == [number % 3 for number in range(ROWS)]


def test_map_dataset_error_for_nulls_names_the_nulls_parameter(url: str) -> None:
    with pytest.raises(DecodeError, match=r"column 'age': .* Pass nulls=\"mask\" or .* to DataLoader, MapDataset"):
        loaded(MapDataset(url, ["age"]))
    with pytest.raises(
        InvalidArgumentError,
        match=r"nulls must name nullable columns of the reader \('id', 'small', 'flag', 'at', 'name', 'price',",
    ):
        MapDataset(url, nulls={"nosuch": 0})
    with pytest.raises(
        InvalidArgumentError,
        match=r"ragged must name columns with a variable shape \('free'\), got 'id', whose values all have the shape",
    ):
        MapDataset(url, ragged={"id": "padded"})


def test_map_dataset_with_an_invalid_limit_raises_before_storage_is_opened(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="max_cell_bytes must be"):
        MapDataset(str(tmp_path / "missing"), max_cell_bytes="much")
