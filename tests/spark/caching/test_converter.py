"""Tests of converters of existing files, without Spark; `test_frames.py` tests converters of DataFrames."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, ImageDecode
from petastore.errors import (
    DatasetNotFoundError,
    InvalidArgumentError,
    ReaderClosedError,
    StorageError,
    UnknownParameterError,
)
from petastore.spark import SparkDatasetConverter, make_spark_converter, register_delete_dir_handler
from petastore.spark.caching import converter
from petastore.spark.caching.leases import Leases
from petastore.storage.files.location import open_location

ROWS = 20
NAME = "20260102030405-appid-local-1-0b0c5f10-3a52-4a77-9a1e-0d6a1c1f2b3c"


def write(folder: Path) -> Path:
    schema = Unischema("points", [UnischemaField("id", "int64"), UnischemaField("xy", "float32", (2,))])
    rows = [{"id": n, "xy": np.full(2, n, "float32")} for n in range(ROWS)]
    petastore.write_dataset(folder, schema, rows, rows_per_row_group=5)
    return folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(write(tmp_path / "points"))


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory of this process, as a converter would have created it."""
    parent, leases = open_location(tmp_path / "parent"), Leases()
    leases.take(parent, NAME)
    yield write(tmp_path / "parent" / NAME)
    leases.give_back(parent, NAME)


def test_converter_reads_existing_files_in_place(url: str) -> None:
    made = make_spark_converter(url)
    assert len(made) == made.dataset_size == ROWS
    assert made.cache_dir_url == f"file://{url}"
    assert [Path(name.removeprefix("file://")).parent for name in made.file_urls] == [Path(url)]
    assert repr(made) == f"SparkDatasetConverter('file://{url}', 1 files, 20 rows)"
    with pytest.raises(DatasetNotFoundError):
        make_spark_converter(url + "-not-there")


def test_converter_reads_a_single_file(url: str) -> None:
    (file,) = Path(url).glob("*.parquet")
    made = make_spark_converter(file)
    assert made.file_urls == [file.as_uri()]
    with made.make_torch_dataloader(num_epochs=1) as loader:
        assert sum(len(batch["id"]) for batch in loader) == ROWS


def test_converter_torch_loader_is_endless_by_default(url: str) -> None:
    made = make_spark_converter(url)
    with made.make_torch_dataloader(batch_size=8) as endless:
        sizes = [len(batch["id"]) for batch in itertools.islice(endless, 9)]
    assert sizes == [8, 8, 4] * 3
    with made.make_torch_dataloader(num_epochs=2) as loader:
        assert [tuple(batch["xy"].shape) for batch in loader] == [(ROWS, 2)] * 2


def test_converter_loaders_are_independent(url: str) -> None:
    made = make_spark_converter(url)
    with made.make_torch_dataloader(num_epochs=1) as one, made.make_torch_dataloader(num_epochs=1) as other:
        pairs = list(zip(one, other, strict=True))
    assert all(sorted(left["id"]) == sorted(right["id"]) == list(range(ROWS)) for left, right in pairs)


def test_converter_shards_divide_the_rows(url: str) -> None:
    made = pickle.loads(pickle.dumps(make_spark_converter(url)))  # noqa: S301 - our own bytes
    seen: list[int] = []
    for shard in range(3):
        with made.make_torch_dataloader(num_epochs=1, cur_shard=shard, shard_count=3) as loader:
            seen += [int(number) for batch in loader for number in batch["id"]]
    assert sorted(seen) == list(range(ROWS))


def test_converter_shuffling_queue_capacity_shuffles_rows(url: str) -> None:
    made = make_spark_converter(url)
    rows = {}
    for capacity in (0, 10):
        arguments: dict[str, Any] = {"num_epochs": 1, "seed": 3, "shuffle_row_groups": False}
        arguments["shuffling_queue_capacity"] = capacity
        with made.make_torch_dataloader(**arguments) as loader:
            rows[capacity] = [int(number) for batch in loader for number in batch["id"]]
    assert rows[0] == list(range(ROWS)) == sorted(rows[10]) != rows[10]


