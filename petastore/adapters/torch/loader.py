"""DataLoader: torch's `DataLoader` class over a reader, with zero-copy batches."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, Self, TypedDict, Unpack

import torch
import torch.utils.data
from typing_extensions import TypeVar

from petastore.adapters.epoch_tracker import EpochTracker, epochs_of
from petastore.adapters.global_batches import refuse_other_shards
from petastore.adapters.nulls import Nulls
from petastore.adapters.torch.device import Carrier, device_of
from petastore.adapters.torch.ranks import (
    device_of_accelerate,
    noted_by_accelerate,
    ranks_known,
    refuse_an_unsharded_loader,
    warn_of_ranks_since,
)
from petastore.adapters.torch.rows import decimal_friendly_collate, rows_as_dicts
from petastore.adapters.torch.tensors import (
    BatchTensors,
    TorchForm,
    next_in_profile,
    refuse_forms_of_rows,
    torch_plans,
)
from petastore.callers import is_called_by_lightning
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, NotPicklableError, UnknownParameterError
from petastore.monitoring.diagnosis import Diagnosis
from petastore.monitoring.waits import timed
from petastore.plan.cursor import Cursor
from petastore.plan.fixed_share import with_rows_shuffled
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, whole_number
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.reader import Reader
from petastore.schema.select import similar_name_advice

__all__ = ["DataLoader", "LoaderOptions"]


WORKERS_BELONG_TO_THE_READER: Final = (
    "the reader has its own workers, and each worker process of torch would decode every row group again. Set "
    "workers_count of make_reader instead"
)
"""Error text for options of torch's worker processes."""


_WHY_NOT: Final[Mapping[str, str]] = {
    "num_workers": WORKERS_BELONG_TO_THE_READER,
    "prefetch_factor": WORKERS_BELONG_TO_THE_READER,
    "persistent_workers": WORKERS_BELONG_TO_THE_READER,
    "worker_init_fn": WORKERS_BELONG_TO_THE_READER,
    "multiprocessing_context": WORKERS_BELONG_TO_THE_READER,
    "timeout": WORKERS_BELONG_TO_THE_READER,
    "shuffle": "the reader sets the order. Pass shuffle_rows=True to make_reader",
    "generator": "the reader sets the order. Pass seed= to make_reader",
    "sampler": "the reader selects the rows. Pass cur_shard and shard_count to make_reader",
    "batch_sampler": "the reader selects the rows. Pass cur_shard and shard_count to make_reader",
    "drop_last": "the reader sets the last batch, equally on all ranks. Pass last_batch='drop' to make_reader",
    "pin_memory_device": "torch pins memory for its current accelerator",
    "dataset": "the reader is the dataset",
}
"""Why options of torch's DataLoader are rejected, and the alternatives."""


class TorchOptions(TypedDict, total=False):
    """Options of torch's DataLoader; only values that change nothing are accepted."""

    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    timeout: float
    shuffle: bool | None
    generator: torch.Generator | None
    sampler: torch.utils.data.Sampler[Any] | Iterable[Any] | None
    batch_sampler: torch.utils.data.Sampler[Any] | Iterable[Any] | None
    drop_last: bool
    pin_memory_device: str
    in_order: bool
    dataset: torch.utils.data.Dataset[Any]


class LoaderOptions(TorchOptions, total=False):
    """Options of `DataLoader` that related loaders also have."""

    ragged: TorchForm | Mapping[str, TorchForm]
    nulls: Nulls
    device: torch.device | str | int | None
    pin_memory: bool


def refuse_no_reader(reader: Any) -> None:
    """Raise an error if the argument is not a reader, for example a URL or a dataset."""
    if not hasattr(reader, "plan") or isinstance(reader, Dataset):
        where = repr(reader) if isinstance(reader, str) else "url"
        raise InvalidArgumentError(
            f"reader must be an open reader, got {type(reader).__name__}. Write "
            f"DataLoader(petastore.make_reader({where}), batch_size=…)"
        )


