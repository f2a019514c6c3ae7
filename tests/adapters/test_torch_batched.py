"""Petastorm's other loaders: columns through a function, and rows kept in memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import petastore
from petastore.adapters.torch import BatchedDataLoader, InMemBatchedDataLoader
from petastore.errors import DecodeError, RequestError

ROWS = 50


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Fifty rows in row groups of seven: numbers, arrays, text, and arrays of several lengths."""
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


def test_each_tensor_goes_through_the_function_and_lists_do_not(url: str) -> None:
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
def test_a_function_that_changes_nothing_is_not_called(url: str, function: None) -> None:
    with petastore.make_batch_reader(url, ["id"], shuffle_row_groups=False) as reader:
        loader = BatchedDataLoader(reader, 20, function)
        assert loader.transform_fn is None
        assert [batch["id"].tolist()[0] for batch in loader] == [0, 20, 40]


def test_all_rows_are_kept_and_come_in_each_epoch(url: str) -> None:
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


def test_equal_seeds_give_equal_orders_and_another_for_goes_on(url: str) -> None:
    def ids(seed: int, passes: int) -> list[list[int]]:
        with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
            loader = InMemBatchedDataLoader(reader, batch_size=ROWS, seed=seed, shuffle=True)
        return [batch["id"].tolist() for _ in range(passes) for batch in loader]

    assert ids(0, 2) == ids(0, 2)
    assert ids(0, 1) != ids(1, 1)
    first, second = ids(0, 2)
    assert first != second
    # The second epoch of one seed is not the first of the next.
    assert ids(1, 1) != [second]


def test_ranks_take_equally_many_steps_and_share_the_rows(url: str) -> None:
    loaders = []
    for rank in range(3):
        with petastore.make_reader(url, ["id"], cur_shard=rank, shard_count=3) as reader:
            loaders.append(InMemBatchedDataLoader(reader, batch_size=5, shuffle=True))
    assert len({len(loader) for loader in loaders}) == 1
    found = [number for loader in loaders for batch in loader for number in batch["id"].tolist()]
    assert sorted(found) == list(range(ROWS))


def test_rows_are_not_left_out_without_a_word(url: str) -> None:
    with petastore.make_reader(url, ["id"]) as reader, pytest.warns(UserWarning, match="keeps 2 of the 7 batches"):
        loader = InMemBatchedDataLoader(reader, batch_size=8, rows_capacity=20)
    assert sum(len(batch["id"]) for batch in loader) == 16
    with warnings.catch_warnings(), petastore.make_reader(url, ["id"]) as reader:
        warnings.simplefilter("error")
        assert len(InMemBatchedDataLoader(reader, batch_size=8, rows_capacity=1024)) == 7
    with petastore.make_reader(url, ["id"]) as reader, pytest.raises(RequestError, match="less than one batch"):
        InMemBatchedDataLoader(reader, batch_size=8, rows_capacity=7)


def test_an_endless_loader_has_no_length(url: str) -> None:
    with petastore.make_reader(url, ["id"], num_epochs=None) as reader:
        loader = InMemBatchedDataLoader(reader, batch_size=25, num_epochs=None)
    with pytest.raises(TypeError, match="endless"):
        len(loader)
    with loader:
        assert [len(batch["id"]) for batch, _ in zip(loader, range(5), strict=False)] == [25] * 5


def test_missing_numbers_are_refused_by_name(url: str) -> None:
    with petastore.make_reader(url, ["maybe"]) as reader, pytest.raises(DecodeError, match="maybe"):
        InMemBatchedDataLoader(reader, batch_size=8)
