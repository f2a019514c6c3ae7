"""Tests of `Dataset`: planning without I/O, selected fields, shards, stored cells and pickling."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import UnischemaField, open_dataset
from petastore.codecs import ImageDecode
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, StorageError
from petastore.plan import LastBatch, ReadUnit, Selection, Shard
from petastore.plan.request import SHARDED_DEFAULT_SEED
from tests.forked import answer_of_child
from tests.pace import LONG
from tests.readers.hanging import HangingFileSystem
from tests.readers.small import ROWS, SCHEMA, a_row, written


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return written(tmp_path / "data")


def test_plan_does_no_io(dataset: Dataset) -> None:
    for path in dataset.paths:
        Path(path).unlink()
    plan = dataset.plan(columns=["id"], shard=Shard(0, 2), epochs=3, shuffle_rows=True)
    assert plan.num_rows == ROWS
    with pytest.raises(StorageError):
        dataset.read(ReadUnit.whole(dataset.inventory, 0, ["id"]))


def test_default_seed_is_random_for_one_rank_and_fixed_for_several(dataset: Dataset) -> None:
    assert len({dataset.plan().request.order.seed for _ in range(3)}) == 3
    assert {dataset.plan(shard=Shard(rank, 2)).request.order.seed for rank in (0, 1)} == {SHARDED_DEFAULT_SEED}
    assert dataset.plan(seed=0).request.order.seed == 0


def test_unshuffled_shards_read_interleaved_row_groups(dataset: Dataset) -> None:
    assert dataset.plan(shard=Shard(0, 3)).request.order.lanes == 3
    assert dataset.plan(shard=Shard(0, 3), interleave=6).request.order.lanes == 6


@pytest.mark.parametrize(
    "asked", [{"columns": ["nowhere"]}, {"epochs": 0}, {"last_batch": "evn"}, {"shuffle_buffer_bytes": 0}], ids=str
)
def test_plan_raises_for_invalid_options(dataset: Dataset, asked: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        dataset.plan(**asked)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (None, list(SCHEMA.fields)),
        (["word", "id"], ["id", "word"]),
        (["x|id"], ["id", "x"]),
        ([UnischemaField("x", np.float32)], ["x"]),
        (iter(["x"]), ["x"]),
    ],
    ids=["all", "names", "expression", "field", "iterator"],
)
def test_selected_fields_keep_the_order_of_the_schema(dataset: Dataset, asked: Any, names: list[str]) -> None:
    order = list(dataset.schema.fields)
    assert [field.name for field in dataset.fields_of(asked)] == sorted(names, key=order.index)


def test_dataset_read_returns_stored_cells(dataset: Dataset) -> None:
    table = dataset.read(ReadUnit.whole(dataset.inventory, 1, ["word", "id"]))
    assert table.to_pydict() == {"word": [a_row(n)["word"] for n in range(5, 10)], "id": list(range(5, 10))}


def test_time_zones_are_read_in_a_child_forked_during_a_read(dataset: Dataset) -> None:
    """The child waits for no lock that a thread of the parent holds while storage hangs."""
    storage = HangingFileSystem()
    hanging = open_dataset(dataset.url.removeprefix("file://"), filesystem=storage)
    storage.at = "read"
    thread = threading.Thread(target=lambda: hanging.time_zones)
    thread.start()
    assert storage.hangs.wait(LONG)
    try:
        assert answer_of_child(lambda: dataset.time_zones) == {}
    finally:
        storage.answer.set()
        thread.join()


def test_plan_excludes_rows_that_are_not_selected(dataset: Dataset) -> None:
    selection = Selection(np.array([5, 0, 0, 2, 0]), {3: np.array([True, True, False, False, False])})
    assert dataset.plan(selection=selection, last_batch=LastBatch.DROP).num_rows == 7


def test_dataset_can_be_pickled_to_another_process(dataset: Dataset) -> None:
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
    assert (again.url, again.schema, again.inventory.fingerprint) == (
        dataset.url,
        dataset.schema,
        dataset.inventory.fingerprint,
    )
    assert again.read(ReadUnit.whole(again.inventory, 0, ["id"])).num_rows == 5


def test_with_decode_raises_for_fields_that_are_not_images(dataset: Dataset) -> None:
    assert dataset.with_decode(None).schema == dataset.schema
    with pytest.raises(InvalidArgumentError, match="word"):
        dataset.with_decode({"word": ImageDecode(mode="gray")})