def refuse_options(options: TorchOptions, reader: Reader, is_own: Callable[[Any], bool], *, loader: type) -> None:
    """Raise an error for options of torch's DataLoader that are not supported.

    Values that would have no effect, such as `num_workers=0`, are accepted.

    Args:
        options: Options that the user passed.
        reader: The reader.
        is_own: Function that returns whether a dataset belongs to a loader over this reader.
        loader: Class of the loader, for the message about an unknown option.

    Raises:
        UnknownParameterError: The option is unknown.
        InvalidArgumentError: An option is not supported; the message names the alternative.
    """
    kept_by_the_reader = {"drop_last"} if reader.plan.request.last_batch is LastBatch.DROP else set()
    for option, value in options.items():
        if option == "in_order":
            continue  # `in_order` affects only worker processes of torch, which this loader does not have
        if option == "dataset" and is_own(value):
            continue  # Lightning passes this argument when it recreates a loader for `predict`
        if option not in _WHY_NOT:
            known = {*inspect.signature(loader).parameters, *LoaderOptions.__annotations__} - {
                "options",
                "torch_options",
            }
            advice = similar_name_advice(option, known) or ". Remove this option"
            raise UnknownParameterError(f"{loader.__name__} has no option {option!r}{advice}")
        if value and option not in kept_by_the_reader:
            raise InvalidArgumentError(f"{option} must be left out, got {value!r}: {_WHY_NOT[option]}")


def shuffle_as_a_queue_would(reader: Reader, capacity: int) -> None:
    """Make the reader shuffle rows, in place of Petastorm's shuffling queue.

    The reader mixes rows at least as well as the queue.

    Args:
        reader: Reader that was not iterated yet; a reader that already shuffles rows does not change.
        capacity: Rows of the queue; 0 means no shuffling.

    Raises:
        InvalidArgumentError: `capacity` is not a number of rows, or the reader has already returned rows.

    Warns:
        UserWarning: The reader mixes other readers, which shuffle their own rows.
    """
    if whole_number(capacity, name="shuffling_queue_capacity", least=0) == 0:
        return
    plan = reader.plan
    if not isinstance(plan, Plan):
        warnings.warn(
            f"shuffling_queue_capacity={capacity} has no effect: the readers of a mixture shuffle separately. Pass "
            "shuffle_rows=True to each reader",
            UserWarning,
            stacklevel=3,
        )
    elif not plan.request.order.shuffle_rows:
        if reader.cursor != Cursor():
            raise InvalidArgumentError(
                f"shuffling_queue_capacity must be 0 for a reader that has already returned rows, got {capacity}: "
                "another order would repeat some rows and skip others. Pass make_reader shuffle_rows=True instead"
            )
        reader.replan(with_rows_shuffled(plan), reader.cursor)


Made = TypeVar("Made", default=dict[str, Any], covariant=True)
"""Batch of a loader: a dict from column name to tensor or list, or the result of its `collate_fn`."""


