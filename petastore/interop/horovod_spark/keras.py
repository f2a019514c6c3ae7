"""The data module of `horovod.spark.keras.KerasEstimator`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from petastore.errors import InvalidArgumentError
from petastore.interop import petastorm
from petastore.interop.horovod_spark.asked import Asked, Options, TakesOptions
from petastore.readers import TransformSpec
from petastore.readers.reader import Reader

__all__ = ["PetastoreDataModule"]


class PetastoreDataModule(TakesOptions):
    """Feeds `KerasEstimator(data_module=PetastoreDataModule, ...)`, as the module of that name for torch does.

    The estimator makes its dataset with a function of its own, which imports Petastorm; it gets petastore. Each rank
    repeats its rows without end, and the estimator counts steps.

    Args:
        transform_fn: A function of a row, from the estimator's `transformation_fn`.
        inmemory_cache_all: Whether TensorFlow keeps rows in memory, where they are not shuffled.
        make_dataset: The estimator's function.
        options: What `with_options` was given.
        **told: What estimators pass on else; Horovod's `DataModule` describes it.

    Raises:
        InvalidArgumentError: `options` has parameters of a loader; by `with`: an option cannot be, or ranks planned
            different data.
        StorageError: By `with`: the data cannot be opened.
    """

    short_name = "petastore"
    """What Horovod calls it."""

    def __init__(
        self,
        *,
        transform_fn: Callable[[Any], Any] | None = None,
        inmemory_cache_all: bool = False,
        make_dataset: Callable[..., Any] | None = None,
        options: Options | None = None,
        **told: Any,
    ) -> None:
        transform = None if transform_fn is None else TransformSpec(transform_fn)
        if options is not None and options.loader:
            raise InvalidArgumentError(
                f"loader={dict(options.loader)!r}: Keras' estimator makes its dataset itself, not a loader"
            )
        # As batches TensorFlow takes them apart by itself; a function of a row wants rows.
        asked = Asked.of(told, transform, options or Options())
        self._asked = dataclasses.replace(asked, in_batches=transform is None)
        self._in_memory, self._make = inmemory_cache_all, make_dataset
        self.has_val = self._asked.has_val
        """Whether there is validation data."""
        self._train: Reader | None = None
        self._val: Reader | None = None

    def __enter__(self) -> Self:
        self._train = self._asked.train_reader(num_epochs=1, last_batch="even")
        self._val = self._asked.val_reader(num_epochs=1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reader in (self._train, self._val):
            if reader is not None:
                reader.stop()
                reader.join()

    def train_data(self) -> Any:
        """The `tf.data.Dataset` of training data that the estimator's function makes."""
        return self._dataset(self._train, self._asked.train_batch_size, shuffle=self._asked.shuffle)

    def val_data(self) -> Any:
        """The same of validation data; None where there is none."""
        return None if self._val is None else self._dataset(self._val, self._asked.val_batch_size, shuffle=False)

    def _dataset(self, reader: Reader | None, batch_size: int, *, shuffle: bool) -> Any:
        if self._make is None or reader is None:
            raise InvalidArgumentError("the estimator gives make_dataset, and reads inside of the module's with block")
        petastorm.install()  # the function imports petastorm.tf_utils
        return self._make(reader, batch_size, self._asked.in_batches, shuffle=shuffle, cache=self._in_memory)
