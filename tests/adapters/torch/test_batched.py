"""Tests of `BatchedDataLoader` and `InMemBatchedDataLoader`: transform_fn, order by seed, ranks, states and nulls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import petastore
from petastore.adapters.torch import BatchedDataLoader, DataLoader, InMemBatchedDataLoader
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.plan.order.mix import hashed_permutation, mix

ROWS = 50


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write fifty rows of numbers, arrays, text and uneven arrays in row groups of seven, and return the URL."""
    schema = petastore.Unischema(
        "rows",
        [
            petastore.UnischemaField("id", "int64"),
            petastore.UnischemaField("xy", "float32", (2,)),
            petastore.UnischemaField("word", str),
            petastore.UnischemaField("free", "int16", (None,)),
            petastore.UnischemaField("maybe", "int32", nullable=True),
        ],
    )
    rows = [
        {
            "id": number,
            "xy": np.full(2, number, "float32"),
            "word": f"w{number}",
            "free": np.arange(number % 3, dtype="int16"),
            "maybe": None if number == 20 else number,
        }
        for number in range(ROWS)
    ]
    url = str(tmp_path_factory.mktemp("batched") / "rows")
    petastore.write_dataset(url, schema, rows, rows_per_row_group=7)
    return url


NAMES = ["id", "xy", "word", "free"]


def test_transform_fn_is_applied_to_tensors_and_not_to_lists(url: str) -> None:
    with petastore.make_reader(url, NAMES, shuffle_row_groups=False) as reader:
        loader = BatchedDataLoader(reader, batch_size=20, transform_fn=lambda array: torch.as_tensor(array * 2))
        batches = list(loader)
        assert len(batches) == len(loader) == 3
        assert torch.cat([batch["id"] for batch in batches]).tolist() == list(range(0, 100, 2))
        assert batches[0]["xy"].dtype == torch.float32
        assert batches[0]["word"][:2] == ["w0", "w1"]
        assert [len(value) for value in batches[0]["free"][:3]] == [0, 1, 2]
        assert len(list(loader)) == 3


@pytest.mark.parametrize("function", [None, torch.as_tensor])
def test_batched_dataloader_transform_fn_may_be_torch_as_tensor_or_none(url: str, function: None) -> None:
    with petastore.make_batch_reader(url, ["id"], shuffle_row_groups=False) as reader:
        loader = BatchedDataLoader(reader, 20, function)
        assert loader.transform_fn is None
        assert [batch["id"].tolist()[0] for batch in loader] == [0, 20, 40]


def test_in_memory_loader_yields_all_rows_in_each_epoch(url: str) -> None:
    with petastore.make_reader(url, NAMES) as reader:
        loader = InMemBatchedDataLoader(reader, batch_size=8, num_epochs=3, shuffle=True)
        assert reader.stopped
    batches = list(loader)
    assert len(batches) == len(loader) == 21
    epochs = [torch.cat([batch["id"] for batch in batches[first : first + 7]]).tolist() for first in (0, 7, 14)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(ROWS))] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    for batch in batches:
        assert batch["xy"][:, 1].tolist() == batch["id"].tolist()
        assert batch["word"] == [f"w{number}" for number in batch["id"].tolist()]
        assert [len(value) for value in batch["free"]] == [number % 3 for number in batch["id"].tolist()]


