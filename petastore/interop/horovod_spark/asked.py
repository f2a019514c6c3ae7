"""What an estimator of Horovod's tells its data module, and the readers that follow from it. Knows no Horovod."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from petastore.distributed.engines import horovod_modules
from petastore.distributed.gathering import horovod_all_gather
from petastore.errors import InvalidArgumentError
from petastore.front import make_batch_reader, make_reader
from petastore.plan.request import TailWord
from petastore.readers import TransformSpec
from petastore.readers.reader import Reader

__all__ = ["Asked", "Options", "TakesOptions", "WithOptions"]

_Module = TypeVar("_Module", covariant=True)


@dataclasses.dataclass(frozen=True)
class Options:
    """What a user says beyond what estimators pass on."""

    shuffle: bool | None = None
    """Whether training rows are shuffled; None is what the estimator says."""

    reader: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Parameters of `make_reader` for both readers."""

    validation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Those of the validation reader alone; they count where both name one."""

    loader: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Parameters of the loader, such as `device` and `nulls`."""


@dataclasses.dataclass(frozen=True)
class WithOptions(Generic[_Module]):
    """A data module with options, for `data_module=` of an estimator. A value: it goes to executors by pickle."""

    module: Callable[..., _Module]
    options: Options

    def __call__(self, **told: Any) -> _Module:
        """The module, with what the estimator tells it."""
        return self.module(**told, options=self.options)


class TakesOptions:
    """A data module that is made with `options=`."""

    @classmethod
    def with_options(
        cls,
        *,
        shuffle: bool | None = None,
        loader: Mapping[str, Any] | None = None,
        validation: Mapping[str, Any] | None = None,
        **reader: Any,
    ) -> WithOptions[Self]:
        """The module with options that the estimator has no parameters for; give it as `data_module=`.

        Args:
            shuffle: Whether training rows are shuffled; None is what the estimator says. (Of Horovod 0.28's estimator
                for torch `shuffle=False` does not arrive.)
            loader: Parameters of `petastore.adapters.torch.DataLoader`, such as `device`. For Keras, whose estimator
                makes its dataset itself, there are none.
            validation: Parameters of `make_reader` for validation data alone.
            **reader: Parameters of `make_reader`, such as `cache_type`, `decode` or `memory_budget`.

        Example:
            >>> class DataModule(TakesOptions):
            ...     pass
            >>> DataModule.with_options(shuffle=False, cache_type="local-disk").options.reader
            {'cache_type': 'local-disk'}
        """
        return WithOptions(cls, Options(shuffle, reader, validation or {}, loader or {}))


@dataclasses.dataclass(frozen=True)
class Asked:
    """What an estimator says, whichever it is."""

    train_dir: str
    val_dir: str | None
    has_val: bool
    train_batch_size: int
    val_batch_size: int
    shuffle: bool
    cur_shard: int
    shard_count: int
    schema_fields: Sequence[str] | None
    storage_options: Mapping[str, Any] | None
    seed: int | None
    reader_pool_type: str
    train_workers: int | None
    val_workers: int | None
    val_steps: int | None
    """Steps that the estimator takes in each validation; None where it does not say."""
    transform: TransformSpec | None
    options: Options
    in_batches: bool = False
    """Whether readers give batches of columns to who iterates them, and not rows."""

    @classmethod
    def of(cls, told: Mapping[str, Any], transform: TransformSpec | None, options: Options) -> Self:
        """What a data module was given, by the names that Horovod uses for torch and Keras."""
        return cls(
            train_dir=told["train_dir"],
            val_dir=told.get("val_dir"),
            has_val=bool(told.get("has_val", True)),
            train_batch_size=int(told.get("train_batch_size", 32)),
            val_batch_size=int(told.get("val_batch_size", 32)),
            shuffle=bool(told.get("shuffle", True)) if options.shuffle is None else options.shuffle,
            cur_shard=int(told.get("cur_shard", 0)),
            shard_count=int(told.get("shard_count", 1)),
            schema_fields=told.get("schema_fields"),
            storage_options=told.get("storage_options"),
            seed=told.get("random_seed"),
            reader_pool_type=told.get("reader_pool_type") or "thread",
            train_workers=told.get("train_reader_worker_count"),
            val_workers=told.get("val_reader_worker_count"),
            val_steps=told.get("steps_per_epoch_val"),
            transform=transform,
            options=options,
        )

    def train_reader(self, *, num_epochs: int | None, last_batch: TailWord) -> Reader:
        """A reader of this rank's training rows; ranks make sure that they planned the same.

        Raises:
            InvalidArgumentError: Ranks planned different data, or an option cannot be.
            StorageError: The data cannot be opened.
        """
        shuffles = {"shuffle_rows": self.shuffle, "shuffle_row_groups": self.shuffle}
        return self._reader(self.train_dir, num_epochs, last_batch, self.train_workers, shuffles)

    def val_reader(self, *, num_epochs: int | None, last_batch: TailWord = "even") -> Reader | None:
        """The same of validation rows, in their order; None where there are none.

        Raises:
            InvalidArgumentError: As `train_reader`.
            StorageError: As `train_reader`.
        """
        if not self.has_val:
            return None
        if self.val_dir is None:
            raise InvalidArgumentError("the estimator validates, but says no val_dir")
        still = {"shuffle_rows": False, "shuffle_row_groups": False, **self.options.validation}
        return self._reader(self.val_dir, num_epochs, last_batch, self.val_workers, still)

    def _reader(
        self, url: str, num_epochs: int | None, last_batch: TailWord, workers: int | None, more: Mapping[str, Any]
    ) -> Reader:
        settled: dict[str, Any] = {
            "schema_fields": None if self.schema_fields is None else list(self.schema_fields),
            "num_epochs": num_epochs,
            "cur_shard": self.cur_shard,
            "shard_count": self.shard_count,
            "seed": self.seed,
            "reader_pool_type": self.reader_pool_type,
            "workers_count": workers,
            "storage_options": self.storage_options,
            "transform_spec": self.transform,
            "last_batch": last_batch,
        }
        make = make_batch_reader if self.in_batches else make_reader
        reader = make(url, **{**settled, **self.options.reader, **more})
        if self.shard_count > 1 and horovod_modules():
            reader.plan.assert_agreed(horovod_all_gather)
        return reader
