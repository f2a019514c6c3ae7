"""The sampler's order: each row once over all ranks, few reads of row groups, equal batches, another one each epoch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import petastore
from petastore.adapters.torch import BlockSampler, MapDataset
from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.plan.request import TailWord
from tests.adapters.counted import counted

# More workers than CPUs are slow and right all the same.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

ROWS, PER_ROW_GROUP = 3001, 20
GROUPS = -(-ROWS // PER_ROW_GROUP)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """3,001 rows of about 400 bytes in row groups of 20: about 1.2 MB, of which caches here keep a tenth."""
    url = str(tmp_path_factory.mktemp("blocks") / "dataset")
    fields = [petastore.UnischemaField("id", "int32"), petastore.UnischemaField("noise", "float32", (100,), None)]
    noise = np.random.default_rng(0).random((ROWS, 100), dtype=np.float32)
    rows = ({"id": i, "noise": noise[i]} for i in range(ROWS))
    petastore.write_dataset(url, petastore.Unischema("row", fields), rows, rows_per_row_group=PER_ROW_GROUP)
    return url


@pytest.fixture(scope="module")
def rows(url: str) -> MapDataset:
    return MapDataset(url, cache_bytes=120_000)


def ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


def test_single_rows_come_once_and_in_the_same_order_for_the_same_seed(rows: MapDataset) -> None:
    numbers = list(BlockSampler(rows))
    assert sorted(numbers) == list(range(ROWS)) != numbers
    assert list(BlockSampler(rows)) == numbers
    assert list(BlockSampler(rows, seed=1)) != numbers
    assert list(BlockSampler(rows, shuffle=False)) == list(range(ROWS))


@pytest.mark.parametrize("num_workers", [0, 2, 3])
def test_a_row_group_is_read_about_once_an_epoch(url: str, tmp_path: Path, num_workers: int) -> None:
    dataset = counted(petastore.open_dataset(url), tmp_path / "reads")
    rows = MapDataset(dataset, cache_bytes=120_000)
    sampler = BlockSampler(rows, batch_size=32, num_workers=num_workers)
    assert sorted(ids(DataLoader(rows, batch_sampler=sampler, num_workers=num_workers))) == list(range(ROWS))
    assert dataset.reads().total() <= 1.2 * GROUPS


def test_single_rows_read_row_groups_about_once_too(url: str, tmp_path: Path) -> None:
    dataset = counted(petastore.open_dataset(url), tmp_path / "reads")
    rows = MapDataset(dataset, cache_bytes=120_000)
    ids(DataLoader(rows, batch_size=32, sampler=BlockSampler(rows)))
    assert dataset.reads().total() <= 1.2 * GROUPS
    before = dataset.reads().total()
    ids(DataLoader(rows, batch_size=32, shuffle=True))
    assert dataset.reads().total() - before > 5 * GROUPS  # what it is there to avoid


def test_rows_are_mixed_from_many_row_groups(rows: MapDataset) -> None:
    batches = list(BlockSampler(rows, batch_size=32))
    assert np.median([len({number // PER_ROW_GROUP for number in batch}) for batch in batches]) >= 4


@pytest.mark.parametrize("last_batch", ["even", "drop", "wrap"])
@pytest.mark.parametrize(("ranks", "num_workers", "batch_size"), [(1, 4, 7), (2, 0, 7), (3, 2, 64), (7, 3, 1)])
def test_ranks_share_the_rows_and_make_equally_many_batches(
    rows: MapDataset, last_batch: str, ranks: int, num_workers: int, batch_size: int
) -> None:
    asked: dict[str, Any] = {
        "batch_size": batch_size,
        "num_workers": num_workers,
        "last_batch": last_batch,
        "num_replicas": ranks,
    }
    samplers = [BlockSampler(rows, rank=rank, **asked) for rank in range(ranks)]
    batches = [list(sampler) for sampler in samplers]
    assert {len(one) for one in batches} == {len(sampler) for sampler in samplers} == {len(batches[0])}
    seen = Counter(number for one in batches for batch in one for number in batch)
    if last_batch == "even":
        assert seen == Counter(range(ROWS))
    elif last_batch == "drop":
        assert set(seen.values()) == {1}
        assert seen.total() == ROWS // (ranks * batch_size) * ranks * batch_size
    else:
        assert set(seen) == set(range(ROWS))
        assert seen.total() < ROWS + ranks * batch_size


def test_single_rows_of_ranks_are_shared_equally_or_refused(rows: MapDataset) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"3,001 rows cannot be shared equally, row by row, by 2 ranks.*batch_size"
    ):
        BlockSampler(rows, num_replicas=2, rank=0)
    tails: list[tuple[TailWord, int]] = [("drop", 1500), ("wrap", 1501)]
    for last_batch, each in tails:
        shares = [list(BlockSampler(rows, num_replicas=2, rank=rank, last_batch=last_batch)) for rank in range(2)]
        assert [len(share) for share in shares] == [each, each]


def test_each_pass_is_another_epoch_and_set_epoch_says_which(rows: MapDataset) -> None:
    sampler = BlockSampler(rows, batch_size=100)
    first, second = list(sampler), list(sampler)
    assert first != second
    next(iter(sampler))  # a pass that was left early is over
    third = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) == second
    sampler.set_epoch(3)
    assert list(sampler) == third
    sampler.set_epoch(0)
    sampler.set_epoch(0)
    assert list(sampler) == first


@pytest.mark.parametrize("num_workers", [0, 3])
def test_it_goes_on_from_the_state_after_every_batch(rows: MapDataset, num_workers: int) -> None:
    def fresh() -> BlockSampler:
        return BlockSampler(rows, batch_size=200, num_workers=num_workers)

    sampler, states = fresh(), []
    assert list(sampler) == list(fresh())
    batches = []
    for batch in sampler:  # the second epoch
        batches.append(batch)
        states.append(json.loads(json.dumps(sampler.state_dict())))
    next_epoch = list(sampler)
    sampler.set_epoch(1)
    list(sampler)
    for step, state in enumerate(states, start=1):
        assert sampler.state_after(step) == state
        again = fresh()
        again.load_state_dict(state)
        again.set_epoch(1)  # as training loops do
        assert list(again) == batches[step:]
        assert list(again) == next_epoch
        again.load_state_dict(state)
        again.set_epoch(0)  # as who counts from 0 in every process
        assert list(again) == batches[step:]
        again.set_epoch(1)
        assert list(again) == next_epoch
        again.load_state_dict(state)
        with pytest.warns(UserWarning, match=r"set_epoch\(5\) .* state of epoch 1 was loaded"):
            again.set_epoch(5)
        assert list(again) == batches[step:]


def test_after_a_round_of_workers_other_ranks_and_workers_go_on(rows: MapDataset) -> None:
    sampler = BlockSampler(rows, batch_size=10, num_workers=4)
    taken = list(sampler)[:24]
    rest = []
    for rank in range(2):
        other = BlockSampler(rows, batch_size=16, num_workers=3, num_replicas=2, rank=rank)
        other.load_state_dict(sampler.state_after(24))
        rest += list(other)
    assert sorted(number for batch in (*taken, *rest) for number in batch) == list(range(ROWS))
    with pytest.raises(InvalidArgumentError, match="middle of a round of workers with workers=4, but here it is 3"):
        BlockSampler(rows, batch_size=10, num_workers=3).load_state_dict(sampler.state_after(25))


def test_without_a_filter_a_reader_goes_on_from_its_state(url: str, rows: MapDataset) -> None:
    sampler = BlockSampler(rows, batch_size=100)
    taken = [number for _, batch in zip(range(7), sampler, strict=False) for number in batch]
    with petastore.make_reader(url, ["id"], shuffle_rows=True, seed=0) as reader:
        reader.load_state_dict(sampler.state_dict())
        rest = [int(i) for batch in reader.iter_batches(64) for i in batch["id"]]
    assert sorted(taken + rest) == list(range(ROWS))


def test_a_selection_is_sampled_by_its_own_numbers(url: str) -> None:
    dataset = petastore.open_dataset(url)
    selection = petastore.select_rows(dataset, filters=[("id", "<", 333)], filter_cache=False)
    rows = MapDataset(dataset, ["id"], selection=selection)
    sampler = BlockSampler(rows, batch_size=50)
    assert sorted(ids(DataLoader(rows, batch_sampler=sampler))) == list(range(333))


def test_ranks_are_those_of_torch_distributed(
    rows: MapDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidArgumentError, match=r"WORLD_SIZE is 2, but torch\.distributed is not initialised"):
        BlockSampler(rows, batch_size=10)
    assert len(BlockSampler(rows, batch_size=10, num_replicas=1, rank=0)) == 301
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        assert len(BlockSampler(rows, batch_size=10)) == 301
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"num_workers": 2}, "num_workers needs a batch_size"),
        ({"last_batch": "pad"}, "last_batch='pad' marks repeats in a column"),
        ({"last_batch": "best"}, "last_batch='best' is not known"),
        ({"rank": 1}, "num_replicas=None and rank=1: give both"),
        ({"num_replicas": 2, "rank": 2}, "shards are numbered from 0 to 1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"seed": "x"}, "seed='x'"),
    ],
)
def test_what_cannot_be_is_refused_at_the_call(rows: MapDataset, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        BlockSampler(rows, **asked)


def test_fewer_rows_than_ranks_are_refused_on_every_rank(rows: MapDataset) -> None:
    with pytest.raises(NoDataAvailableError):
        BlockSampler(rows, batch_size=1, num_replicas=ROWS + 1, rank=0)