def test_in_memory_loader_stacks_lists_of_equal_length(tmp_path: Path) -> None:
    even, uneven = [[float(i), 0.0, 1.0] for i in range(10)], [[i] * (1 + i // 4) for i in range(10)]
    pq.write_table(pa.table({"even": even, "uneven": uneven}), tmp_path / "part-0.parquet")
    with petastore.make_batch_reader(tmp_path, shuffle_row_groups=False) as reader:
        batches = list(InMemBatchedDataLoader(reader, 4))
    assert [tuple(batch["even"].shape) for batch in batches] == [(4, 3), (4, 3), (2, 3)]
    assert [value.tolist() for batch in batches for value in batch["uneven"]] == uneven


def test_in_memory_loader_order_is_deterministic_by_seed(url: str) -> None:
    def ids(seed: int, passes: int) -> list[list[int]]:
        with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
            loader = InMemBatchedDataLoader(reader, batch_size=ROWS, seed=seed, shuffle=True)
        return [batch["id"].tolist() for _ in range(passes) for batch in loader]

    assert ids(0, 2) == ids(0, 2)
    assert ids(0, 1) != ids(1, 1)
    first, second = ids(0, 2)
    assert first != second
    # Consecutive seeds must not share an epoch: epoch 1 of seed 0 differs from epoch 0 of seed 1.
    assert ids(1, 1) != [second]


def test_in_memory_loaders_of_ranks_have_equal_steps_and_disjoint_rows(url: str) -> None:
    loaders = []
    for rank in range(3):
        with petastore.make_reader(url, ["id"], cur_shard=rank, shard_count=3) as reader:
            loaders.append(InMemBatchedDataLoader(reader, batch_size=5, shuffle=True))
    assert len({len(loader) for loader in loaders}) == 1
    found = [number for loader in loaders for batch in loader for number in batch["id"].tolist()]
    assert sorted(found) == list(range(ROWS))


def test_in_memory_loader_raises_above_rows_capacity(url: str) -> None:
    said = r"rows_capacity must be at least 50, the rows of an epoch on this rank, got 20\. Leave"
    with petastore.make_reader(url, ["id"]) as reader, pytest.raises(InvalidArgumentError, match=said):
        InMemBatchedDataLoader(reader, batch_size=8, rows_capacity=20)
    with petastore.make_reader(url, ["id"]) as reader:
        assert len(InMemBatchedDataLoader(reader, batch_size=8, rows_capacity=50)) == 7


def test_in_memory_loader_order_is_hashed_permutation_of_seed_and_epoch(url: str) -> None:
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
        loader = InMemBatchedDataLoader(reader, batch_size=ROWS, num_epochs=3, seed=-4, shuffle=True)
    for epoch, batch in enumerate(loader):
        assert batch["id"].tolist() == hashed_permutation(mix(-4, epoch), ROWS).tolist()


@pytest.mark.parametrize("given", [0, 1, 6, 7, 9, 14])
def test_in_memory_loader_resumes_from_a_state(url: str, given: int) -> None:
    def loader() -> InMemBatchedDataLoader:
        with petastore.make_reader(url, ["id"], seed=1) as reader:
            return InMemBatchedDataLoader(reader, batch_size=8, num_epochs=2, shuffle=True)

    whole = loader()
    all_batches = [batch["id"].tolist() for _ in range(2) for batch in whole]
    interrupted = loader()
    for _ in zip(range(given), interrupted, strict=False):
        pass
    state = json.loads(json.dumps(interrupted.state_dict()))
    continued = loader()
    continued.load_state_dict(state)
    assert [batch["id"].tolist() for batch in continued] == all_batches[given:14]
    assert [batch["id"].tolist() for batch in continued] == all_batches[14:]


def test_in_memory_loader_rejects_states_of_other_rows_or_order(url: str) -> None:
    def loader(reader_seed: int, seed: int) -> InMemBatchedDataLoader:
        with petastore.make_reader(url, ["id"], seed=reader_seed) as reader:
            return InMemBatchedDataLoader(reader, batch_size=8, seed=seed, shuffle=True)

    state = loader(1, 1).state_dict()
    with pytest.raises(InvalidArgumentError, match="the state must be of a loader with seed=2, got seed=1"):
        loader(1, 2).load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match="a loader with reader="):
        loader(2, 1).load_state_dict(state)


def test_in_memory_loader_has_no_length_when_endless(url: str) -> None:
    with petastore.make_reader(url, ["id"], num_epochs=None) as reader:
        loader = InMemBatchedDataLoader(reader, batch_size=25, num_epochs=None)
    with pytest.raises(TypeError, match="endless"):
        len(loader)
    with loader:
        assert [len(batch["id"]) for batch, _ in zip(loader, range(5), strict=False)] == [25] * 5


def test_in_memory_loader_raises_for_missing_numbers(url: str) -> None:
    with petastore.make_reader(url, ["maybe"]) as reader, pytest.raises(DecodeError, match="maybe"):
        InMemBatchedDataLoader(reader, batch_size=8)


def test_in_memory_loader_fills_missing_numbers(url: str) -> None:
    with petastore.make_reader(url, ["id", "maybe"], shuffle_row_groups=False) as reader:
        loader = InMemBatchedDataLoader(reader, batch_size=8, nulls="mask")
    batches = list(loader)
    valid = torch.cat([batch["maybe_valid"] for batch in batches])
    assert valid.tolist() == [number != 20 for number in range(ROWS)]
    assert torch.cat([batch["maybe"] for batch in batches])[20] == 0
    with petastore.make_reader(url, ["maybe"], shuffle_row_groups=False) as reader:
        filled = torch.cat([batch["maybe"] for batch in BatchedDataLoader(reader, batch_size=8, nulls=-1)])
    assert filled[20] == -1


@pytest.mark.parametrize("kind", [DataLoader, BatchedDataLoader, InMemBatchedDataLoader])
def test_with_block_over_a_loader_stops_its_reader(kind: Any, url: str) -> None:
    with kind(petastore.make_reader(url, ["id"]), batch_size=20) as loader:
        assert sum(len(batch["id"]) for batch in loader) == ROWS
        reader = getattr(loader, "reader", None)
    assert reader is None or reader.stopped
