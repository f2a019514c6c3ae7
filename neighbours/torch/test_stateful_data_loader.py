"""Tests of torchdata's `StatefulDataLoader` over a `ReaderDataset`: exact resume after any batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from neighbours.conftest import UNEVEN
from petastore import make_reader
from petastore.adapters.torch import DataLoader, ReaderDataset
from petastore.errors import InvalidArgumentError

pytestmark = [
    # More workers than CPUs are slow, but correct.
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # torchdata 0.11 calls a function that torch 2.13 deprecates.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]


def loader(url: str, num_workers: int, **asked: Any) -> StatefulDataLoader:
    dataset = ReaderDataset(url, ["id"], batch_size=16, shuffle_rows=True, seed=7, **asked)
    return StatefulDataLoader(dataset, batch_size=None, num_workers=num_workers)


def lists(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("behind", [1, 3, 13, 14])
def test_stateful_dataloader_resumes_after_any_batch(
    numbered: Callable[..., str], num_workers: int, behind: int
) -> None:
    url = numbered()
    whole = lists(loader(url, num_workers))
    assert sorted(i for ids in whole for i in ids) == list(range(sum(UNEVEN)))
    stopped = loader(url, num_workers)
    batches = iter(stopped)
    first = lists(next(batches) for _ in range(behind))
    state = json.loads(json.dumps(stopped.state_dict()))
    del batches
    resumed = loader(url, num_workers)
    resumed.load_state_dict(state)
    assert first + lists(resumed) == whole


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("behind", [1, 4, 7])
def test_stateful_dataloader_resumes_each_of_two_shards(
    numbered: Callable[..., str], num_workers: int, behind: int
) -> None:
    url = numbered()
    read: list[int] = []
    steps = []
    for rank in range(2):
        shard = {"cur_shard": rank, "shard_count": 2}
        whole = lists(loader(url, num_workers, **shard))
        stopped = loader(url, num_workers, **shard)
        batches = iter(stopped)
        first = lists(next(batches) for _ in range(behind))
        state = json.loads(json.dumps(stopped.state_dict()))
        del batches
        resumed = loader(url, num_workers, **shard)
        resumed.load_state_dict(state)
        rest = lists(resumed)
        assert first + rest == whole
        read += [number for ids in first + rest for number in ids]
        steps.append(len(whole))
    assert sorted(read) == list(range(sum(UNEVEN)))
    assert steps == [7, 7]


def test_stateful_dataloader_rejects_another_number_of_workers(numbered: Callable[..., str]) -> None:
    url = numbered()
    stopped = loader(url, 2)
    next(iter(stopped))
    resumed = loader(url, 0)
    resumed.load_state_dict(stopped.state_dict())
    with pytest.raises((AssertionError, InvalidArgumentError)):
        lists(resumed)


def test_dataset_of_a_sharded_loader_is_rejected(numbered: Callable[..., str]) -> None:
    with make_reader(numbered(), cur_shard=0, shard_count=2) as reader:
        with pytest.raises(InvalidArgumentError, match=r"the loader must be iterated instead of `loader\.dataset`"):
            list(StatefulDataLoader(DataLoader(reader, 16).dataset, batch_size=16))
        with pytest.raises(InvalidArgumentError, match=r"a reader cannot be indexed.*For torch write"):
            list(StatefulDataLoader(reader, batch_size=16))
