"""The data module of `horovod.spark.keras.KerasEstimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from petastore.errors import InvalidArgumentError
from petastore.interop import petastorm
from petastore.interop.horovod_spark.data_module import DataModuleOptions, EstimatorDataModule
from petastore.readers import TransformSpec

__all__ = ["PetastoreDataModule"]


class PetastoreDataModule(EstimatorDataModule):
    """A data module for `KerasEstimator(data_module=PetastoreDataModule, ...)`.

    See also the class of this name in `petastore.interop.horovod_spark.torch`. The estimator creates its dataset with a
    function that imports Petastorm; this module makes the import return petastore. Each rank repeats its rows
    endlessly, and the estimator counts steps.

    Args:
        transform_fn: A function of a row, from the estimator's `transformation_fn`.
        inmemory_cache_all: Whether TensorFlow keeps unshuffled rows in memory.
        make_dataset: The function with which the estimator creates its dataset.
        options: Arguments of `with_options`.
        **told: Other arguments from the estimator; see Horovod's `DataModule`.

    Raises:
        InvalidArgumentError: `options` has loader parameters. On entering the `with` block: an option is invalid, or
            ranks have different plans.
        StorageError: On entering the `with` block: the data cannot be opened.
    """

    short_name = "petastore"
    """Name of the data module in Horovod."""

    def __init__(
        self,
        *,
        transform_fn: Callable[[Any], Any] | None = None,
        inmemory_cache_all: bool = False,
        make_dataset: Callable[..., Any] | None = None,
        options: DataModuleOptions | None = None,
        **told: Any,
    ) -> None:
        transform = None if transform_fn is None else TransformSpec(transform_fn)
        if options is not None and options.loader:
            raise InvalidArgumentError(
                "with_options must have no loader parameters for Keras, because the estimator makes its own dataset, "
                f"got {dict(options.loader)!r}. Remove them"
            )
        # The user's function takes single rows, so the dataset must yield rows, not batches.
        self._take(told, transform, options, in_memory=inmemory_cache_all, in_batches=transform is None)
        self._make = make_dataset

    def __enter__(self) -> Self:
        self._open("train", num_epochs=1)
        self._open("val", num_epochs=1)
        return self

    def train_data(self) -> Any:
        """Return the `tf.data.Dataset` of training rows.

        The estimator's function creates it.
        """
        return self._dataset("train", shuffle=self._shuffle)

    def val_data(self) -> Any:
        """Return the `tf.data.Dataset` of validation data; None without validation data."""
        return self._dataset("val", shuffle=False) if self.has_val else None

    def _dataset(self, part: str, *, shuffle: bool) -> Any:
        if self._make is None:
            raise InvalidArgumentError(
                "make_dataset must be a function, which the Horovod estimator passes, got None. Pass this class to the "
                "estimator, which creates the data module itself"
            )
        petastorm.install()  # the function imports `petastorm.tf_utils`, which must be petastore's
        reader, batch_size = self._reader(part), self._batch_sizes[part]
        return self._make(reader, batch_size, self._in_batches, shuffle=shuffle, cache=self._in_memory)