def test_converter_data_loader_fn_receives_the_reader(url: str) -> None:
    given: dict[str, Any] = {}

    def make(reader: Any, **arguments: Any) -> str:
        given.update(arguments, columns=list(reader.schema.fields), workers=reader)
        return "a loader"

    with make_spark_converter(url).make_torch_dataloader(
        batch_size=7, data_loader_fn=make, schema_fields=["id"]
    ) as loader:
        assert loader == "a loader"
    assert (given["batch_size"], given["shuffling_queue_capacity"], given["columns"]) == (7, 0, ["id"])
    assert given["workers"].stopped


@pytest.mark.tf
def test_converter_tf_dataset_yields_named_tuples(url: str) -> None:
    made = make_spark_converter(url)
    with made.make_tf_dataset(num_epochs=1) as dataset:
        (batch,) = list(dataset)
        assert batch.xy.shape == batch["xy"].shape == (ROWS, 2)
        assert batch._fields == ("id", "xy")
    with made.make_tf_dataset(batch_size=6, prefetch=2) as dataset:
        pairs = dataset.map(lambda row: (row.xy, row.id))
        assert [tuple(xy.shape) for xy, _ in pairs.take(4)] == [(6, 2), (6, 2), (6, 2), (2, 2)]


@pytest.mark.tf
def test_converter_tf_dataset_has_tensorflow_1_methods(url: str) -> None:
    import tensorflow as tf

    with tf.Graph().as_default(), make_spark_converter(url).make_tf_dataset(batch_size=6, num_epochs=1) as dataset:
        assert dataset.output_shapes.xy.as_list() == [None, 2]
        batch = dataset.make_one_shot_iterator().get_next()
        with tf.compat.v1.Session() as session:
            assert [session.run(batch).id.shape for _ in range(4)] == [(6,), (6,), (6,), (2,)]
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(batch)


@pytest.fixture
def incomplete(tmp_path: Path) -> SparkDatasetConverter:
    """Return a converter of rows with nulls, lists of several lengths, and images."""
    columns = {"k": [1, None, 3], "words": [[1], [2, 3], []], "image": np.full((3, 8, 8, 3), 9, np.uint8)}
    image = UnischemaField("image", "uint8", (8, 8, 3), CompressedImageCodec("png"))
    fields = [UnischemaField("k", "int64", nullable=True), UnischemaField("words", "int64", (None,)), image]
    petastore.write_dataset(tmp_path / "incomplete", Unischema("incomplete", fields), columns)
    return make_spark_converter(tmp_path / "incomplete")


def test_converter_torch_loader_accepts_nulls_ragged_and_decode(incomplete: SparkDatasetConverter) -> None:
    with incomplete.make_torch_dataloader(
        batch_size=3,
        num_epochs=1,
        nulls={"k": "mask"},
        ragged="padded",
        decode={"image": ImageDecode(size=(4, 4))},
        shuffle_row_groups=False,
    ) as loader:
        (batch,) = loader
    assert batch["k_valid"].tolist() == [True, False, True]
    assert batch["words"].tolist() == [[1, 0], [2, 3], [0, 0]]
    assert batch["image"].shape == (3, 4, 4, 3)


@pytest.mark.tf
def test_converter_tf_dataset_accepts_nulls_ragged_and_decode(incomplete: SparkDatasetConverter) -> None:
    with incomplete.make_tf_dataset(
        batch_size=3,
        num_epochs=1,
        nulls=-1,
        ragged="padded",
        decode={"image": ImageDecode(size=(4, 4))},
        shuffle_row_groups=False,
    ) as dataset:
        (batch,) = dataset
    assert batch.k.numpy().tolist() == [1, -1, 3]
    assert batch.words.shape == (3, 2)
    assert batch.image.shape == (3, 4, 4, 3)


def test_converter_data_loader_fn_receives_nulls_and_ragged(
    incomplete: SparkDatasetConverter,
) -> None:
    asked: list[dict[str, Any]] = []
    cases: list[dict[str, Any]] = [{}, {"nulls": 0, "ragged": "list"}]
    for given in cases:
        with incomplete.make_torch_dataloader(data_loader_fn=lambda _, **names: asked.append(names), **given):
            pass
    assert asked == [
        {"batch_size": 32, "shuffling_queue_capacity": 0},
        {"batch_size": 32, "shuffling_queue_capacity": 0, "nulls": 0, "ragged": "list"},
    ]


