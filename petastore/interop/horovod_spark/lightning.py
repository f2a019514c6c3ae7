"""The data module of `horovod.spark.lightning.LightningEstimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning

from petastore.interop.horovod_spark.data_module import DataModuleOptions, EstimatorDataModule
from petastore.readers import TransformSpec

__all__ = ["PetastoreDataModule"]


class PetastoreDataModule(EstimatorDataModule, pytorch_lightning.LightningDataModule):  # type: ignore[misc]
    """A data module for `LightningEstimator(data_module=PetastoreDataModule, ...)`.

    See also the class of this name in `petastore.interop.horovod_spark.torch`. Each epoch of the trainer is an epoch of
    the reader. The reader prefetches, so there is no additional queue.

    Args:
        transformation: A function of a row.
        transformation_edit_fields: Fields that `transformation` changes, as in `TransformSpec`.
        transformation_removed_fields: Fields that `transformation` removes, as in `TransformSpec`.
        inmemory_cache_all: Whether rows are kept in memory.
        reader_worker_count: Number of workers of each reader.
        seed: Seed of the row order.
        options: Arguments of `with_options`.
        **told: Other arguments from the estimator.

    Raises:
        InvalidArgumentError: In `setup`: an option is invalid, or ranks have different plans.
        StorageError: In `setup`: the data cannot be opened.
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
        options: DataModuleOptions | None = None,
        **told: Any,
    ) -> None:
        super().__init__()
        parts = (transformation, transformation_edit_fields, transformation_removed_fields)
        transform = None if all(part is None for part in parts) else TransformSpec(*parts)
        workers = dict.fromkeys(("train_reader_worker_count", "val_reader_worker_count"), reader_worker_count)
        self._take({**told, **workers, "random_seed": seed}, transform, options, in_memory=inmemory_cache_all)

    def setup(self, stage: str | None = None) -> None:
        """Open the readers. Lightning calls it before training."""
        if stage in ("fit", None):
            self._open("train", num_epochs=1, last_batch="drop")
            self._open("val", num_epochs=1)

    def teardown(self, stage: str | None = None) -> None:
        """Close the readers. Lightning calls it after training."""
        if stage in ("fit", None):
            self._close()

    def train_dataloader(self) -> Any:
        """Return a loader over one epoch of training batches."""
        return self._loader("train", shuffle=self._shuffle)

    def val_dataloader(self) -> Any:
        """Return a loader over the validation batches; empty without validation data."""
        return self._loader("val") if self.has_val else []
