"""ReaderCheckpoint: the place of a reader in the weights that Keras saves, so that both are of the same moment."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np

from petastore.adapters.received import received_of
from petastore.errors import InvalidArgumentError
from petastore.plan.state import dump_state

__all__ = ["ReaderCheckpoint"]


class ReaderCheckpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves and restores where training stands in what a reader gives, with the weights of the model.

    Keras' `BackupAndRestore` and `ModelCheckpoint` save weights; with this callback in the same `fit`, in any order,
    the state of the reader lies in the same file, and a file that is whole has both. When `BackupAndRestore` restores,
    the reader is moved: what `fit` then trains on are the batches that follow those that the restored weights were
    trained on. So with `save_freq=100`, too, every row is trained on once: the interrupted epoch of `fit` goes on with
    what was left of it.

    Batches are counted as they are trained on, however far Keras reads ahead. It goes with `PyDataset` and with
    `make_tf_dataset`. Load no state into the reader yourself: Keras takes a batch to build the model, and with
    `make_tf_dataset` that would be one of the rest.

    Args:
        reader: What the dataset is made of that is given to `fit`.

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
        self._trained = 0  # batches since `fit` began, or since weights were loaded
        self._under_way = 0  # batches of the step that is under way, or just done

    def set_model(self, model: Any) -> None:
        """Keras calls it before training: from now on the place is a part of the model's weights."""
        super().set_model(model)
        # Past the attributes that Keras keeps track of, which are closed once a model is built.
        object.__setattr__(model, "petastore_reader", self._place)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 (Keras gives it by name)
        """Counts anew."""
        self._count_anew()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Batches go to the model; who saves when they are done may be asked before this callback."""
        self._under_way = int(self.model.steps_per_execution)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """They are done."""
        self._trained = self._done
        self._under_way = 0

    def state_dict(self) -> dict[str, Any]:
        """The state of the reader after the batches that the model was trained on.

        Raises:
            InvalidArgumentError: `fit` was not given batches of this reader.
        """
        done = self._done
        if not done:
            return dict(self._reader.state_dict())
        return dump_state(self._reader.plan, received_of(self._reader).cursor_after(done))

    def load_state_dict(self, state: Any) -> None:
        """Moves the reader; the next batch that `fit` takes is the one after the state.

        Raises:
            InvalidArgumentError: The state is of other data or of another order.
        """
        self._reader.load_state_dict(state)
        self._count_anew()

    @property
    def _done(self) -> int:
        trained = self._trained + self._under_way
        handed = received_of(self._reader).count
        if trained and not handed:
            raise InvalidArgumentError(
                "ReaderCheckpoint counts the batches of its reader, but fit trains on something else; give fit a "
                "PyDataset, or a make_tf_dataset with batch_size, of the same reader"
            )
        return min(trained, handed)  # the last of the steps that are executed together may be fewer

    def _count_anew(self) -> None:
        self._trained = self._under_way = 0
        received_of(self._reader).begin()


class _Place(keras.layers.Layer):  # type: ignore[misc]
    """Stands in a model so that its weights have the state of a reader beside them."""

    def __init__(self, checkpoint: ReaderCheckpoint) -> None:
        super().__init__(name="petastore_reader")
        object.__setattr__(self, "_checkpoint", checkpoint)

    def save_own_variables(self, store: Any) -> None:
        """Keras calls it when weights are saved."""
        store["state"] = np.frombuffer(json.dumps(self._checkpoint.state_dict()).encode(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        """Keras calls it when weights are loaded; those that were saved without a place move nothing."""
        if "state" in store:
            self._checkpoint.load_state_dict(json.loads(np.asarray(store["state"]).tobytes()))
