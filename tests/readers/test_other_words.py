"""Tests of advice for parameter names of other libraries, and for wrong argument types."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore.adapters.torch import DataLoader
from petastore.errors import InvalidArgumentError, UnknownParameterError


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"shuffle": True}, "make_reader has no parameter shuffle: .*shuffle_rows=True"),
        ({"batch_size": 8}, r"DataLoader\(reader, batch_size=…\)"),
        ({"num_workers": 4}, "workers_count=…"),
        ({"drop_last": True}, "last_batch='drop'"),
        ({"world_size": 2, "rank": 0}, "shard_count=…"),
        ({"num_epoch": 2}, "did you mean num_epochs?"),
        ({"xyzzy": 2}, "its parameters are cache_extra_settings, .*, workers_count"),
    ],
)
def test_parameter_of_another_library_raises_with_advice(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UnknownParameterError, match=said) as refused:
        petastore.make_reader("nowhere", **asked)
    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, InvalidArgumentError)


def test_make_reader_functions_advise_on_unknown_parameters() -> None:
    for make in (petastore.make_reader, petastore.make_batch_reader, petastore.make_mixed_reader):
        with pytest.raises(UnknownParameterError, match=f"{make.__name__} has no parameter shuffle"):
            make("nowhere", shuffle=True)  # type: ignore[call-arg]


WORDS = (
    "batch_size buffer_size cache_dir collate_fn columns drop_last epochs fields filter "
    "num_replicas num_shards num_workers pin_memory prefetch prefetch_factor "
    "rank repeat shard_index shuffle "
    "shuffle_buffer_size transform workers world_size"
)


def test_advice_on_unknown_parameters_names_existing_parameters(subtests: pytest.Subtests) -> None:
    known = set(inspect.signature(petastore.make_batch_reader).parameters)
    for word in WORDS.split():
        with subtests.test(word):
            with pytest.raises(UnknownParameterError, match=rf"has no parameter {word}: ") as refused:
                petastore.make_batch_reader("nowhere", **{word: 1})  # type: ignore[arg-type]
            advice = str(refused.value).partition(": ")[2]
            assert not advice.startswith(("did you mean", "its parameters are"))
            named = {part.rpartition(" ")[2] for part in advice.replace("(", " ").split("=")[:-1]} - {"device"}
            assert named <= known | {"batch_size"}


@pytest.mark.parametrize("given", ["numbers", Path("numbers"), ["numbers"]])
def test_torch_dataloader_of_a_path_raises_with_advice(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"reader must be an open reader, got .*make_reader\("):
        DataLoader(given)


def test_torch_dataloader_of_a_dataset_raises_with_advice(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "x", {"id": np.arange(3)})
    dataset: Any = petastore.open_dataset(str(tmp_path / "x"))
    with pytest.raises(
        InvalidArgumentError,
        match=r"reader must be an open reader, got Dataset\. Write DataLoader\(petastore\.make_reader\(url\),",
    ):
        DataLoader(dataset)
