"""PyDataset: a `keras.utils.PyDataset` whose batches come from a reader, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from petastore.adapters.host_arrays import ArrayForm, HostArrays
from petastore.adapters.keras.distribution import refuse_other_shards
from petastore.adapters.nulls import Nulls
from petastore.adapters.passes import Passes
from petastore.adapters.received import received_of
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.request import whole_number
from petastore.plan.state import dump_state
from petastore.readers.batch import Batch
from petastore.readers.reader import Reader

__all__ = ["PyDataset"]


class PyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of a reader for Keras' `fit`, `evaluate` and `predict`, on any backend.

    An epoch of `fit` is a pass: all epochs of the reader (one, unless `num_epochs` says more), in an order of its own
    each time. After `load_state_dict` of the reader, or by `ReaderCheckpoint`, the next pass is what was left of the
    one that was interrupted; Keras then says that the input ran out of data, and goes on with whole epochs.

    Keras asks for batches by number, and takes some of them before it trains, to build the model; such a batch comes
    again. Of a generator it would have the first two batches in each epoch after the first, and no others. Pass
    `shuffle=False` to `fit`, which otherwise shuffles the numbers: the order belongs to the reader.

    Where a `keras.distribution` is set, the reader has to give the part of this process, in full batches; see
    `refuse_other_shards`.

    ```text
    column                             in what map_func gets
    numbers, booleans                  array (rows, *shape), dtype as declared, to be read only
    datetime64, timedelta64            int64 nanoseconds
    a shape with None                  object array (rows,) of arrays, or padded
    text, bytes, Decimal               object array (rows,)
    missing values                     an error that names the column, or as `nulls` says
    "valid" of last_batch="pad"              bool (rows,)
    ```

    Args:
        reader: What `make_reader` or `make_batch_reader` gave. Stop it after training.
        batch_size: Rows of a batch of this process.
        map_func: Makes of a dict of arrays what Keras takes: `(x, y)` or `(x, y, sample_weight)`; a dict alone is x.
            None gives the dict.
        ragged: `"list"`, or `"padded"` or `Padded(value)`, of columns whose shape has None; see
            `petastore.adapters.torch.DataLoader`.
        nulls: What stands where a value is missing; see `petastore.adapters.torch.DataLoader`.

    Raises:
        InvalidArgumentError: An argument cannot be, or the reader does not fit the `keras.distribution` that is set.

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
        """Rows of a batch of this process."""
        self.reader = reader
        """Where the batches come from."""
        refuse_other_shards(reader, self.batch_size)
        self._arrays, self._map_func = HostArrays(reader, ragged=ragged, nulls=nulls), map_func
        self._passes = Passes(reader)
        self._batches: Iterator[Batch] = iter(())
        self._plan: Any = None  # of the pass under way; whoever moves a reader on purpose gives it another one
        self._begun = Cursor()  # where that pass began
        self._next = 0  # the number of the batch that follows
        self._is_epoch, self._asked_in_epoch, self._is_done = False, False, False

    @property
    def num_batches(self) -> int | None:
        """Batches of a whole pass, or of the rest with which an interrupted one goes on; None is without end."""
        whole = self._whole
        # Keras asks for the steps of all epochs first, and then, as an epoch begins, for the numbers of this one.
        if whole is None or not self._is_epoch or self._asked_in_epoch:
            return whole
        reader = self.reader
        if reader.plan is self._plan:
            return whole if self._is_done else self._left
        return whole if reader.last_row_consumed else reader.plan.steps_left(self.batch_size, reader.cursor)

    @property
    def _left(self) -> int | None:
        """Batches of the pass under way altogether."""
        return self.reader.plan.steps_left(self.batch_size, self._begun)

    @property
    def _whole(self) -> int | None:
        epochs = self.reader.num_epochs
        return None if epochs is None else epochs * self.reader.steps_per_epoch(self.batch_size)

    def __getitem__(self, index: int) -> Any:
        """The batch of this number in the pass: 0, which begins a pass, or the one after that which came last.

        Raises:
            InvalidArgumentError: Another number.
        """
        if index == 0:
            self._begin()
        elif index != self._next:
            raise InvalidArgumentError(
                f"batch {index:,} was asked for where batch {self._next:,} follows: fit shuffles the numbers of "
                "batches unless told not to, and a reader goes in its own order; write fit(..., shuffle=False), and "
                "ask make_reader for shuffle_rows=True"
            )
        batch = next(self._batches, None)
        if batch is None:
            raise InvalidArgumentError(f"batch {index:,} was asked for, but the pass has {self._left:,} batches")
        self._next = index + 1
        self._asked_in_epoch = self._is_epoch
        self._is_done = self._is_epoch and batch.cursor.is_at_end(self.reader.num_epochs)
        made = self._arrays(batch)
        return made if self._map_func is None else self._map_func(made)

    def on_epoch_begin(self) -> None:
        """Keras calls it before it asks for the batches of an epoch."""
        self._is_epoch, self._asked_in_epoch = True, False

    def on_epoch_end(self) -> None:
        """Keras calls it when it has trained on the batches of an epoch, or has built the model."""
        self._is_epoch, self._asked_in_epoch = False, False

    def _begin(self) -> None:
        """Begins the next pass; once more the one under way, where Keras had not all of it."""
        reader = self.reader
        if reader.plan is not self._plan:
            refuse_other_shards(reader, self.batch_size)
            if reader.last_row_consumed:
                reader.reset()
        elif self._is_done:
            reader.reset()
        else:
            reader.load_state_dict(dump_state(reader.plan, self._begun))
        reader.load_state_dict(reader.state_dict())  # so that the pass goes on from there
        self._plan, self._begun = reader.plan, reader.cursor
        self._batches = received_of(reader).noted(self._passes.start(self.batch_size))
        self._is_done = False
