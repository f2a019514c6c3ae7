"""Tests of `PyDataset` for Keras: shuffling by epoch, resuming, endless readers and invalid use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import petastore
from petastore.errors import InvalidArgumentError

pytestmark = [pytest.mark.tf, pytest.mark.slow]

ROWS = 35


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("data") / "ids")
    fields = [
        petastore.UnischemaField("id", "int64"),
        petastore.UnischemaField("at", "datetime64[s]"),
        petastore.UnischemaField("name", str, nullable=True),
    ]
    rows = [{"id": i, "at": np.datetime64(i, "s"), "name": f"n{i}" if i % 2 else None} for i in range(ROWS)]
    petastore.write_dataset(where, petastore.Unischema("Ids", fields), rows, rows_per_row_group=7)
    return where


def epoch(dataset: Any, steps: int | None = None) -> Iterator[list[int]]:
    """Yield the batches of an epoch in the way that Keras requests them."""
    dataset.on_epoch_begin()
    for index in range(dataset.num_batches if steps is None else steps):
        yield dataset[index]["id"].tolist()
    dataset.on_epoch_end()


def flat(batches: Any) -> list[int]:
    return [i for batch in batches for i in batch]


def test_py_dataset_shuffles_each_epoch_differently(url: str) -> None:
    from petastore.adapters.keras import PyDataset

    with petastore.make_reader(url, ["id"], shuffle_rows=True, seed=1) as reader:
        dataset = PyDataset(reader, 10)
        assert dataset.num_batches == 4
        epochs = [flat(epoch(dataset)) for _ in range(3)]
    assert [sorted(ids) for ids in epochs] == [list(range(ROWS))] * 3
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("taken", [1, 2])
@pytest.mark.parametrize("in_epoch", [True, False])
def test_py_dataset_repeats_batches_that_keras_read_to_build_the_model(url: str, taken: int, in_epoch: bool) -> None:
    from petastore.adapters.keras import PyDataset

    with petastore.make_reader(url, ["id"], shuffle_rows=True, seed=1) as reader:
        dataset = PyDataset(reader, 10)
        outside = (dataset[index]["id"].tolist() for index in range(taken))
        first = list(epoch(dataset, taken) if in_epoch else outside)
        batches = list(epoch(dataset))
    assert batches[:taken] == first
    assert sorted(flat(batches)) == list(range(ROWS))


def test_py_dataset_epoch_has_remaining_batches_after_load_state(url: str) -> None:
    from petastore.adapters.keras import PyDataset

    asked: Any = {"shuffle_rows": True, "seed": 1, "num_epochs": 2}
    with petastore.make_reader(url, ["id"], **asked) as reader:
        before = list(epoch(PyDataset(reader, 10), 3))
        # Another batch size from here on, so that the position of the state is not a multiple of it.
    with petastore.make_reader(url, ["id"], **asked) as reader:
        batches = reader.iter_batches(10)
        assert [next(batches)["id"].tolist() for _ in range(3)] == before
        state = reader.state_dict()
    with petastore.make_reader(url, ["id"], **asked) as reader:
        reader.load_state_dict(state)
        dataset = PyDataset(reader, 3)
        assert dataset.num_batches == 24  # Keras uses this number of steps for every epoch
        list(epoch(dataset, 1))  # Keras reads a batch to build the model
        rest, then = list(epoch(dataset)), list(epoch(dataset))
    assert sorted(flat(before + rest)) == sorted(list(range(ROWS)) * 2)
    assert (len(rest), len(then)) == (14, 24)
    assert sorted(flat(then)) == sorted(list(range(ROWS)) * 2)


def test_py_dataset_starts_next_epoch_after_a_state_at_the_end_of_an_epoch(url: str) -> None:
    from petastore.adapters.keras import PyDataset

    asked: Any = {"shuffle_rows": True, "seed": 1}
    with petastore.make_reader(url, ["id"], **asked) as reader:
        dataset = PyDataset(reader, 10)
        list(epoch(dataset))
        state = reader.state_dict()
        following = [list(epoch(dataset)) for _ in range(2)]
    for is_built_first in (False, True):
        with petastore.make_reader(url, ["id"], **asked) as reader:
            dataset = PyDataset(reader, 10)
            if is_built_first:
                assert len(dataset[0]["id"]) == 10
            reader.load_state_dict(state)
            assert [list(epoch(dataset)) for _ in range(2)] == following


def test_py_dataset_is_endless_when_the_reader_is(url: str) -> None:
    from petastore.adapters.keras import PyDataset

    with petastore.make_reader(url, ["id"], num_epochs=None, shuffle_row_groups=False) as reader:
        dataset = PyDataset(reader, 7)
        assert dataset.num_batches is None
        assert flat(dataset[index]["id"].tolist() for index in range(10)) == list(range(ROWS)) * 2


def test_py_dataset_raises_when_fit_shuffles_batches(url: str) -> None:
    from petastore.adapters.keras import PyDataset

    with petastore.make_reader(url, ["id"]) as reader:
        dataset = PyDataset(reader, 10)
        dataset[0]
        with pytest.raises(
            InvalidArgumentError, match=r"fit must request batches in order, got batch 3 instead of 1.*shuffle=False"
        ):
            dataset[3]
        with pytest.raises(InvalidArgumentError, match="batch_size"):
            PyDataset(reader, 0)


def test_py_dataset_passes_arrays_to_map_func(url: str) -> None:
    from petastore.adapters.keras import PyDataset

    with petastore.make_reader(url, shuffle_row_groups=False, last_batch="pad") as reader:
        batch = PyDataset(reader, 20, nulls="mask")[0]
        assert batch["at"].tolist() == [i * 10**9 for i in range(20)]
        assert batch["name"].tolist()[:3] == ["", "n1", ""]
        assert batch["name_valid"].tolist()[:3] == [False, True, False]
        x, y = PyDataset(reader, 20, lambda batch: (batch["id"], batch["valid"]), nulls="mask")[0]
    assert (x.dtype, y.dtype) == (np.int64, np.bool_)


def test_py_dataset_raises_when_batches_do_not_divide_among_devices(url: str) -> None:
    import keras

    from petastore.adapters.keras import refuse_other_shards

    four_devices = keras.distribution.DataParallel(devices=[f"cpu:{number}" for number in range(4)])
    with petastore.make_reader(url) as even, petastore.make_reader(url, last_batch="drop") as dropped:
        with four_devices.scope():
            refuse_other_shards(dropped, 8)
            with pytest.raises(InvalidArgumentError, match="multiple of 4"):
                refuse_other_shards(dropped, 10)
            with pytest.raises(
                InvalidArgumentError, match=r"got 'even'.*Pass make_reader last_batch='drop' .*'pad' .*'wrap' "
            ):
                refuse_other_shards(even, 8)
        refuse_other_shards(even, 10)


def test_import_without_keras_names_the_package_to_install() -> None:
    import subprocess
    import sys

    script = "import sys; sys.modules['keras'] = None\nimport petastore.adapters.keras"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'petastore[keras]'" in done.stderr
