"""Tests of inferring a transform's output schema from its first row; later rows that contradict it raise."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.adapters.torch import DataLoader
from petastore.adapters.torch.map_dataset import MapDataset
from petastore.codecs import NdarrayCodec
from petastore.errors import TransformError
from petastore.schema import Unischema, UnischemaField
from petastore.transforming.transform import TransformSpec, is_described, settled
from petastore.work.pools import PoolType
from tests.readers import transforms_to_send as sent

SCHEMA = Unischema(
    "pictures",
    [
        UnischemaField("id", np.int64),
        UnischemaField("picture", np.uint8, (4, 4), NdarrayCodec()),
        UnischemaField("word", np.str_),
    ],
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("pictures") / "set")
    rows = [{"id": i, "picture": np.full((4, 4), i, np.uint8), "word": str(i)} for i in range(20)]
    petastore.write_dataset(path, SCHEMA, rows, rows_per_row_group=5)
    return path


def scaled_columns(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"picture": (columns["picture"] / 255).astype(np.float32)[:, np.newaxis]}


def scaled_frame(frame: Any) -> Any:
    return frame.assign(picture=[(value / 255).astype(np.float32)[np.newaxis] for value in frame["picture"]])


@pytest.mark.parametrize(
    ("spec", "pool"),
    [
        (TransformSpec(sent.scaled, takes="row"), "thread"),
        (TransformSpec(sent.scaled, takes="row"), "process"),
        (TransformSpec(scaled_columns, takes="columns"), "dummy"),
        (TransformSpec(scaled_frame, takes="dataframe"), "thread"),
    ],
    ids=["row", "row in a process", "columns", "dataframe"],
)
@pytest.mark.parametrize("make", [petastore.make_reader, petastore.make_batch_reader])
def test_schema_inference_takes_dtype_and_shape_from_the_first_row(
    url: str, make: Any, spec: TransformSpec, pool: PoolType
) -> None:
    with make(url, transform_spec=spec, reader_pool_type=pool, workers_count=1, shuffle_row_groups=False) as reader:
        assert reader.schema["picture"] == UnischemaField("picture", np.float32, (1, 4, 4))
        assert [field.name for field in reader.schema] == ["id", "picture", "word"]
        batch = next(reader.iter_batches(20))
    assert batch["picture"].dtype == np.float32
    np.testing.assert_array_equal(batch["picture"][:, 0, 0, 0], (np.arange(20) / 255).astype(np.float32))


def test_transform_that_returns_all_columns_keeps_the_schema(url: str) -> None:
    with petastore.make_reader(url, transform_spec=TransformSpec(dict)) as reader:
        assert list(reader.schema) == [
            UnischemaField("id", np.int64),
            UnischemaField("picture", np.uint8, (4, 4)),
            UnischemaField("word", np.str_),
        ]


def test_transform_may_change_text_to_numbers_and_back(url: str) -> None:
    spec = TransformSpec(lambda row: row | {"word": np.int32(len(row["word"])), "id": str(row["id"])})
    with petastore.make_reader(url, ["id", "word"], transform_spec=spec, shuffle_row_groups=False) as reader:
        assert {field.name: field.numpy_dtype for field in reader.schema} == {"id": np.str_, "word": np.int32}
        assert [tuple(row) for row in reader][-1] == ("19", 2)


def test_python_numbers_keep_the_width_of_their_field(url: str) -> None:
    spec = TransformSpec(lambda row: row | {"id": int(row["id"]) + 1})
    with petastore.make_reader(url, ["id"], transform_spec=spec) as reader:
        assert reader.schema["id"].dtype == np.int64
    halves = TransformSpec(lambda row: row | {"id": row["id"] / 2})
    with petastore.make_reader(url, ["id"], transform_spec=halves) as reader:
        assert reader.schema["id"].dtype == np.float64


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_row_with_another_dtype_than_the_first_raises_with_its_number(url: str, pool: PoolType) -> None:
    spec = TransformSpec(sent.text_from_row_five)
    with petastore.make_reader(url, ["id"], pool, transform_spec=spec, shuffle_row_groups=False) as reader:
        assert reader.schema["id"].dtype == np.float64
        with pytest.raises(TransformError, match=r"must return 'id' as float64 .*, got <U4 .*id=5"):
            list(reader)


def test_schema_inference_uses_the_same_first_row_for_every_rank_and_seed(url: str) -> None:
    spec = TransformSpec(lambda row: {"id": np.float16(0) if row["id"] == 0 else np.float64(row["id"])})
    for seed in range(4):
        with petastore.make_reader(
            url, ["id"], transform_spec=spec, shuffle_rows=True, seed=seed, cur_shard=1, shard_count=2
        ) as reader:
            assert reader.schema["id"].dtype == np.float16


def test_schema_inference_runs_the_transform_on_the_first_filtered_row(url: str) -> None:
    spec = TransformSpec(lambda row: {"id": np.float16(1) if row["id"] == 7 else np.float64(row["id"])})
    with petastore.make_reader(url, ["id"], transform_spec=spec, filters=petastore.col("id") >= 7) as reader:
        assert reader.schema["id"].dtype == np.float16


def test_transform_is_not_run_to_infer_the_schema_if_edit_fields_are_given(url: str) -> None:
    called: list[int] = []

    def remember(row: dict[str, Any]) -> dict[str, Any]:
        called.append(int(row["id"]))
        return row

    for spec in (TransformSpec(remember, edit_fields=[]), TransformSpec(remember, [("id", np.int64, (), False)])):
        assert is_described(spec)
        with petastore.make_reader(url, transform_spec=spec) as reader:
            assert called == []
            next(reader)
        called.clear()


def test_transform_that_fails_for_the_first_row_raises_when_read(url: str) -> None:
    with (
        petastore.make_reader(url, transform_spec=TransformSpec(lambda _: 1 / 0), shuffle_row_groups=False) as reader,
        pytest.raises(TransformError, match=r"ZeroDivisionError.*id=0"),
    ):
        next(reader)


def test_first_row_of_an_empty_dataset_keeps_the_schema(tmp_path: Path) -> None:
    petastore.write_dataset(str(tmp_path / "none"), SCHEMA, [])
    with petastore.make_reader(str(tmp_path / "none"), transform_spec=TransformSpec(sent.scaled)) as reader:
        assert reader.schema["picture"].dtype == np.uint8
        assert list(reader) == []


def test_first_row_inference_works_for_windows_mixtures_and_random_access(url: str) -> None:
    spec = TransformSpec(sent.scaled)
    window = petastore.NGram({0: ["id", "picture"], 1: ["picture"]}, delta_threshold=1, timestamp_field="id")
    with petastore.make_reader(url, window, transform_spec=spec) as reader:
        assert next(reader)[1].picture.shape == (1, 4, 4)
    with petastore.make_mixed_reader([url, url], [1, 1], transform_spec=spec, source_column="of") as mixed:
        assert next(mixed).picture.dtype == np.float32
        assert mixed.schema["of"].dtype == np.int32
    rows = MapDataset(url, transform_spec=spec)
    assert rows[3]["picture"].shape == (1, 4, 4)


def test_transform_may_return_torch_tensors(url: str) -> None:
    import torch

    spec = TransformSpec(lambda row: {"picture": torch.from_numpy(row["picture"]).float()}, selected_fields=["picture"])
    with petastore.make_reader(url, transform_spec=spec) as reader:
        batch = next(iter(DataLoader(reader, batch_size=6)))
    assert batch["picture"].dtype == torch.float32
    assert batch["picture"].shape == (6, 4, 4)


def test_none_in_the_first_row_keeps_the_field() -> None:
    before = Unischema("s", [UnischemaField("x", np.float32, nullable=True)])
    spec = settled(TransformSpec(dict), before, '{"x": null}')
    assert spec.edit_fields == (UnischemaField("x", np.float32, nullable=True),)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_first_row_describes_columns_that_the_function_adds(url: str, pool: PoolType) -> None:
    def more(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"half": row["id"] / 2, "name": f"n{row['id']}", "pair": np.full(2, row["id"], np.int16)}

    with petastore.make_reader(
        url, ["id"], transform_spec=TransformSpec(more), reader_pool_type=pool, workers_count=1
    ) as reader:
        assert [(field.name, field.numpy_dtype, field.shape) for field in reader.schema] == [
            ("id", np.int64, ()),
            ("half", np.float64, ()),
            ("name", np.str_, ()),
            ("pair", np.int16, (2,)),
        ]
        row = next(reader)
    assert (row.half, row.name, row.pair.tolist()) == (row.id / 2, f"n{row.id}", [row.id, row.id])


@pytest.mark.parametrize("takes", ["row", "columns", "dataframe"])
def test_column_added_by_transform_is_inferred_unless_edit_fields_is_given(url: str, takes: Any) -> None:
    def add(columns: Any) -> Any:
        return columns.assign(more=columns["id"] + 1) if takes == "dataframe" else columns | {"more": columns["id"] + 1}

    with petastore.make_batch_reader(url, ["id"], transform_spec=TransformSpec(add, takes=takes)) as reader:
        assert all((batch.more == batch.id + 1).all() for batch in reader)
    for described in ([], [("id", np.int64, (), False)]):
        spec = TransformSpec(add, described, takes=takes)
        with (
            petastore.make_batch_reader(url, ["id"], transform_spec=spec) as reader,
            pytest.raises(
                TransformError, match=r"must not return the column 'more', which .* Declare it in edit_fields"
            ),
        ):
            next(reader)
    for spec in (
        TransformSpec(add, removed_fields=["more"], takes=takes),
        TransformSpec(add, selected_fields=["id"], takes=takes),
    ):
        with petastore.make_batch_reader(url, ["id"], transform_spec=spec) as reader:
            assert reader.schema.fields.keys() == {"id"}
            assert next(reader)._fields == ("id",)


def test_added_column_of_unknown_type_is_named_in_an_error(url: str) -> None:
    with (
        petastore.make_reader(url, ["id"], transform_spec=lambda row: row | {"more": None}) as reader,
        pytest.raises(TransformError, match=r"must not return the column 'more'.* edit_fields as \('more', dtype"),
    ):
        next(reader)


def test_transform_spec_accepts_a_plain_function(url: str) -> None:
    with petastore.make_reader(url, ["id"], transform_spec=lambda row: {"id": -row["id"]}) as reader:
        assert sorted(row.id for row in reader) == list(range(-19, 1))
    with petastore.make_batch_reader(url, ["id"], transform_spec=lambda frame: -frame) as reader:
        assert sorted(number for batch in reader for number in batch.id) == list(range(-19, 1))
    functions: Any
    for functions in (lambda row: {"id": -row["id"]}, [None, lambda row: {"id": -row["id"]}]):
        with petastore.make_mixed_reader([url, url], [1, 1], schema_fields=["id"], transform_spec=functions) as reader:
            assert min(row.id for row in reader) < 0
    assert MapDataset(url, ["id"], transform_spec=lambda row: {"id": -row["id"]})[3]["id"] == -3
    windows = petastore.NGram({0: ["id"], 1: ["id"]}, 1, "id")
    with petastore.make_reader(url, windows, transform_spec=lambda row: {"id": -row["id"]}) as reader:
        assert all(window[0].id - window[1].id == 1 for window in reader)
    with pytest.raises(
        petastore.errors.InvalidArgumentError, match=r"^transform_spec must be a TransformSpec or a function"
    ):
        petastore.make_reader(url, transform_spec="negative")  # type: ignore[arg-type]


@pytest.mark.parametrize("open_reader", [petastore.make_reader, petastore.make_batch_reader])
def test_transform_keeps_maps_and_lists_of_structs_unchanged(open_reader: Any, tmp_path: Path) -> None:
    stored = {
        "boxes": pa.array([[], [{"x": 1}], None]),
        "map": pa.array([[(1, 2)], [], [(3, 4), (5, 6)]], pa.map_(pa.int8(), pa.int8())),
    }
    pq.write_table(pa.table(stored), tmp_path / "x.parquet")
    changed = petastore.TransformSpec(lambda columns: columns)
    with open_reader(str(tmp_path), shuffle_row_groups=False, transform_spec=changed) as reader:
        values = [value for batch in reader.iter_batches(3) for value in zip(*batch.values(), strict=True)]
    assert values == [([], [(1, 2)]), ([{"x": 1}], []), (None, [(3, 4), (5, 6)])]


NULLS_FIRST = {
    **{
        dtype: pa.array([None, 1, 2**60 + 1 if dtype in ("int64", "uint64") else 3]).cast(dtype)
        for dtype in ("int8", "uint8", "int64", "uint64", "float32")
    },
    "bool": pa.array([None, True, False]),
    "at": pa.array([None, 1, 2], pa.timestamp("us")),
}
"""Columns of three rows, named after their dtypes, with a null in the first row."""


@pytest.fixture(scope="module")
def nulls_first(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("nulls_first")
    pq.write_table(pa.table(NULLS_FIRST), path / "x.parquet")
    return str(path)


@pytest.mark.parametrize("pool", ["thread", "process"])
@pytest.mark.parametrize("takes", ["row", "columns", "dataframe"])
def test_schema_inference_keeps_the_dtype_when_the_first_value_is_null(
    nulls_first: str, takes: Any, pool: PoolType
) -> None:
    spec = TransformSpec(sent.unchanged, takes=takes)
    stored = [column.to_pylist() for column in NULLS_FIRST.values()]
    with petastore.make_batch_reader(nulls_first, reader_pool_type=pool, workers_count=1, transform_spec=spec) as rows:
        assert [str(field.dtype) for field in rows.schema] == [*list(NULLS_FIRST)[:-1], "datetime64[us]"]
        assert [column.tolist() for column in next(rows.iter_batches(3)).values()] == stored
    sources = [nulls_first, nulls_first]
    with petastore.make_mixed_reader(sources, [1, 1], reader_pool_type=pool, transform_spec=spec) as mixed:
        assert [str(field.dtype) for field in mixed.schema] == [*list(NULLS_FIRST)[:-1], "datetime64[us]"]


@pytest.mark.parametrize("takes", ["columns", "dataframe"])
def test_inferred_field_takes_a_changed_dtype_if_the_first_value_is_null(nulls_first: str, takes: Any) -> None:
    def changed(columns: Any) -> Any:
        columns["int8"] = columns["int8"] / 2
        columns["int64"] = columns["int64"] + 1
        columns["uint8"] = columns["uint8"] > 1
        return columns

    fields = ["int8", "uint8", "int64"]
    with petastore.make_batch_reader(nulls_first, fields, transform_spec=TransformSpec(changed, takes=takes)) as reader:
        batch = next(reader.iter_batches(3))
    assert [str(column.dtype) for column in batch.values()] == ["float64", "bool", "int64"]
    assert [column.tolist() for column in batch.values()] == [
        [None, 0.5, 1.5],
        [None, False, True],
        [None, 2, 2**60 + 2],
    ]


@pytest.mark.parametrize("takes", ["columns", "dataframe"])
def test_schema_inference_takes_the_dtype_of_an_added_column_of_times(nulls_first: str, takes: Any) -> None:
    def add(columns: Any) -> Any:
        columns["later"] = columns["at"] + np.timedelta64(1, "us")
        columns["set"] = np.full(len(columns["at"]), np.datetime64("2026-01-01", "us"))
        return columns

    spec = TransformSpec(add, takes=takes, selected_fields=["set"])
    with petastore.make_batch_reader(nulls_first, ["at"], transform_spec=spec) as reader:
        assert next(reader.iter_batches(3))["set"].tolist() == [dt.datetime.fromisoformat("2026-01-01")] * 3
    with (
        petastore.make_batch_reader(nulls_first, ["at"], transform_spec=TransformSpec(add, takes=takes)) as reader,
        pytest.raises(TransformError, match=r"must not return None or NaT for 'later', which is not nullable"),
    ):
        next(reader)


def test_transform_may_return_lists_of_the_values_of_masked_columns(nulls_first: str) -> None:
    spec = TransformSpec(lambda columns: {name: list(column) for name, column in columns.items()}, takes="columns")
    with petastore.make_batch_reader(nulls_first, transform_spec=spec) as reader:
        batch = next(reader.iter_batches(3))
    assert [str(column.dtype) for column in batch.values()] == [*list(NULLS_FIRST)[:-1], "datetime64[us]"]
    assert [column.tolist() for column in batch.values()] == [column.to_pylist() for column in NULLS_FIRST.values()]
