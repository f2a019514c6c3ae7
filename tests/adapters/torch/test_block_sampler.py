"""Tests of `BlockSampler`: each row once over all ranks, equal batches, few reads, resuming."""

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
from petastore.plan.request import LastBatchWord
from tests.adapters.counted import counted

# More workers than CPUs are slow, but correct.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

ROWS, PER_ROW_GROUP = 3001, 20
GROUPS = -(-ROWS // PER_ROW_GROUP)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write 3,001 rows of about 400 bytes in row groups of 20, about 1.2 MB; caches here keep a tenth of that."""
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


def test_block_sampler_yields_each_row_once_in_the_order_of_its_seed(rows: MapDataset) -> None:
    numbers = list(BlockSampler(rows))
    assert sorted(numbers) == list(range(ROWS)) != numbers
    assert list(BlockSampler(rows)) == numbers
    assert list(BlockSampler(rows, seed=1)) != numbers
    assert list(BlockSampler(rows, shuffle=False)) == list(range(ROWS))


@pytest.mark.parametrize("num_workers", [0, 2, 3])
def test_block_sampler_reads_row_groups_about_once_per_epoch(url: str, tmp_path: Path, num_workers: int) -> None:
    dataset = counted(petastore.open_dataset(url), tmp_path / "reads")
    rows = MapDataset(dataset, cache_bytes=120_000)
    sampler = BlockSampler(rows, batch_size=32, num_workers=num_workers)
    assert sorted(ids(DataLoader(rows, batch_sampler=sampler, num_workers=num_workers))) == list(range(ROWS))
    assert dataset.reads().total() <= 1.2 * GROUPS


def test_block_sampler_of_single_rows_reads_row_groups_about_once(url: str, tmp_path: Path) -> None:
    dataset = counted(petastore.open_dataset(url), tmp_path / "reads")
    rows = MapDataset(dataset, cache_bytes=120_000)
    ids(DataLoader(rows, batch_size=32, sampler=BlockSampler(rows)))
    assert dataset.reads().total() <= 1.2 * GROUPS
    before = dataset.reads().total()
    ids(DataLoader(rows, batch_size=32, shuffle=True))
    assert dataset.reads().total() - before > 5 * GROUPS  # torch's own shuffle, which BlockSampler replaces


def test_block_sampler_mixes_rows_of_many_row_groups(rows: MapDataset) -> None:
    batches = list(BlockSampler(rows, batch_size=32))
    assert np.median([len({number // PER_ROW_GROUP for number in batch}) for batch in batches]) >= 4


@pytest.mark.parametrize("last_batch", ["even", "drop", "wrap"])
@pytest.mark.parametrize(("ranks", "num_workers", "batch_size"), [(1, 4, 7), (2, 0, 7), (3, 2, 64), (7, 3, 1)])
def test_block_sampler_ranks_have_equal_numbers_of_batches(
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


def test_block_sampler_raises_when_single_rows_do_not_divide_among_ranks(rows: MapDataset) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match="batch_size must be given where 3,001 rows do not divide equally among 2 ranks: a rank with one",
    ):
        BlockSampler(rows, num_replicas=2, rank=0)
    tails: list[tuple[LastBatchWord, int]] = [("drop", 1500), ("wrap", 1501)]
    for last_batch, each in tails:
        shares = [list(BlockSampler(rows, num_replicas=2, rank=rank, last_batch=last_batch)) for rank in range(2)]
        assert [len(share) for share in shares] == [each, each]


def test_block_sampler_starts_a_new_epoch_per_iteration(rows: MapDataset) -> None:
    sampler = BlockSampler(rows, batch_size=100)
    first, second = list(sampler), list(sampler)
    assert first != second
    next(iter(sampler))  # an abandoned pass counts as an epoch
    third = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) == second
    sampler.set_epoch(3)
    assert list(sampler) == third
    sampler.set_epoch(0)
    sampler.set_epoch(0)
    assert list(sampler) == first


@pytest.mark.parametrize("num_workers", [0, 3])
def test_block_sampler_resumes_from_the_state_after_every_batch(rows: MapDataset, num_workers: int) -> None:
    def fresh() -> BlockSampler:
        return BlockSampler(rows, batch_size=200, num_workers=num_workers)

    sampler, states = fresh(), []
    assert list(sampler) == list(fresh())
    batches = []
    for batch in sampler:  # this pass is the second epoch
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
        again.set_epoch(0)  # as a training loop that counts epochs from 0 in every process
        assert list(again) == batches[step:]
        again.set_epoch(1)
        assert list(again) == next_epoch
        again.load_state_dict(state)
        with pytest.warns(UserWarning, match=r"set_epoch\(5\) .* state of epoch 1 was loaded"):
            again.set_epoch(5)
        assert list(again) == batches[step:]


@pytest.mark.parametrize("num_workers", [0, 1, pytest.param(3, marks=pytest.mark.slow)])
def test_dataloader_resumes_from_block_sampler_state(rows: MapDataset, num_workers: int) -> None:
    def fresh() -> BlockSampler:
        return BlockSampler(rows, batch_size=200, num_workers=num_workers)

    def loaded_by(sampler: BlockSampler) -> list[list[int]]:
        return [batch["id"].tolist() for batch in DataLoader(rows, batch_sampler=sampler, num_workers=num_workers)]

    whole, next_epoch = loaded_by(once := fresh()), loaded_by(once)
    for step in (1, 4, len(whole)):
        sampler = fresh()
        loader = iter(DataLoader(rows, batch_sampler=sampler, num_workers=num_workers))
        for _ in range(step):
            next(loader)
        state = sampler.state_after(step)
        again = fresh()
        again.load_state_dict(state)
        assert len(again) == len(whole) - step
        assert loaded_by(again) == whole[step:]
        if step < len(whole):
            assert loaded_by(again) == next_epoch


def test_block_sampler_resumes_with_other_ranks_and_workers(rows: MapDataset) -> None:
    sampler = BlockSampler(rows, batch_size=10, num_workers=4)
    taken = list(sampler)[:24]
    rest = []
    for rank in range(2):
        other = BlockSampler(rows, batch_size=16, num_workers=3, num_replicas=2, rank=rank)
        other.load_state_dict(sampler.state_after(24))
        rest += list(other)
    assert sorted(number for batch in (*taken, *rest) for number in batch) == list(range(ROWS))
    with pytest.raises(InvalidArgumentError, match=r"workers must be 4 to resume from this state, got 3"):
        BlockSampler(rows, batch_size=10, num_workers=3).load_state_dict(sampler.state_after(25))


def test_reader_resumes_from_block_sampler_state(url: str, rows: MapDataset) -> None:
    sampler = BlockSampler(rows, batch_size=100)
    taken = [number for _, batch in zip(range(7), sampler, strict=False) for number in batch]
    with petastore.make_reader(url, ["id"], shuffle_rows=True, seed=0) as reader:
        reader.load_state_dict(sampler.state_dict())
        rest = [int(i) for batch in reader.iter_batches(64) for i in batch["id"]]
    assert sorted(taken + rest) == list(range(ROWS))


def test_block_sampler_indexes_selected_rows(url: str) -> None:
    dataset = petastore.open_dataset(url)
    selection = petastore.select_rows(dataset, filters=[("id", "<", 333)], filter_cache=False)
    rows = MapDataset(dataset, ["id"], selection=selection)
    sampler = BlockSampler(rows, batch_size=50)
    assert sorted(ids(DataLoader(rows, batch_sampler=sampler))) == list(range(333))


def test_block_sampler_takes_rank_from_torch_distributed(
    rows: MapDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        InvalidArgumentError,
        match=r"torch\.distributed must be initialized, because WORLD_SIZE is 2, and the rank is unknown\. Call",
    ):
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
        (
            {"num_workers": 2},
            r"num_workers must be 0 without batch_size, because torch assigns whole batches to its workers\.",
        ),
        (
            {"last_batch": "pad"},
            "last_batch must be 'even', 'drop' or 'wrap' for a sampler, got 'pad', which needs a column to",
        ),
        ({"last_batch": "best"}, "last_batch must be one of 'even', 'drop', 'pad', 'wrap', got 'best'"),
        (
            {"rank": 1},
            r"num_replicas and rank must be given together, got num_replicas=None and rank=1\. Give both, or",
        ),
        ({"num_replicas": 2, "rank": 2}, "cur_shard must be from 0 to 1 with shard_count=2, got 2"),
        ({"batch_size": 0}, "batch_size must be an int of at least 1, got 0"),
        ({"seed": "x"}, "seed must be an int, or None for a random one, got 'x'"),
    ],
)
def test_block_sampler_invalid_arguments_raise_at_the_call(
    rows: MapDataset, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        BlockSampler(rows, **asked)


def test_fewer_rows_than_ranks_raise_on_every_rank(rows: MapDataset) -> None:
    with pytest.raises(NoDataAvailableError):
        BlockSampler(rows, batch_size=1, num_replicas=ROWS + 1, rank=0)