class DataLoader(torch.utils.data.DataLoader[Made]):
    """A `torch.utils.data.DataLoader` that yields batches of a reader.

    A batch is a dict from column name to tensor. One `for` loop covers all epochs of the reader. The next `for` starts
    again from the first row, also after a `break`, unless `load_state_dict` was called in between. Starting a second
    loop while one is running ends the first with an `InvalidArgumentError`. Use the loader from one thread at a time.
    `isinstance(loader, torch.utils.data.DataLoader)` is true.

    The loader works with Lightning and Accelerate. Lightning calls `loader.sampler.set_epoch` before each epoch and
    stores the loader's state in its checkpoints. Accelerate's `prepare` returns the loader unchanged, because the
    loader already reads the rows of its rank, moves batches to Accelerate's device, marks the last batch for
    `accumulate`, and saves its state with `save_state`. A wrapper that would shard the rows a second time raises an
    error, and so does a shard that does not match the active `keras.distribution`.

    ```text
    column                                   in the batch
    numbers, booleans                        tensor (rows, *shape), zero-copy
    uint16, uint32                           tensor of int32, int64 (copied, as in Petastorm)
    datetime64, timedelta64                  tensor of int64 nanoseconds
    a shape with None                        list of one tensor per row, or a tensor; see `ragged`
    text, bytes, Decimal, structs            list of Python values, None where missing
    numbers with missing values              DecodeError that names the column, unless `nulls` is set
    "valid" of last_batch="pad"              bool tensor (rows,)
    ```

    Arrays that are read-only or not in native byte order are copied.

    Args:
        reader: The reader that `make_reader` or `make_batch_reader` returned. Close it yourself, or use the loader in a
            `with` block, which closes it.
        batch_size: Rows per batch on this rank. The reader's `last_batch` decides the size of an epoch's last batch.
        collate_fn: Function that turns a list of rows into a batch. Each row is a dict from column name to NumPy value
            (None if missing; types as in the table). None converts whole columns to tensors, which is many times
            faster. `decimal_friendly_collate` has the same effect as None.
        shuffling_queue_capacity: For programs written for Petastorm: any number above 0 shuffles rows, like
            `shuffle_rows=True` of `make_reader`, with the seed and buffer size of the reader.
        ragged: Type of ragged columns (numbers and times whose shape has None) in a batch: one value for all columns,
            or a dict from column name to value. `"list"`: a list of tensors. `"dense"`: one tensor (rows, *shape); a
            batch with different shapes is an error. `"auto"` (the default): a list; but a list column of plain Parquet
            is dense in all batches if the lengths of its first rows (up to 1,024) are equal. `"padded"`:
            one tensor, padded with zeros (or with v for `Padded(v)`), and an int64 column `<name>_lengths` with the
            lengths before padding: (rows,) with one variable dimension, else (rows, variable dimensions). `"nested"`: a
            `torch.nested` tensor, in the jagged layout with one variable dimension, else in the strided layout, which
            torch calls a prototype. With `"dense"`, `"padded"` and `"nested"`, missing values raise an error, unless
            `nulls` replaces them.
        nulls: Treatment of missing values. `"error"` (the default) raises `DecodeError` for missing numbers and times;
            text and ragged columns have None. `"mask"` replaces them by 0, an empty string or an empty array, and adds
            a bool column `<name>_valid` (rows,), True where a value is present. Any other value is a fill value; wrap
            text in `Fill("text")`. Pass one value for all nullable columns, or a dict by column name; columns that are
            not named get `"error"`. Windows have a mask per row of the window: (rows, length).
        device: Device of the tensors: `"cuda"`, a `torch.device`, or the number of a CUDA device. While the model
            trains on the current batch, the next batch is copied to the device from pinned memory on a separate CUDA
            stream, so the device holds two batches. Use a batch on the CUDA stream that was current when you received
            it. Lists and text stay on the host. `"cpu"` takes the same code path without streams, for tests. None
            leaves tensors in the reader's memory (zero-copy).
        pin_memory: Whether to copy tensors to pinned memory with torch's own code. No effect with `device`, which uses
            pinned memory anyway.
        **torch_options: Other options of torch's DataLoader. Their neutral values are accepted, such as `num_workers=0`
            and `shuffle=False`, so that existing calls work. Other values raise an error.

    Raises:
        InvalidArgumentError: An option is not supported; the message names the alternative.

    Example:
        >>> import numpy as np, petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("xy", "float32", (2,))])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"xy": np.full(2, i, "float32")} for i in range(5)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     loader = DataLoader(reader, batch_size=3)
        ...     print(len(loader), [batch["xy"].shape for batch in loader])
        2 [torch.Size([3, 2]), torch.Size([2, 2])]
    """

    def __init__(
        self,
        reader: Reader,
        batch_size: int = 1,
        collate_fn: Callable[[list[dict[str, Any]]], Made] | None = None,
        shuffling_queue_capacity: int = 0,
        *,
        ragged: TorchForm | Mapping[str, TorchForm] = "auto",
        nulls: Nulls = "error",
        device: torch.device | str | int | None = None,
        pin_memory: bool = False,
        **torch_options: Unpack[TorchOptions],
    ) -> None:
        refuse_no_reader(reader)
        whole_number(batch_size, name="batch_size", least=1)
        if collate_fn is not None and not callable(collate_fn):
            raise InvalidArgumentError(f"collate_fn must be callable or None, got {collate_fn!r:.100}")
        refuse_options(
            torch_options,
            reader,
            lambda dataset: isinstance(dataset, _Rows) and dataset.is_of(reader),
            loader=type(self),
        )
        self.device = device_of(device)
        """Device of the tensors; None leaves them in the reader's memory."""
        self.ragged, self.nulls = ragged, nulls  # code that recreates a loader looks for these attributes
        shuffle_as_a_queue_would(reader, shuffling_queue_capacity)
        self.reader = reader
        tracker = EpochTracker(reader)
        super().__init__(
            _Rows(reader, tracker, int(batch_size)),
            batch_size=int(batch_size),
            collate_fn=decimal_friendly_collate if collate_fn is None else collate_fn,
            pin_memory=pin_memory,
            drop_last=reader.plan.request.last_batch is LastBatch.DROP,
        )
        # torch gives loaders of iterable datasets a sampler without `set_epoch`, and rejects the argument `sampler`.
        vars(self)["sampler"] = _EpochSampler(tracker)
        whole_columns = collate_fn is None or collate_fn is decimal_friendly_collate
        plans = torch_plans(reader, ragged, nulls, is_checked=whole_columns)
        if not whole_columns:
            refuse_forms_of_rows(
                plans, "this argument applies to batches, but collate_fn receives single rows. Remove one of the two"
            )
        make: Callable[[Any], Any] = BatchTensors(plans) if whole_columns else self._collated_rows
        self._tracker, self._make = tracker, timed(make, reader, "assembly")
        self._carrier = None if self.device is None else Carrier(self.device)
        self._ranks_known = ranks_known()
        self._is_accelerated = False

    def __len__(self) -> int:
        """Return the number of batches of the current `for` loop, or of the next one.

        The number is the same on every rank. A loop covers all epochs of the reader; after `load_state_dict`, it has
        the remaining batches. Lightning counts a resumed epoch from its first batch, so it always gets the length of a
        whole loop.

        Raises:
            TypeError: The reader is endless.
        """
        size = int(self.batch_size or 1)
        whole = self.reader.steps_per_epoch(size) * epochs_of(self.reader.num_epochs)
        return whole if is_called_by_lightning() else self._tracker.steps(size) or 0

    def __repr__(self) -> str:
        return f"DataLoader({self.reader!r}, batch_size={self.batch_size})"

    def __iter__(self) -> Iterator[Made]:  # type: ignore[override]
        # Tools that time loaders, such as TraceML, replace `__iter__` of torch's class. It calls `_get_iterator`.
        return super().__iter__()

    def _get_iterator(self) -> Any:
        warn_of_ranks_since(self._ranks_known, self.reader.plan.request.shard)
        refuse_other_shards(self.reader, self.batch_size)
        batches: Iterator[Made] = self._batches_of_a_pass()
        if self._is_accelerated:
            batches = noted_by_accelerate(batches, lambda: self._tracker.is_over)
        return RaisesAfterErrors(batches, next_in_profile)

    def _batches_of_a_pass(self) -> Iterator[Made]:
        batch_size = int(self.batch_size or 1)
        carrier, make = self._carrier, self._make
        if carrier is not None:
            carried = timed(carrier.begin, self.reader, "copy")
            return self._tracker.start_ahead(batch_size, lambda batch: carried(make(batch)))
        if self.pin_memory:
            return iter(self._pinned(batch_size))
        # Does not use torch's own loop, which has no effect here, but makes batches a third slower.
        return map(make, self._tracker.start(batch_size))

    def _pinned(self, batch_size: int) -> torch.utils.data.DataLoader[Any]:
        """Return a torch DataLoader that only copies converted batches to pinned memory."""
        batches = _Batches(self._tracker, batch_size)
        return torch.utils.data.DataLoader(batches, batch_size=None, collate_fn=self._make, pin_memory=True)

    def diagnosis(self) -> Diagnosis:
        """Return whether the input is the bottleneck, in which stage, and what to change.

        Print the result. It is like `Reader.diagnosis`, but also includes the time of the training thread for tensors,
        `collate_fn` and the copy to `device`. With CUDA, this is the copy into pinned memory; the copy from pinned
        memory to the device overlaps with training.
        """
        return self.reader.diagnosis()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next `for` loop.

        After `load_state_dict`, the loop resumes from the state instead. Calling `set_epoch` is optional, because the
        epoch increases from loop to loop. Trainers such as Lightning call it. Call it yourself to begin at a later
        epoch without a state. Every rank must pass the same number.

        A loaded state takes precedence over `epoch`. The first `epoch` after `load_state_dict` should be the epoch of
        the state. It may also be 0, if the caller counts from 0 after loading, as Lightning's Fabric does; 1 then means
        the epoch after the epoch of the state. Any other number gives a warning when the loop begins. An `epoch` above
        0 is used as it is if the state was saved before the first batch of a loop.

        Raises:
            InvalidArgumentError: The reader has `num_epochs` above 1, so that a loop has several epochs; or `epoch` is
                not an int of at least 0.
        """
        self._tracker.set_epoch(epoch)

    use_stateful_dataloader = True
    """Whether Accelerate's `save_state` and `load_state` include the state of this loader."""

    @property
    def _is_accelerate_prepared(self) -> bool:
        """True, so that Accelerate's `prepare` returns the loader itself.

        The loader already yields the rows of its rank. Reading this attribute also sets `device` to Accelerate's CUDA
        device, if `device` is None.

        Raises:
            InvalidArgumentError: Accelerate has several processes, and the reader is not sharded.
        """
        refuse_an_unsharded_loader(self.reader.plan.request.shard)
        self._is_accelerated = True
        device = device_of_accelerate()
        if self.device is None and device is not None:
            self.device, self._carrier = device, Carrier(device)
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, is_prepared: bool) -> None:
        self._is_accelerated = is_prepared

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last yielded batch, as a small JSON dict.

        The dict is the same on every rank.
        """
        return self._tracker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of `state_dict`.

        The next `for` loop yields the remaining batches of the saved loop.

        Raises:
            InvalidArgumentError: The state was saved with another dataset or row order; the message names the
                difference.
        """
        self.reader.load_state_dict(state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the reader, so that `with DataLoader(make_reader(…))` closes it."""
        self.reader.close()

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __reduce__(self) -> NoReturn:
        raise NotPicklableError(
            f"{self!r} cannot be pickled, because its reader has threads and open files. In hvd.elastic.TorchState, "
            "use petastore.adapters.horovod.ElasticDataLoader instead; for another process, send the arguments and "
            "make reader and loader there (petastore.adapters.torch.ReaderDataset is picklable). Its position is "
            "loader.state_dict(), a small dict"
        )

    def _collated_rows(self, batch: Any) -> Any:
        return self.collate_fn(rows_as_dicts(batch))


class _Batches(torch.utils.data.IterableDataset[Any]):
    """Iterable dataset of a reader's batches, for a torch DataLoader that pins memory."""

    def __init__(self, tracker: EpochTracker, batch_size: int) -> None:
        self._tracker = tracker
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[Any]:
        return self._tracker.start(self._batch_size)


class _Rows(torch.utils.data.IterableDataset[Any]):
    """Dataset of single rows as dicts, for code that reads `loader.dataset`."""

    def __init__(self, reader: Any, tracker: EpochTracker, batch_size: int) -> None:
        self._reader = reader
        self._tracker = tracker
        self._batch_size = batch_size

    def is_of(self, reader: Any) -> bool:
        """Return whether this dataset reads from the given reader."""
        return self._reader is reader

    def __len__(self) -> int:
        """Return the number of rows of this rank in all epochs of the reader."""
        return int(self._reader.plan.rows_per_epoch(self._batch_size)) * epochs_of(self._reader.num_epochs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return RaisesAfterErrors(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        if torch.utils.data.get_worker_info() is not None:
            raise InvalidArgumentError(f"num_workers must be left out: {WORKERS_BELONG_TO_THE_READER}")
        shard = self._reader.plan.request.shard
        if shard.count > 1:
            raise InvalidArgumentError(
                "the loader must be iterated instead of `loader.dataset`. A wrapper that iterates the dataset would "
                f"divide the rows of shard {shard.index} of {shard.count} a second time, or skip some. Iterate over "
                "the loader, resume with its load_state_dict, and read single rows from the reader"
            )
        for batch in self._tracker.start(self._batch_size):
            yield from rows_as_dicts(batch)


class _EpochSampler(torch.utils.data.Sampler[None]):
    """Sampler that selects no rows, but has `set_epoch`.

    It is `loader.sampler`, because trainers call `set_epoch` on the sampler of a loader.
    """

    def __init__(self, tracker: EpochTracker) -> None:
        self._tracker = tracker

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; see `DataLoader.set_epoch`."""
        self._tracker.set_epoch(epoch)
