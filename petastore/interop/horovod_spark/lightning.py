"""The data module of `horovod.spark.lightning.LightningEstimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning

from petastore.adapters.torch.batched import InMemBatchedDataLoader
from petastore.adapters.torch.loader import DataLoader
from petastore.errors import InvalidArgumentError
from petastore.interop.horovod_spark.asked import Asked, Options, TakesOptions
from petastore.readers import TransformSpec
from petastore.readers.reader import Reader

__all__ = ["PetastoreDataModule"]


class PetastoreDataModule(TakesOptions, pytorch_lightning.LightningDataModule):  # type: ignore[misc]
    """Feeds `LightningEstimator(data_module=PetastoreDataModule, ...)`, as the module of that name for torch does.

    Each epoch of the trainer is one of the data. There is no queue besides: loaders read ahead by themselves.

    Args:
        transformation: A function of a row.
        transformation_edit_fields: What it changes, as in `TransformSpec`.
        transformation_removed_fields: What it leaves out, as in `TransformSpec`.
        inmemory_cache_all: Whether rows are kept in memory.
        reader_worker_count: Workers of each reader.
        seed: Decides the order.
        options: What `with_options` was given.
        **told: What estimators pass on else.

    Raises:
        InvalidArgumentError: By `setup`: an option cannot be, or ranks planned different data.
        StorageError: By `setup`: the data cannot be opened.
    """

    def __init__(
        self,
        *,
        transformation: Callable[[Any], Any] | None = None,
        transformation_edit_fields: Any = None,
        transformation_removed_fields: Any = None,
        inmemory_cache_all: bool = False,
        reader_worker_count: int | None = None,
        seed: int | None = None,
        options: Options | None = None,
        **told: Any,
    ) -> None:
        super().__init__()
        parts = (transformation, transformation_edit_fields, transformation_removed_fields)
        transform = None if all(part is None for part in parts) else TransformSpec(*parts)
        workers = dict.fromkeys(("train_reader_worker_count", "val_reader_worker_count"), reader_worker_count)
        self._asked = Asked.of({**told, **workers, "random_seed": seed}, transform, options or Options())
        self._in_memory = inmemory_cache_all
        self.has_val = self._asked.has_val
        """Whether there is validation data."""
        self._readers: dict[str, Reader] = {}

    def setup(self, stage: str | None = None) -> None:
        """Opens the readers, before training."""
        if stage not in ("fit", None):
            return
        self._readers["train"] = self._asked.train_reader(num_epochs=1, last_batch="drop")
        found = self._asked.val_reader(num_epochs=1)
        if found is not None:
            self._readers["val"] = found

    def teardown(self, stage: str | None = None) -> None:
        """Closes them, after it."""
        if stage not in ("fit", None):
            return
        for reader in self._readers.values():
            reader.stop()
            reader.join()
        self._readers.clear()

    def train_dataloader(self) -> Any:
        """Batches of an epoch of training data."""
        return self._loader("train", self._asked.train_batch_size, shuffle=self._asked.shuffle)

    def val_dataloader(self) -> Any:
        """The same of validation data; nothing where there is none."""
        return self._loader("val", self._asked.val_batch_size) if self.has_val else []

    def _loader(self, which: str, batch_size: int, *, shuffle: bool = False) -> Any:
        if which not in self._readers:
            raise InvalidArgumentError("Lightning's trainer calls setup('fit') before it asks for loaders")
        reader = self._readers[which]
        if self._in_memory:
            return InMemBatchedDataLoader(reader, batch_size, shuffle=shuffle, seed=self._asked.seed or 0)
        return DataLoader(reader, batch_size, **{"ragged": "dense", **self._asked.options.loader})
