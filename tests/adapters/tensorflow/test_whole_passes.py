"""Tests of tf.data after a resume: the first pass reads the remaining rows, later passes read all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import petastore

pytestmark = [pytest.mark.tf, pytest.mark.slow]


@pytest.mark.parametrize("batch_size", [None, 10])
@pytest.mark.parametrize("epochs", [1, 2])
def test_tf_dataset_after_resume_reads_the_rest_once_and_then_all_rows(
    tmp_path: Path, batch_size: int | None, epochs: int
) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    schema = petastore.Unischema("Ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(str(tmp_path / "ids"), schema, [{"id": i} for i in range(35)], rows_per_row_group=7)
    asked: Any = {"shuffle_row_groups": False, "num_epochs": epochs}
    with petastore.make_reader(str(tmp_path / "ids"), **asked) as reader:
        next(reader.iter_batches(20))
        state = reader.state_dict()
    with petastore.make_reader(str(tmp_path / "ids"), **asked) as reader:
        dataset = make_tf_dataset(reader, batch_size).map(lambda element: element["id"]).prefetch(2)
        if batch_size:
            dataset = dataset.unbatch()
        assert [int(i) for i in dataset] == list(range(35)) * epochs
        reader.load_state_dict(state)  # after the dataset was created, as ReaderCheckpoint does
        assert [int(i) for i in dataset] == [*range(20, 35), *list(range(35)) * (epochs - 1)]
        for _ in range(2):
            assert [int(i) for i in dataset] == list(range(35)) * epochs
        assert int(make_tf_dataset(reader, batch_size).cardinality()) == epochs * (4 if batch_size else 35)


def test_keras_fit_reads_all_rows_in_epochs_after_a_resumed_one(tmp_path: Path) -> None:
    """Keras takes the number of steps of all epochs from the cardinality, or else from the first epoch."""
    import tensorflow as tf

    from petastore.adapters.tensorflow import make_tf_dataset

    schema = petastore.Unischema("Ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(str(tmp_path / "ids"), schema, [{"id": i} for i in range(35)])
    with petastore.make_reader(str(tmp_path / "ids")) as reader:
        next(reader.iter_batches(20))
        state = reader.state_dict()
    steps = [0]

    class Counts(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras gives it by name)
            steps.append(0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras gives it by name)
            steps[-1] += 1

    with petastore.make_reader(str(tmp_path / "ids")) as reader:
        reader.load_state_dict(state)
        dataset = make_tf_dataset(reader, 5).map(lambda batch: (tf.cast(batch["id"], tf.float32)[:, None],) * 2)
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(1e-6), "mse")
        with pytest.warns(UserWarning, match="ran out of data"):
            model.fit(dataset, epochs=3, shuffle=False, verbose=0, callbacks=[Counts()])
    assert steps[1:] == [3, 7, 7]
