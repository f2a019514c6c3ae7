"""The data module of `horovod.spark.torch.TorchEstimator`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from petastore.interop.horovod_spark.data_module import DataModuleOptions, EstimatorDataModule
from petastore.readers import TransformSpec

__all__ = ["PetastoreDataModule"]


class PetastoreDataModule(EstimatorDataModule):
    """A data module for `TorchEstimator(data_module=PetastoreDataModule, ...)`.

    Datasets with codecs are supported, too. Images and arrays are decoded to tensors with the shapes of the schema;
    list columns of plain Parquet are tensors if all rows have the same length. All ranks have the same number of
    batches. An epoch of the estimator is an epoch of the reader. Each training row is read by one rank; rows of an
    incomplete global batch at the end of an epoch are left out. Each validation row is read once. One exception: with a
    validation batch size of 1, the last step repeats a row on some ranks if fewer rows than ranks remain.

    With `inmemory_cache_all=True`, each rank reads its rows once and keeps them in memory. `transformation_fn` is
    called with each row as a dict. Horovod creates the module and uses it as a context manager.

    Args:
        transform_fn: A function of a row, from the estimator's `transformation_fn`.
        inmemory_cache_all: Whether rows are kept in memory.
        num_train_epochs: Number of epochs; the iterator of batches itself is endless.
        options: Arguments of `with_options`.
        **told: Other arguments from the estimator; see Horovod's `DataModule`.

    Raises:
        InvalidArgumentError: On entering the `with` block: an option is invalid, or ranks have different plans.
        StorageError: On entering the `with` block: the data cannot be opened.

    Example:
        >>> import petastore, tempfile
        >>> url = tempfile.mkdtemp() + "/points"
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("x", "float32", (2,))])
        >>> _ = petastore.write_dataset(url, schema, [{"x": [i, 1]} for i in range(5)])
        >>> with PetastoreDataModule(train_dir=url, has_val=False, train_batch_size=2, shuffle=False) as module:
        ...     batches = iter(module.train_data())
        ...     print(next(batches)["x"].tolist())
        [[0.0, 1.0], [1.0, 1.0]]
    """

    short_name = "petastore"
    """Name of the data module in Horovod."""

    def __init__(
        self,
        *,
        transform_fn: Callable[[Any], Any] | None = None,
        inmemory_cache_all: bool = False,
        num_train_epochs: int = 1,
        options: DataModuleOptions | None = None,
        **told: Any,
    ) -> None:
        transform = None if transform_fn is None else TransformSpec(transform_fn)
        self._take(told, transform, options, in_memory=inmemory_cache_all)
        self.num_train_epochs = num_train_epochs
        """Number of training epochs."""

    def __enter__(self) -> Self:
        # Only full batches, because Horovod counts floor(rows / batch size / ranks) steps per epoch.
        self._open("train", num_epochs=None, last_batch="drop")
        # "even" may have one step less than Horovod counts, so the last batch is split in two. A batch of a single row
        # cannot be split; "wrap" has as many steps as Horovod counts.
        self._open("val", num_epochs=None, last_batch="even" if self._batch_sizes["val"] > 1 else "wrap")
        return self

    def train_data(self) -> Iterable[dict[str, Any]]:
        """Return an endless iterator of training batches.

        A batch is a dict from column name to tensor of shape (rows, *shape).

        Raises:
            ReaderClosedError: It is called outside of the `with` block.
        """
        return self._loader("train", num_epochs=None, shuffle=self._shuffle)

    def val_data(self) -> Iterable[dict[str, Any]]:
        """Return an iterator of validation batches; empty without validation data.

        Raises:
            ReaderClosedError: It is called outside of the `with` block.
        """
        if not self.has_val:
            return ()
        batches, of_epoch = (
            self._loader("val", num_epochs=None),
            self._reader("val").steps_per_epoch(self._batch_sizes["val"]),
        )
        steps = self._told.get("steps_per_epoch_val")  # steps of each validation, set by the estimator
        return batches if steps != of_epoch + 1 else _with_last_ones_halved(batches, of_epoch)


def _with_last_ones_halved(batches: Iterable[dict[str, Any]], of_epoch: int) -> Iterator[dict[str, Any]]:
    """Yield the batches, but split the last batch of each epoch in two.

    Horovod rounds up the number of steps. If fewer rows than ranks remain, a reader adds them to the previous batch and
    has one batch less. Without the split, an epoch of the estimator would then use rows of the next epoch.

    Args:
        batches: Batches of consecutive epochs, each a dict from column name to tensor.
        of_epoch: Number of batches of an epoch, before the split.
    """
    for number, batch in enumerate(batches, 1):
        if number % of_epoch:
            yield batch
            continue
        half = len(next(iter(batch.values()))) // 2
        yield {name: column[:half] for name, column in batch.items()}
        yield {name: column[half:] for name, column in batch.items()}
