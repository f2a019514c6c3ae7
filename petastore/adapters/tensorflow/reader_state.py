"""`ReaderState`: the place of a reader in a `tf.train.Checkpoint`."""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf

from petastore.adapters.tensorflow.received import state_after

__all__ = ["ReaderState"]


class ReaderState(tf.train.experimental.PythonState):  # type: ignore[misc]
    """Where training stands in what a reader gives, as a part of a `tf.train.Checkpoint`.

    TensorFlow reads ahead of training, so the trainer counts: it adds 1 to `batches` with each batch that it has had.
    What is saved is a small JSON text, the same on every worker. Restoring moves the reader: the dataset that is
    iterated next, made before or after, goes on with the next batch. The iteration under way ends with an error.

    Checkpoints of TensorFlow cannot keep the iterator of a dataset that is fed from Python; this takes its place. It
    goes well with `tf.train.CheckpointManager`. In Keras' `fit` use `petastore.adapters.keras.ReaderCheckpoint`.

    Args:
        reader: What the dataset is made of.

    Example:
        >>> import petastore, tempfile
        >>> from petastore.adapters.tensorflow import make_tf_dataset
        >>> folder = tempfile.mkdtemp()
        >>> schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
        >>> _ = petastore.write_dataset(folder + "/ids", schema, [{"id": i} for i in range(10)])
        >>> with petastore.make_reader(folder + "/ids", shuffle_row_groups=False) as reader:
        ...     checkpoint = tf.train.Checkpoint(step=tf.Variable(0), place=ReaderState(reader))
        ...     for batch in make_tf_dataset(reader, batch_size=3).prefetch(2):
        ...         checkpoint.place.batches += 1
        ...         if checkpoint.place.batches == 2:
        ...             break
        ...     path = checkpoint.save(folder + "/checkpoint")
        >>> with petastore.make_reader(folder + "/ids", shuffle_row_groups=False) as reader:
        ...     checkpoint = tf.train.Checkpoint(step=tf.Variable(0), place=ReaderState(reader))
        ...     _ = checkpoint.restore(path)
        ...     [batch["id"].numpy().tolist() for batch in make_tf_dataset(reader, batch_size=3)]
        [[6, 7, 8], [9]]
    """

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self._reader = reader
        self.batches = 0
        """Batches that training has had since the iteration under way began; set it to 0 before another one begins."""

    def serialize(self) -> str:
        """What is saved: the state after `batches`, as JSON.

        Raises:
            InvalidArgumentError: TensorFlow was not given as many.
        """
        state = state_after(self._reader, self.batches) if self.batches else self._reader.state_dict()
        return json.dumps(state)

    def deserialize(self, string_value: str | bytes) -> None:
        """Moves the reader to where the saved state is.

        Raises:
            InvalidArgumentError: The state is of other data or of another order.
        """
        self._reader.load_state_dict(json.loads(string_value))
        self.batches = 0
