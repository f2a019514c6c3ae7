"""The data module of `horovod.spark.torch.TorchEstimator`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from petastore.adapters.torch.batched import InMemBatchedDataLoader
from petastore.adapters.torch.loader import DataLoader
from petastore.errors import ReaderClosedError
from petastore.interop.horovod_spark.asked import Asked, Options, TakesOptions
from petastore.readers import TransformSpec
from petastore.readers.reader import Reader

__all__ = ["PetastoreDataModule"]


class PetastoreDataModule(TakesOptions):
    """Feeds `TorchEstimator(data_module=PetastoreDataModule, ...)`: datasets with codecs, and what `fit(df)` stores.

    Images and arrays come decoded, as tensors of the shapes that the schema says; lists of plain Parquet are tensors
    where all have one length. Ranks have equal numbers of batches. An epoch of the estimator is one of the reader: of
    training rows each is given to just one rank, up to a global batch that is left out (others in each epoch, where
    rows are shuffled); of validation rows each is given once. Only where validation batches have one row, a last step
    that has no row for some rank gives it one that another has had.

    With `inmemory_cache_all=True` the rows of a rank are read once, and kept in memory. With `transformation_fn` each
    row goes through it, as a dict. Horovod makes the module, and uses it as a context.

    Args:
        transform_fn: A function of a row, from the estimator's `transformation_fn`.
        inmemory_cache_all: Whether rows are kept in memory.
        num_train_epochs: Epochs of the training; batches come without end.
        options: What `with_options` was given.
        **told: What estimators pass on else; Horovod's `DataModule` describes it.

    Raises:
        InvalidArgumentError: By `with`: an option cannot be, or ranks planned different data.
        StorageError: By `with`: the data cannot be opened.

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
    """What Horovod calls it."""

    def __init__(
        self,
        *,
        transform_fn: Callable[[Any], Any] | None = None,
        inmemory_cache_all: bool = False,
        num_train_epochs: int = 1,
        options: Options | None = None,
        **told: Any,
    ) -> None:
        transform = None if transform_fn is None else TransformSpec(transform_fn)
        self._asked = Asked.of(told, transform, options or Options())
        self._in_memory = inmemory_cache_all
        self.num_train_epochs = num_train_epochs
        """Epochs of the training."""
        self.has_val = self._asked.has_val
        """Whether there is validation data."""
        self._readers: list[Reader] = []

    def __enter__(self) -> Self:
        # Epochs of full batches: as many as Horovod counts, whole number (rows / batch size / ranks).
        self._train = self._kept(self._asked.train_reader(num_epochs=None, last_batch="drop"))
        # A step in which each rank has a row of its own cannot be had of one row a batch and fewer rows than ranks.
        found = self._asked.val_reader(num_epochs=None, last_batch="even" if self._asked.val_batch_size > 1 else "wrap")
        self._val = None if found is None else self._kept(found)
        return self

    def _kept(self, reader: Reader) -> Reader:
        self._readers.append(reader)
        return reader

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reader in self._readers:
            reader.stop()
        for reader in self._readers:
            reader.join()
        self._readers.clear()

    def train_data(self) -> Iterable[dict[str, Any]]:
        """Batches of training data without end: column name to tensor (rows, *shape).

        Raises:
            ReaderClosedError: Outside of the `with` block.
        """
        return self._loader(self._open(self._train), self._asked.train_batch_size, shuffle=self._asked.shuffle)

    def val_data(self) -> Iterable[dict[str, Any]]:
        """The same of validation data; nothing where there is none.

        Raises:
            ReaderClosedError: Outside of the `with` block.
        """
        if self._val is None:
            return ()
        batches = self._loader(self._open(self._val), self._asked.val_batch_size)
        of_epoch = self._val.steps_per_epoch(self._asked.val_batch_size)
        return batches if self._asked.val_steps != of_epoch + 1 else _with_last_ones_halved(batches, of_epoch)

    def _open(self, reader: Reader) -> Reader:
        if reader not in self._readers:
            raise ReaderClosedError("the data module is left already; train inside of its with block")
        return reader

    def _loader(self, reader: Reader, batch_size: int, *, shuffle: bool = False) -> Iterable[dict[str, Any]]:
        if self._in_memory:
            return InMemBatchedDataLoader(
                reader, batch_size, num_epochs=None, shuffle=shuffle, seed=self._asked.seed or 0
            )
        return DataLoader(reader, batch_size, **{"ragged": "dense", **self._asked.options.loader})


def _with_last_ones_halved(batches: Iterable[dict[str, Any]], of_epoch: int) -> Iterator[dict[str, Any]]:
    """The batches, the last of each epoch as two.

    Horovod rounds up when it counts steps. Where fewer rows than ranks are left over, a reader gives them with the
    batch before, and has one batch less: an epoch of the estimator would take rows of the next one.
    """
    for number, batch in enumerate(batches, 1):
        if number % of_epoch:
            yield batch
            continue
        half = len(next(iter(batch.values()))) // 2
        yield {name: column[:half] for name, column in batch.items()}
        yield {name: column[half:] for name, column in batch.items()}
