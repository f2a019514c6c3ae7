"""Tests of torch's `DataLoader` over a reader in memory: length, passes, options and pinned memory.

`test_loader_of_datasets.py` tests it on real datasets.
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from petastore.adapters.torch import BatchedDataLoader, DataLoader
from petastore.adapters.torch.rows import decimal_friendly_collate
from petastore.errors import DecodeError, InvalidArgumentError, UnknownParameterError
from petastore.plan.request import Shard
from petastore.readers.batch import Batch
from tests.adapters.torch.in_memory import InMemory, ReaderInMemory


def test_dataloader_is_a_torch_dataloader() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}, num_epochs=2), 4)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert isinstance(loader.dataset, torch.utils.data.IterableDataset)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.pin_memory) == (4, 0, False, False)
    assert loader.collate_fn is decimal_friendly_collate
    assert len(loader) == 6 == len(list(loader))
    assert len(loader.dataset) == 20 == len(list(loader.dataset))  # type: ignore[arg-type]


def test_dataloader_len_raises_when_endless() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}, num_epochs=None), 4)
    with pytest.raises(TypeError, match="num_epochs=None is endless"):
        len(loader)
    batches = iter(loader)
    assert [next(batches)["id"].tolist() for _ in range(4)][-1] == [0, 1, 2, 3]


def test_dataloader_without_rows_has_no_batches() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(0)}), 4)
    assert len(loader) == 0 == len(list(loader))


def test_dataloader_restarts_after_a_break() -> None:
    reader = ReaderInMemory({"id": np.arange(10)})
    loader = DataLoader(reader, 4)
    whole = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch["id"].tolist() for batch in loader] == whole
    assert reader.resets == 0
    for batch in loader:
        assert batch["id"].tolist() == whole[0]
        break
    assert next(iter(loader))["id"].tolist() == whole[0]
    assert [batch["id"].tolist() for batch in loader] == whole
    assert reader.resets == 3
    assert reader.calls == [4] * 4


def test_dataloader_newer_iterator_ends_the_older_with_an_error() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}), 4)
    older, newer = iter(loader), iter(loader)
    assert next(older)["id"].tolist() == next(newer)["id"].tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidArgumentError, match="the loader was iterated again"):
        next(older)
    assert [batch["id"].tolist() for batch in newer] == [[4, 5, 6, 7], [8, 9]]


def test_dataset_attribute_of_the_dataloader_iterates_the_same_reader() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}), 4)
    rows = iter(loader.dataset)
    assert next(rows) == {"id": 0}
    assert len(list(loader)) == 3
    with pytest.raises(InvalidArgumentError, match="the loader was iterated again"):
        list(rows)


def test_dataloader_restarts_after_a_reader_error() -> None:
    class Failing(InMemory):
        def iter_batches(self, n: int) -> Iterator[Batch]:
            for number, batch in enumerate(super().iter_batches(n)):
                if number == 1 and self.resets == 0:
                    raise DecodeError("the png is damaged", column="image")
                yield batch

    failing: Any = Failing
    loader = DataLoader(failing({"id": np.arange(10)}), 4)
    with pytest.raises(DecodeError, match="column 'image': the png is damaged"):
        list(loader)
    assert len(list(loader)) == 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_workers": 2}, r"num_workers must be left out, got 2: the reader has its own workers.*workers_count"),
        ({"shuffle": True}, "shuffle_rows=True"),
        ({"drop_last": True}, "last_batch='drop'"),
        ({"sampler": [1]}, "cur_shard"),
        ({"batch_size": 0}, "batch_size must be an int of at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
    ],
)
def test_dataloader_unsupported_options_raise(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        DataLoader(ReaderInMemory({"id": np.arange(3)}), **options)


def test_dataloader_accepts_neutral_torch_options() -> None:
    reader = ReaderInMemory({"id": np.arange(3)})
    loader = DataLoader(
        reader, 2, num_workers=0, shuffle=False, drop_last=False, sampler=None, timeout=0, in_order=True
    )
    assert len(loader) == 2


@pytest.mark.parametrize(
    ("loader", "misspelled", "message"),
    [
        (DataLoader, "bach_size", r"DataLoader has no option 'bach_size'\. Did you mean 'batch_size'\?$"),
        (DataLoader, "batchsize", r"Did you mean 'batch_size'\?$"),
        (DataLoader, "null", r"Did you mean 'nulls'\?$"),
        (DataLoader, "colate_fn", r"Did you mean 'collate_fn'\?$"),
        (BatchedDataLoader, "tranform_fn", r"BatchedDataLoader has no option .*Did you mean 'transform_fn'\?$"),
        (DataLoader, "xyzzy", r"DataLoader has no option 'xyzzy'\. Remove this option$"),
    ],
)
def test_misspelled_dataloader_option_raises_with_the_option(loader: Any, misspelled: str, message: str) -> None:
    with pytest.raises(UnknownParameterError, match=message) as refused:
        loader(ReaderInMemory({"id": np.arange(3)}), **{misspelled: None})
    assert isinstance(refused.value, TypeError)


def test_recreated_dataloader_with_workers_raises() -> None:
    # Some frameworks build another loader from the attributes of this one.
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}), 4)
    again = torch.utils.data.DataLoader(loader.dataset, loader.batch_size, collate_fn=loader.collate_fn)
    assert [batch["id"].tolist() for batch in again] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    apart = torch.utils.data.DataLoader(loader.dataset, 4, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(InvalidArgumentError, match=r"Caught InvalidArgumentError in DataLoader worker process 0\."):
        list(apart)


def test_pin_memory_warns_without_an_accelerator() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(3)}), 2, pin_memory=True)
    assert loader.pin_memory
    if torch.accelerator.is_available():
        assert all(batch["id"].is_pinned() for batch in loader)
    else:
        with pytest.warns(UserWarning, match="no accelerator is found"):
            assert [batch["id"].tolist() for batch in loader] == [[0, 1], [2]]


def test_import_without_torch_names_the_package_to_install() -> None:
    script = "import sys; sys.modules['torch'] = None\nimport petastore.adapters.torch"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MissingExtraError: petastore.adapters.torch needs the package 'torch'" in done.stderr
    assert "pip install 'petastore[torch]'" in done.stderr


def test_dataloader_sampler_set_epoch_raises_like_the_loader() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}, num_epochs=2), 4)
    with pytest.raises(
        InvalidArgumentError,
        match=r"num_epochs must be 1 for set_epoch\(1\), got 2: set_epoch counts each `for` loop as one epoch\.",
    ):
        loader.sampler.set_epoch(1)  # type: ignore[attr-defined]
    with pytest.raises(
        InvalidArgumentError,
        match=r"num_epochs must be 1 for set_epoch\(1\), got 2: set_epoch counts each `for` loop as one epoch\.",
    ):
        loader.set_epoch(1)
    assert next(iter(loader.sampler)) is None  # like torch's own sampler of iterable datasets


def test_dataset_of_a_sharded_dataloader_raises_in_another_dataloader() -> None:
    reader = ReaderInMemory({"id": np.arange(10)})
    loader = DataLoader(reader, 4)
    reader.plan = reader.plan.for_shard(Shard(1, 2))
    with pytest.raises(
        InvalidArgumentError,
        match=r"must be iterated instead of `loader\.dataset`.*rows of shard 1 of 2 a second time.*Iterate over the",
    ):
        next(iter(torch.utils.data.DataLoader(loader.dataset, batch_size=4)))


def test_dataloader_can_be_recreated_from_its_attributes() -> None:
    """Lightning does so for `predict`."""
    reader = ReaderInMemory({"id": np.arange(10)})
    loader = DataLoader(reader, 4, nulls="mask", ragged="list")
    names = ("reader", "batch_size", "collate_fn", "nulls", "ragged", "device", "dataset")
    again: Any = DataLoader(**{name: getattr(loader, name) for name in names}, sampler=None, batch_sampler=None)
    assert [batch["id"].tolist() for batch in again] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    of_another = DataLoader(ReaderInMemory({"id": np.arange(10)}), 4).dataset
    with pytest.raises(InvalidArgumentError, match=r"dataset must be left out, got .*: the reader is the dataset"):
        DataLoader(reader, 4, dataset=of_another)


def test_dataloader_cannot_be_pickled() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}), 4)
    for send in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"ElasticDataLoader.*make reader and loader there") as refused:
            send(loader)
        assert isinstance(refused.value, InvalidArgumentError)
    again = copy.copy(loader)
    assert (type(again), again.reader) == (DataLoader, loader.reader)
    assert [len(batch["id"]) for batch in again] == [4, 4, 2]
