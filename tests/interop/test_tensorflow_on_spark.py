"""Tests of `DataFeed`: a reader in place of TensorFlowOnSpark's queue feed, with each row once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.errors import InvalidArgumentError
from petastore.interop.tensorflow_on_spark import DataFeed

ROWS = 10
SCHEMA = Unischema("points", [UnischemaField("id", "int64"), UnischemaField("xy", "float32", (2,))])


@pytest.fixture
def url(tmp_path: Path) -> str:
    target = str(tmp_path / "points")
    petastore.write_dataset(target, SCHEMA, ({"id": i, "xy": [i, -i]} for i in range(ROWS)), rows_per_row_group=3)
    return target


@pytest.mark.parametrize("batch_size", [3, 5, 10, 100])
def test_data_feed_returns_tuples_until_should_stop(url: str, batch_size: int) -> None:
    feed = DataFeed(petastore.make_reader(url, shuffle_row_groups=False))
    seen = []
    while not feed.should_stop():
        batch = feed.next_batch(batch_size)
        assert 0 < len(batch) <= batch_size
        seen += list(batch)
    assert [int(number) for number, _ in seen] == list(range(ROWS))
    assert [xy.tolist() for _, xy in seen] == [[i, -i] for i in range(ROWS)]
    assert feed.next_batch(batch_size) == []


def test_data_feed_maps_columns_and_ranks_have_equal_batches(url: str) -> None:
    steps, seen = [], []
    for rank in range(3):
        reader = petastore.make_reader(url, cur_shard=rank, shard_count=3, num_epochs=2)
        feed = DataFeed(reader, {"xy": "input", "id": "number"})
        count = 0
        while not feed.should_stop():
            batch = feed.next_batch(2)
            assert isinstance(batch, dict)
            assert (batch["input"] == np.stack([batch["number"], -batch["number"]], 1)).all()
            seen += batch["number"].tolist()
            count += 1
        steps.append(count)
    assert sorted(seen) == sorted([*range(ROWS)] * 2)
    assert len(set(steps)) == 1


@pytest.mark.parametrize(("ranks", "batch_size"), [(2, 1), (3, 1), (4, 1), (3, 3), (4, 2), (2, 100)])
def test_data_feed_never_exceeds_batch_size(tmp_path: Path, ranks: int, batch_size: int) -> None:
    petastore.write_dataset(tmp_path / "numbers", {"id": np.arange(103)}, rows_per_row_group=10)
    seen, calls = [], []
    for rank in range(ranks):
        reader = petastore.make_reader(tmp_path / "numbers", cur_shard=rank, shard_count=ranks, num_epochs=2)
        feed = DataFeed(reader)
        sizes = []
        while not feed.should_stop():
            batch = list(feed.next_batch(batch_size))
            sizes.append(len(batch))
            seen += [int(row[0]) for row in batch]
        assert 0 < min(sizes) <= max(sizes) <= batch_size
        calls.append(len(sizes))
    assert sorted(seen) == sorted([*range(103)] * 2)
    assert max(calls) - min(calls) <= 2  # at most one call per epoch


def test_data_feed_of_single_rows_loses_none(tmp_path: Path) -> None:
    """TensorFlowOnSpark programs use such a generator for `tf.data.Dataset.from_generator`."""

    def rdd_generator(feed: DataFeed) -> Iterator[int]:
        while not feed.should_stop():
            batch = list(feed.next_batch(1))
            if len(batch) == 0:
                return
            yield int(batch[0][0])

    petastore.write_dataset(tmp_path / "numbers", {"id": np.arange(103)}, rows_per_row_group=10)
    shards = [petastore.make_reader(tmp_path / "numbers", cur_shard=rank, shard_count=2) for rank in range(2)]
    assert sorted(number for reader in shards for number in rdd_generator(DataFeed(reader))) == list(range(103))


def test_data_feed_is_empty_after_terminate(url: str) -> None:
    feed = DataFeed(petastore.make_reader(url, num_epochs=None), {"id": "number"})
    feed.next_batch(4)
    feed.terminate()
    feed.terminate()
    assert feed.should_stop()


def test_data_feed_invalid_arguments_raise(url: str) -> None:
    with petastore.make_reader(url) as reader:
        with pytest.raises(
            InvalidArgumentError, match=r"input_mapping must name columns of the reader \('id', 'xy'\), got 'pixels'"
        ):
            DataFeed(reader, {"pixels": "x"})
        feed = DataFeed(reader)
        feed.next_batch(4)
        with pytest.raises(
            InvalidArgumentError,
            match="batch_size must be 4, as in the first call, because ranks divide batches of one size, got 5",
        ):
            feed.next_batch(5)
        with pytest.raises(
            InvalidArgumentError,
            match=r"a reader's feed cannot send results to Spark, got 2 results\. Write them with their keys,",
        ):
            feed.batch_results([1, 2])
