"""Keras 3 on any backend: a `keras.utils.PyDataset`, and a checkpoint callback.

`PyDataset` yields the batches of a reader; with the TensorFlow backend, `petastore.adapters.tensorflow.make_tf_dataset`
is faster. The callback `ReaderCheckpoint` saves the reader's state with the weights, and works with both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from petastore.errors import InvalidArgumentError, MissingExtraError

try:
    import keras
except ImportError:
    raise MissingExtraError("petastore.adapters.keras", package="keras", extra="keras") from None

from petastore.adapters.column_plans import ArrayForm, HostArrays
from petastore.adapters.epoch_tracker import EpochTracker, delivered_of
from petastore.adapters.global_batches import refuse_other_shards
from petastore.adapters.nulls import Nulls
from petastore.plan.request import whole_number
from petastore.plan.state import dump_state
from petastore.readers.batch import Batch
from petastore.readers.reader import Reader

__all__ = ["PyDataset", "ReaderCheckpoint", "refuse_other_shards"]


class PyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """A `keras.utils.PyDataset` over a reader, for `fit`, `evaluate` and `predict`.

    It works on any backend. An epoch of `fit` is one iteration over the reader, with `num_epochs` epochs of the reader
    (one by default), and a new order each time. After `load_state_dict` of the reader, or with `ReaderCheckpoint`, the
    next epoch of `fit` has the remaining batches. Keras then warns that the input ran out of data; later epochs are
    complete.

    Keras reads a few batches to build the model; training receives these batches again. Pass `shuffle=False` to `fit`,
    because the reader decides the order, and `fit` would shuffle batch numbers. Do not pass a generator to Keras
    instead of this class: Keras would then get only two batches in each epoch after the first.

    With a `keras.distribution`, the reader must have the shard of this process and full batches; see
    `refuse_other_shards`.

    ```text
    column                             argument of map_func
    numbers, booleans                  read-only array (rows, *shape), dtype as declared
    datetime64, timedelta64            int64 nanoseconds
    a shape with None                  object array (rows,) of arrays, or padded
    text, bytes, Decimal               object array (rows,)
    missing values                     an error that names the column, unless `nulls` is set
    "valid" of last_batch="pad"        bool (rows,)
    ```

    Args:
        reader: The reader that `make_reader` or `make_batch_reader` returned. Close it after training.
        batch_size: Rows per batch of this process.
        map_func: Function from a dict of arrays to the input of Keras: `(x, y)`, `(x, y, sample_weight)`, or a dict as
            x. None passes the dict.
        ragged: Type of columns whose shape has None: `"list"`, `"padded"` or `Padded(value)`; see
            `petastore.adapters.torch.DataLoader`.
        nulls: Treatment of missing values; see `petastore.adapters.torch.DataLoader`.

    Raises:
        InvalidArgumentError: An argument is invalid, or the reader does not match the active `keras.distribution`.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("n", [petastore.UnischemaField(name, "float32") for name in ("x", "y")])
        >>> url = tempfile.mkdtemp() + "/n"
        >>> _ = petastore.write_dataset(url, schema, [{"x": n, "y": 2 * n} for n in range(5)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     batches = PyDataset(reader, batch_size=2, map_func=lambda batch: (batch["x"], batch["y"]))
        ...     batches.num_batches, batches[0], batches[1][1].tolist()
        (3, (array([0., 1.], dtype=float32), array([0., 2.], dtype=float32)), [4.0, 6.0])
    """

    def __init__(
        self,
        reader: Reader,
        batch_size: int,
        map_func: Callable[[dict[str, Any]], Any] | None = None,
        *,
        ragged: ArrayForm | Mapping[str, ArrayForm] = "list",
        nulls: Nulls = "error",
    ) -> None:
        super().__init__()
        self.batch_size = whole_number(batch_size, name="batch_size", least=1)
        """Rows per batch of this process."""
        self.reader = reader
        """The reader of the batches."""
        refuse_other_shards(reader, self.batch_size)
        self._arrays, self._map_func = HostArrays(reader, ragged=ragged, nulls=nulls), map_func
        self._tracker = EpochTracker(reader, delivered_of(reader))
        self._batches: Iterator[Batch] = iter(())
        self._next = 0  # number of the next batch
        self._is_epoch, self._asked_in_epoch, self._is_done = False, False, False

    @property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch of `fit`; None if the reader is endless.

        After a resume, the first epoch has only the remaining batches.
        """
        whole = self._whole
        # Before training, Keras needs the length of a whole epoch of `fit`. At the start of an epoch, it needs the
        # length of this epoch.
        if whole is None or not self._is_epoch or self._asked_in_epoch:
            return whole
        return whole if self._is_done and not self._tracker.is_moved else self._left

    @property
    def _left(self) -> int | None:
        """Number of batches of the current iteration; None if the reader is endless.

        After `load_state_dict`, it is that of the next iteration, which has only the remaining batches.
        """
        return self._tracker.steps(self.batch_size, again=True)

    @property
    def _whole(self) -> int | None:
        epochs = self.reader.num_epochs
        return None if epochs is None else epochs * self.reader.steps_per_epoch(self.batch_size)

    def __getitem__(self, index: int) -> Any:
        """Return the next batch; index 0 starts an epoch.

        Args:
            index: Number of the batch in the epoch: the number after the previous one, or 0.

        Raises:
            InvalidArgumentError: `index` is neither 0 nor the number of the next batch.
        """
        if index == 0:
            self._begin()
        elif index != self._next:
            raise InvalidArgumentError(
                f"fit must request batches in order, got batch {index:,} instead of {self._next:,}. Pass fit(..., "
                "shuffle=False), and shuffle in the reader with make_reader(..., shuffle_rows=True)"
            )
        batch = next(self._batches, None)
        if batch is None:
            raise InvalidArgumentError(
                f"fit must request batches below {self._left:,}, the batches of this epoch, got batch {index:,}"
            )
        self._next = index + 1
        self._asked_in_epoch = self._is_epoch
        self._is_done = self._is_epoch and batch.cursor.is_at_end(self.reader.num_epochs)
        made = self._arrays(batch)
        return made if self._map_func is None else self._map_func(made)

    def on_epoch_begin(self) -> None:
        """Record that an epoch of `fit` begins; its batch 0 will start an iteration.

        Keras calls this method before the first batch of an epoch.
        """
        self._is_epoch, self._asked_in_epoch = True, False
        self._skip_empty_rest()

    def on_epoch_end(self) -> None:
        """Record that an epoch of `fit` has ended.

        Keras calls this method after the last batch of an epoch, and after it has built the model.
        """
        self._is_epoch, self._asked_in_epoch = False, False

    def _begin(self) -> None:
        """Begin the next iteration over the reader.

        If Keras did not read all batches of the current iteration, restart the current iteration instead.
        """
        if self._tracker.is_moved:
            refuse_other_shards(self.reader, self.batch_size)
        self._skip_empty_rest()
        self._batches = self._tracker.start(self.batch_size, again=not self._is_done)
        self._is_done = False

    def _skip_empty_rest(self) -> None:
        """If a loaded state is at the end of an iteration, begin the next iteration.

        The ended iteration has no more batches, and Keras needs at least one batch in an epoch.
        """
        if self._tracker.is_moved and self._left == 0:
            self.reader.reset()


class ReaderCheckpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """A Keras callback that saves and restores the reader's position with the weights.

    Pass it to `fit` together with Keras' `BackupAndRestore` or `ModelCheckpoint`, in any order: the reader's state is
    then stored in the same file as the weights. When `BackupAndRestore` restores the weights, the interrupted epoch of
    `fit` continues with its remaining batches. The model is therefore trained on each row exactly once per epoch, also
    with `save_freq=100`.

    The callback counts batches that the model was trained on, not prefetched batches. It works with `PyDataset` and
    `make_tf_dataset`. Do not load a state into the reader yourself: Keras reads a batch to build the model, and with
    `make_tf_dataset` training would miss that batch.

    Args:
        reader: The reader of the dataset that is passed to `fit`.

    Example:
        >>> import petastore, tempfile
        >>> from petastore.adapters.keras import PyDataset
        >>> schema = petastore.Unischema("x", [petastore.UnischemaField("x", "float32", (1,))])
        >>> url = tempfile.mkdtemp() + "/x"
        >>> _ = petastore.write_dataset(url, schema, [{"x": np.full(1, i, "float32")} for i in range(10)])
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> with petastore.make_reader(url) as reader:
        ...     batches = PyDataset(reader, 4, map_func=lambda batch: (batch["x"], batch["x"]))
        ...     place = ReaderCheckpoint(reader)  # and keras.callbacks.BackupAndRestore("backup", save_freq=100)
        ...     _ = model.fit(batches, steps_per_epoch=2, shuffle=False, verbose=0, callbacks=[place])
        ...     place.state_dict()["position"]
        8
    """

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self._reader = reader
        self._place = _Place(self)
        self._trained = 0  # batches trained on since `fit` began, or since weights were loaded
        self._under_way = 0  # batches of the current or just finished step

    def set_model(self, model: Any) -> None:
        """Add the reader's state to the model's weights. Keras calls it before training."""
        super().set_model(model)
        # `object.__setattr__` bypasses Keras's attribute tracking, which is locked once a model is built.
        object.__setattr__(model, "petastore_reader", self._place)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras passes it by name
        """Start counting batches from 0. Keras calls it."""
        self._count_anew()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Count the batches of the next step before the model trains on them.

        Keras calls this method. The batches are counted here, because another callback may save the model after the
        step and before `on_train_batch_end` of this callback.
        """
        self._under_way = int(self.model.steps_per_execution)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Record that the model has trained on the batches of the step. Keras calls it."""
        self._trained = self._done
        self._under_way = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the reader's state after the batches that the model was trained on.

        Raises:
            InvalidArgumentError: `fit` did not receive batches of this reader.
        """
        done = self._done
        if not done:
            return dict(self._reader.state_dict())
        return dump_state(self._reader.plan, delivered_of(self._reader).cursor_after(done))

    def load_state_dict(self, state: Any) -> None:
        """Resume from a state: `fit` continues with the batch after the saved position.

        Raises:
            InvalidArgumentError: The state was saved with another dataset or row order.
        """
        reader = self._reader
        reader.load_state_dict(state)
        if reader.cursor.is_at_end(reader.num_epochs):
            reader.reset()  # otherwise a tf.data dataset would yield an empty epoch
        self._count_anew()

    @property
    def _done(self) -> int:
        trained = self._trained + self._under_way
        handed = delivered_of(self._reader).count
        if trained and not handed:
            raise InvalidArgumentError(
                "fit must train on the reader of ReaderCheckpoint, got other data. Call fit with a "
                "PyDataset of the same reader, or with make_tf_dataset(reader, batch_size=…)"
            )
        return min(trained, handed)  # with `steps_per_execution`, the last group of batches may be smaller

    def _count_anew(self) -> None:
        self._trained = self._under_way = 0
        delivered_of(self._reader).begin()


class _Place(keras.layers.Layer):  # type: ignore[misc]
    """Layer without weights that saves a reader's state in a model's weights file."""

    def __init__(self, checkpoint: ReaderCheckpoint) -> None:
        super().__init__(name="petastore_reader")
        object.__setattr__(self, "_checkpoint", checkpoint)

    def save_own_variables(self, store: Any) -> None:
        """Save the state. Keras calls it when weights are saved."""
        store["state"] = np.frombuffer(json.dumps(self._checkpoint.state_dict()).encode(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        """Load the state. Keras calls it when weights are loaded.

        Weights that were saved without a state change nothing.
        """
        if "state" in store:
            self._checkpoint.load_state_dict(json.loads(np.asarray(store["state"]).tobytes()))
