"""Tests of `ReaderCheckpoint`: Keras weights contain the reader's state, without prefetched batches."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.errors import InvalidArgumentError

# Keras itself converts a variable to NumPy with `__array__` when it saves weights.
pytestmark = [pytest.mark.tf, pytest.mark.slow, pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")]

ROWS = 103


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("data") / "ids")
    schema = petastore.Unischema("Ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(where, schema, [{"id": i} for i in range(ROWS)], rows_per_row_group=13)
    return where


class InterruptedFitError(Exception):
    """Simulated interruption of a training run."""


def fit(
    url: str, backup: Path, *, after: int | None = None, of_tf: bool = True, freq: Any = 5, **asked: Any
) -> list[list[int]]:
    """Return the batches that a model was trained on in two epochs, with a backup every `freq` batches."""
    import keras
    import tensorflow as tf

    from petastore.adapters.keras import PyDataset, ReaderCheckpoint
    from petastore.adapters.tensorflow import make_tf_dataset

    trained: list[list[int]] = []

    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line = keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.line(x / 100)

        def train_step(self, data: Any) -> Any:
            tf.py_function(lambda x: trained.append([int(i) for i in x.numpy().ravel()]), [data[0]], [])
            return super().train_step(data)

    class Stops(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras gives it by name)
            if len(trained) == after:
                raise InterruptedFitError

    with petastore.make_reader(url, seed=3, shuffle_rows=True) as reader:
        if of_tf:
            dataset = make_tf_dataset(reader, 10).map(lambda batch: (tf.cast(batch["id"], tf.float32)[:, None],) * 2)
            dataset = dataset.prefetch(6)
        else:
            dataset = PyDataset(reader, 10, lambda batch: (batch["id"].astype("float32")[:, None],) * 2)
        model = Model()
        model.compile(keras.optimizers.SGD(1e-4), "mse")
        model(tf.zeros((1, 1)))
        saves: list[Any] = [keras.callbacks.BackupAndRestore(str(backup), save_freq=freq), ReaderCheckpoint(reader)]
        model.fit(dataset, epochs=2, shuffle=False, verbose=0, callbacks=[*saves, Stops()], **asked)
    return trained


@pytest.mark.parametrize("of_tf", [True, False])
@pytest.mark.parametrize("after", [7, 13, 20])
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_fit_resumes_with_the_batch_after_the_restored_weights(
    url: str, tmp_path: Path, after: int, of_tf: bool
) -> None:
    with pytest.raises(InterruptedFitError):
        fit(url, tmp_path, after=after, of_tf=of_tf)
    after_it = fit(url, tmp_path, of_tf=of_tf)
    whole = fit(url, tmp_path / "other", of_tf=of_tf)
    assert len(whole) == 22
    assert sorted(itertools.chain(*whole)) == sorted([*range(ROWS)] * 2)
    assert after_it == whole[after // 5 * 5 :]


@pytest.mark.parametrize("of_tf", [True, False])
def test_fit_resumes_with_next_epoch_after_a_backup_at_the_end_of_an_epoch(
    url: str, tmp_path: Path, of_tf: bool
) -> None:
    with pytest.raises(InterruptedFitError):
        fit(url, tmp_path, after=13, of_tf=of_tf, freq="epoch")
    after_it = fit(url, tmp_path, of_tf=of_tf, freq="epoch")
    assert after_it == fit(url, tmp_path / "other", of_tf=of_tf)[11:]


def test_weights_without_reader_state_do_not_move_the_reader(url: str, tmp_path: Path) -> None:
    import keras

    from petastore.adapters.keras import ReaderCheckpoint

    def model() -> Any:
        return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

    model().save_weights(tmp_path / "without.weights.h5")
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        checkpoint, with_place = ReaderCheckpoint(reader), model()
        checkpoint.set_model(with_place)
        next(reader.iter_batches(10))
        with_place.load_weights(tmp_path / "without.weights.h5")
        assert reader.state_dict()["position"] == 10
        with_place.save_weights(tmp_path / "with.weights.h5")
        model().load_weights(tmp_path / "with.weights.h5")  # a model without ReaderCheckpoint loads only the weights
        reader.reset()
        with_place.load_weights(tmp_path / "with.weights.h5")
        assert reader.state_dict()["position"] == 10


def test_reader_checkpoint_raises_for_a_reader_that_fit_does_not_use(url: str, tmp_path: Path) -> None:
    import keras
    import numpy as np

    from petastore.adapters.keras import ReaderCheckpoint

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with (
        petastore.make_reader(url) as reader,
        pytest.raises(InvalidArgumentError, match="fit must train on the reader of ReaderCheckpoint"),
    ):
        model.fit(np.zeros((4, 1)), np.zeros((4, 1)), verbose=0, callbacks=[ReaderCheckpoint(reader)])
