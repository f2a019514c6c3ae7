"""Base class of data modules for Horovod's Spark estimators.

It creates readers from the parameters of an estimator.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Self

from petastore.distributed.engines import horovod_all_gather, horovod_modules
from petastore.errors import InvalidArgumentError, ReaderClosedError
from petastore.front import make_batch_reader, make_reader
from petastore.plan.request import LastBatchWord
from petastore.readers import TransformSpec
from petastore.readers.reader import Reader

__all__ = ["DataModuleOptions", "EstimatorDataModule"]


@dataclasses.dataclass(frozen=True)
class DataModuleOptions:
    """Options of a data module for which estimators have no parameters. Picklable."""

    shuffle: bool | None = None
    """Whether training rows are shuffled; None uses the estimator's parameter."""

    reader: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Parameters of `make_reader` for the training reader and the validation reader."""

    validation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Parameters of `make_reader` for the validation reader only; they override those in `reader`."""

    loader: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Parameters of the loader, such as `device` and `nulls`."""


class EstimatorDataModule:
    """A data module that opens the readers of one rank: training and validation rows."""

    has_val = True
    """Whether validation data exists."""

    @classmethod
    def with_options(
        cls,
        *,
        shuffle: bool | None = None,
        loader: Mapping[str, Any] | None = None,
        validation: Mapping[str, Any] | None = None,
        **reader: Any,
    ) -> Callable[..., Self]:
        """Return a function that creates the module with options.

        Pass the function as `data_module=`. The options are those for which the estimator has no parameters.

        Args:
            shuffle: Whether training rows are shuffled; None uses the estimator's parameter. (Horovod 0.28's estimator
                for torch does not pass `shuffle=False` on.)
            loader: Parameters of `petastore.adapters.torch.DataLoader`, such as `device`. Not supported for Keras,
                whose estimator creates its dataset itself.
            validation: Parameters of `make_reader` for validation data alone.
            **reader: Parameters of `make_reader`, such as `cache_type`, `decode` or `memory_budget`.

        Example:
            >>> module = EstimatorDataModule.with_options(shuffle=False, cache_type="local-disk")
            >>> module.keywords["options"].reader
            {'cache_type': 'local-disk'}
        """
        module: Callable[..., Self] = cls
        return functools.partial(module, options=DataModuleOptions(shuffle, reader, validation or {}, loader or {}))

    def _take(
        self,
        told: Mapping[str, Any],
        transform: TransformSpec | None,
        options: DataModuleOptions | None,
        *,
        in_memory: bool,
        in_batches: bool = False,
    ) -> None:
        """Store the parameters of the estimator, under Horovod's names.

        Args:
            told: Parameters of the estimator.
            transform: Transform function of rows.
            options: Arguments of `with_options`.
            in_memory: Whether all rows of a rank are kept in memory.
            in_batches: Whether the reader yields batches of columns instead of rows.
        """
        self._told, self._transform = told, transform
        self._in_memory, self._in_batches = in_memory, in_batches
        self._options = options or DataModuleOptions()
        chosen = self._options.shuffle
        self._shuffle = bool(told.get("shuffle", True)) if chosen is None else chosen
        self._batch_sizes = {part: int(told.get(f"{part}_batch_size", 32)) for part in ("train", "val")}
        self.has_val = bool(told.get("has_val", True))
        self._readers: dict[str, Reader] = {}

    def _open(self, part: str, *, num_epochs: int | None, last_batch: LastBatchWord = "even") -> None:
        """Open the reader of this rank's training ("train") or validation rows ("val").

        Do nothing for validation rows if the estimator has none. With several ranks of Horovod, the ranks check that
        their plans (the rows of each batch) agree.

        Raises:
            InvalidArgumentError: Ranks planned different data, or an option is not supported.
            StorageError: The data cannot be opened.
        """
        told, options = self._told, self._options
        shuffles, more = self._shuffle and part == "train", options.validation if part == "val" else {}
        if part == "val" and not self.has_val:
            return
        if told.get(f"{part}_dir") is None:
            raise InvalidArgumentError(
                f"{part}_dir must be given for {part} data, got None. Pass {part} data to the estimator"
            )
        fields, shards = told.get("schema_fields"), int(told.get("shard_count", 1))
        settled: dict[str, Any] = {
            "schema_fields": None if fields is None else list(fields),
            "num_epochs": num_epochs,
            "cur_shard": int(told.get("cur_shard", 0)),
            "shard_count": shards,
            "seed": told.get("random_seed"),
            "reader_pool_type": told.get("reader_pool_type") or "thread",
            "workers_count": told.get(f"{part}_reader_worker_count"),
            "storage_options": told.get("storage_options"),
            "transform_spec": self._transform,
            "last_batch": last_batch,
            **options.reader,
            "shuffle_rows": shuffles,
            "shuffle_row_groups": shuffles,
        }
        make = make_batch_reader if self._in_batches else make_reader
        reader = self._readers[part] = make(told[f"{part}_dir"], **{**settled, **more})
        if shards > 1 and horovod_modules():
            reader.plan.assert_agreed(horovod_all_gather)

    def _reader(self, part: str) -> Reader:
        """Return the open reader of training rows ("train") or validation rows ("val").

        Raises:
            ReaderClosedError: The reader is not open.
        """
        if part not in self._readers:
            raise ReaderClosedError(
                "the data module must be open, got a closed one. Train inside its with block, or after setup('fit')"
            )
        return self._readers[part]

    def _loader(self, part: str, *, num_epochs: int | None = 1, shuffle: bool = False) -> Any:
        """Return a loader of tensors over the rows of a reader ("train" or "val").

        `num_epochs` and `shuffle` are used only for rows in memory.
        """
        from petastore.adapters.torch.batched import InMemBatchedDataLoader
        from petastore.adapters.torch.loader import DataLoader

        reader, batch_size, seed = self._reader(part), self._batch_sizes[part], self._told.get("random_seed") or 0
        if self._in_memory:
            return InMemBatchedDataLoader(reader, batch_size, num_epochs=num_epochs, shuffle=shuffle, seed=seed)
        return DataLoader(reader, batch_size, **{"ragged": "dense", **self._options.loader})

    def _close(self) -> None:
        for reader in self._readers.values():
            reader.stop()
        for reader in self._readers.values():
            reader.join()
        self._readers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
