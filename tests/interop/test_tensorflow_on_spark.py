"""A feed of a reader gives what a feed of a queue gives, to the end and not beyond."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.errors import RequestError
from petastore.interop.tensorflow_on_spark import DataFeed

ROWS = 10
SCHEMA = Unischema("points", [UnischemaField("id", "int64"), UnischemaField("xy", "float32", (2,))])


@pytest.fixture
def url(tmp_path: Path) -> str:
    target = str(tmp_path / "points")
    petastore.write_dataset(target, SCHEMA, ({"id": i, "xy": [i, -i]} for i in range(ROWS)), rows_per_row_group=3)
    return target


@pytest.mark.parametrize("batch_size", [3, 5, 10, 100])
def test_rows_come_as_tuples_until_the_feed_says_stop(url: str, batch_size: int) -> None:
    feed = DataFeed(petastore.make_reader(url, shuffle_row_groups=False))
    seen = []
    while not feed.should_stop():
        batch = feed.next_batch(batch_size)
        assert 0 < len(batch) <= batch_size
        seen += list(batch)
    assert [int(number) for number, _ in seen] == list(range(ROWS))
    assert [xy.tolist() for _, xy in seen] == [[i, -i] for i in range(ROWS)]
    assert feed.next_batch(batch_size) == []


def test_columns_come_under_the_names_of_the_model_equally_often_on_all_ranks(url: str) -> None:
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


def test_a_feed_that_is_terminated_gives_nothing_more(url: str) -> None:
    feed = DataFeed(petastore.make_reader(url, num_epochs=None), {"id": "number"})
    feed.next_batch(4)
    feed.terminate()
    feed.terminate()
    assert feed.should_stop()


def test_what_cannot_be_is_refused(url: str) -> None:
    with petastore.make_reader(url) as reader:
        with pytest.raises(RequestError, match="input_mapping names 'pixels'"):
            DataFeed(reader, {"pixels": "x"})
        feed = DataFeed(reader)
        feed.next_batch(4)
        with pytest.raises(RequestError, match=r"next_batch\(5\) after next_batch\(4\)"):
            feed.next_batch(5)
        with pytest.raises(RequestError, match="2 results cannot go back to Spark"):
            feed.batch_results([1, 2])
