"""Tests of `shuffling_queue_capacity` (Petastorm): it shuffles like the reader's shuffle_rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.adapters.torch import BatchedDataLoader, DataLoader
from petastore.errors import InvalidArgumentError


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a hundred rows in ten row groups, and return the URL."""
    folder: Path = tmp_path_factory.mktemp("queue") / "numbers"
    schema = petastore.Unischema("numbers", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(folder, schema, [{"id": number} for number in range(100)], rows_per_row_group=10)
    return str(folder)


@pytest.mark.parametrize("make", [DataLoader, BatchedDataLoader])
def test_shuffling_queue_capacity_equals_shuffle_rows(make: Any, numbers: str) -> None:
    def read(**asked: Any) -> list[list[int]]:
        capacity = asked.pop("capacity", 0)
        with petastore.make_reader(numbers, seed=3, **asked) as reader:
            loader = make(reader, 8, shuffling_queue_capacity=capacity)
            return [[number for batch in loader for number in batch["id"].tolist()] for _ in range(2)]

    queued = read(capacity=50)
    assert queued == read(shuffle_rows=True)
    assert queued == read(shuffle_rows=True, capacity=50)
    assert queued != read()
    assert [sorted(epoch) for epoch in queued] == [list(range(100))] * 2


def test_shuffling_queue_capacity_works_with_ranks_and_states(numbers: str) -> None:
    def loader_of(rank: int) -> DataLoader:
        reader = petastore.make_reader(numbers, cur_shard=rank, shard_count=2)
        return DataLoader(reader, 8, shuffling_queue_capacity=50)

    with loader_of(0) as first, loader_of(1) as second:
        ids = [batch["id"].tolist() for loader in (first, second) for batch in loader]
    assert sorted(number for some in ids for number in some) == list(range(100))
    with loader_of(0) as begun, loader_of(0) as gone_on:
        batches = iter(begun)
        next(batches)
        gone_on.reader.load_state_dict(begun.reader.state_dict())
        assert [batch["id"].tolist() for batch in gone_on] == [batch["id"].tolist() for batch in batches]


def test_shuffling_queue_capacity_raises_for_a_started_reader(numbers: str) -> None:
    with petastore.make_reader(numbers) as reader:
        next(reader)
        with pytest.raises(
            InvalidArgumentError,
            match="shuffling_queue_capacity must be 0 for a reader that has already returned rows, got 5",
        ):
            DataLoader(reader, 8, shuffling_queue_capacity=5)
        with pytest.raises(InvalidArgumentError, match="shuffling_queue_capacity must be an int of at least 0, got -1"):
            DataLoader(reader, 8, shuffling_queue_capacity=-1)
    with petastore.make_mixed_reader([numbers, numbers], [0.5, 0.5], num_epochs=None) as mixture:
        with pytest.warns(UserWarning, match="the readers of a mixture shuffle separately") as caught:
            DataLoader(mixture, 8, shuffling_queue_capacity=5)
        assert [warning.filename for warning in caught] == [__file__]