def test_converter_unknown_parameter_raises_and_lists_parameters(incomplete: SparkDatasetConverter) -> None:
    unknown: dict[str, Any] = {"nulz": 0}
    odd: dict[str, Any] = {"qqq": 1}
    url: dict[str, Any] = {"dataset_url_or_urls": "x"}
    with pytest.raises(UnknownParameterError, match=r"make_tf_dataset has no parameter nulz: did you mean nulls\?"):
        incomplete.make_tf_dataset(**unknown)
    with pytest.raises(UnknownParameterError, match="make_torch_dataloader has no parameter qqq") as refused:
        incomplete.make_torch_dataloader(**odd)
    said = str(refused.value).partition("its parameters are ")[2].split(", ")
    assert said == [
        "batch_size", "data_loader_fn", "nulls", "num_epochs", "ragged", "shuffling_queue_capacity", "workers_count",
    ]  # fmt: skip
    with pytest.raises(UnknownParameterError, match="no parameter dataset_url_or_urls"):
        incomplete.make_tf_dataset(**url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("workers_count", 0),
        ("workers_count", 1.5),
        ("shuffling_queue_capacity", -1),
        ("batch_size", True),
    ],
)
def test_converter_invalid_arguments_raise_at_the_call(url: str, name: str, value: Any) -> None:
    made = make_spark_converter(url)
    for make in (made.make_torch_dataloader, made.make_tf_dataset):
        with pytest.raises(InvalidArgumentError, match=name):
            make(**{name: value})
    with pytest.raises(InvalidArgumentError, match="prefetch"):
        made.make_tf_dataset(prefetch=-2)


@pytest.mark.parametrize("given", [None, 7, ["a"], object()])
def test_make_spark_converter_raises_for_other_objects(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^df must be a Spark DataFrame, or a URL of files, got "):
        make_spark_converter(given)


def test_converter_warns_when_the_shard_is_not_the_rank(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "4")
    made = make_spark_converter(url)
    with pytest.warns(UserWarning, match="rank 1 of 4") as of_torch:
        made.make_torch_dataloader()
    with pytest.warns(UserWarning, match="rank 1 of 4") as of_tensorflow:
        made.make_tf_dataset(cur_shard=2, shard_count=4)
    assert {warning.filename for warning in [*of_torch, *of_tensorflow]} == {__file__}


def test_converter_never_deletes_existing_files(url: str) -> None:
    made = make_spark_converter(url)
    made.delete()
    assert petastore.open_dataset(url).inventory.num_rows == ROWS
    with pytest.raises(ReaderClosedError, match="was deleted"):
        made.make_torch_dataloader()


def test_converter_files_can_be_deleted_by_another_process(mine: Path) -> None:
    copy = SparkDatasetConverter(mine.as_uri(), [], ROWS)
    copy.delete()
    assert list(mine.parent.iterdir()) == []
    copy.delete()


def test_converter_uses_the_registered_delete_handler(mine: Path) -> None:
    asked: list[str] = []
    register_delete_dir_handler(asked.append)
    try:
        SparkDatasetConverter(mine.as_uri(), [], ROWS).delete()
    finally:
        register_delete_dir_handler(None)
    assert asked == [mine.as_uri()]
    assert mine.exists()


def test_converter_waits_for_files_to_become_visible(url: str, tmp_path: Path) -> None:
    made = make_spark_converter(url)
    hidden = tmp_path / "hidden"
    Path(url).rename(hidden)
    timer = threading.Timer(0.1, hidden.rename, (url,))
    timer.start()
    with made.make_torch_dataloader(num_epochs=1) as loader:
        assert len(loader) == 1
    timer.join()


def test_converter_missing_files_raise(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 60)
    monkeypatch.setattr(converter, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    made = make_spark_converter(url)
    (file,) = Path(url).glob("*.parquet")
    file.unlink()
    with pytest.raises(
        StorageError, match=f"1 of 1 files of the converter are missing after 30 s, such as {file.name}"
    ):
        made.make_torch_dataloader().__enter__()
