"""DataLoader: a `torch.utils.data.DataLoader` whose batches are the reader's own memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypedDict, Unpack

import numpy as np
import torch
import torch.utils.data
from typing_extensions import TypeVar  # torch brings it; of Python's own, defaults came later

from petastore.adapters.asked_of_keras import refuse_what_keras_would_shard
from petastore.adapters.nulls import Nulls, nulls_of_reader
from petastore.adapters.passes import Passes
from petastore.adapters.stored_nulls import refuse_stored_nulls
from petastore.adapters.torch.accelerated import device_of_accelerate, noted_by_accelerate, refuse_an_unsharded_loader
from petastore.adapters.torch.device import Carrier, device_of
from petastore.adapters.torch.ragged import TorchForm, ragged_columns
from petastore.adapters.torch.ranks import ranks_known, warn_of_ranks_since
from petastore.adapters.torch.rows import decimal_friendly_collate, rows_as_dicts
from petastore.adapters.torch.shuffling_queue import shuffle_as_a_queue_would
from petastore.adapters.torch.tensors import BatchTensors, refuse_dtypes
from petastore.callers import is_called_by_lightning
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, NotPicklableError
from petastore.plan.request import Tail
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.reader import Reader

__all__ = ["DataLoader", "LoaderOptions", "TorchOptions", "epochs_of"]

Made = TypeVar("Made", default=dict[str, Any], covariant=True)
"""What a loader gives: column name to tensor or list, or what its `collate_fn` makes."""

_WORKERS_BELONG_TO_THE_READER: Final = (
    "the reader has its own workers, and each worker process of torch would decode every row group once more; set "
    "workers_count of make_reader instead"
)


_WHY_NOT: Final[Mapping[str, str]] = {
    "num_workers": _WORKERS_BELONG_TO_THE_READER,
    "prefetch_factor": _WORKERS_BELONG_TO_THE_READER,
    "persistent_workers": _WORKERS_BELONG_TO_THE_READER,
    "worker_init_fn": _WORKERS_BELONG_TO_THE_READER,
    "multiprocessing_context": _WORKERS_BELONG_TO_THE_READER,
    "timeout": _WORKERS_BELONG_TO_THE_READER,
    "shuffle": "the order belongs to the reader; ask make_reader for shuffle_rows=True",
    "generator": "the order belongs to the reader; give make_reader a seed",
    "sampler": "rows are chosen by the reader; use cur_shard and shard_count of make_reader",
    "batch_sampler": "rows are chosen by the reader; use cur_shard and shard_count of make_reader",
    "drop_last": "the last batch belongs to the reader, which keeps all ranks equal; "
    "ask make_reader for last_batch='drop'",
    "pin_memory_device": "torch pins for its current accelerator",
    "dataset": "the reader is the dataset",
}
"""Options of torch's DataLoader that have no meaning here, and what to do instead."""


class TorchOptions(TypedDict, total=False):
    """Options of torch's DataLoader that a call may have at their neutral values."""

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
    """Options of `DataLoader` that loaders like it have, too."""

    ragged: TorchForm | Mapping[str, TorchForm]
    nulls: Nulls
    device: torch.device | str | int | None
    pin_memory: bool


class DataLoader(torch.utils.data.DataLoader[Made]):
    """Batches of a reader as dicts from column name to tensor.

    A real `torch.utils.data.DataLoader`, for code that asks. One `for` gives all epochs of the reader; the next `for`
    starts again from the first row, also after a `break`, unless `load_state_dict` came in between. Two loops at once
    over one loader end the older one with a `InvalidArgumentError`. Use it from one thread at a time.

    Trainers may drive it. Lightning calls `loader.sampler.set_epoch` before each epoch, and keeps the loader's state in
    its checkpoints. Accelerate's `prepare` leaves it as it is: it has the rows of its rank already, gives batches on
    the device where Accelerate has one, says when `accumulate` is to step with the last batch, and its state is in
    `save_state`. What would deal out the rows of a shard once more is refused, as are parts that do not go with a
    `keras.distribution` that is set.

    ```text
    column                                   in the batch
    numbers, booleans                        tensor (rows, *shape) sharing memory with the reader's array
    uint16, uint32                           int32, int64 (a copy; as Petastorm did)
    datetime64, timedelta64                  int64 nanoseconds
    a shape with None                        list of tensors, one a row, or a tensor; see `ragged`
    text, bytes, Decimal, structs            list of Python values, None where missing
    numbers with missing values              DecodeError that names the column; or see `nulls`
    "valid" of last_batch="pad"                    bool tensor (rows,)
    ```

    A column whose array is read-only or not in native byte order is copied.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave. The caller stops it, or a `with` block over the loader
            does at its end.
        batch_size: Rows of a batch on this rank. The last batch of an epoch may differ: the reader's `last_batch` says
            how.
        collate_fn: Makes a batch from a list of rows, each a dict from column name to NumPy value (None where
            missing; types as in the table). Rows are made for this only; None takes whole columns, which is many
            times faster. `decimal_friendly_collate` means None.
        shuffling_queue_capacity: Petastorm's shuffling queue: above 0, the reader shuffles its rows, as
            `shuffle_rows=True` of `make_reader` does, by its seed and in memory of its own choice.
        ragged: What becomes of shapes with None, as one form for all such columns of numbers and times, or a dict from
            column name to form. `"list"`: a list of tensors. `"dense"`: one tensor (rows, *shape); batches whose cells
            differ in shape are an error. `"auto"`: a list; but of lists without a codec, as plain Parquet has them,
            dense where the first 1,024 rows of the dataset have one length, in all batches. `"padded"`: one tensor,
            filled up with zeros (`Padded(v)`: with v), and a column `<name>_lengths` of int64 that says how much of
            each row is real: (rows,) where one dimension is free, else (rows, free dimensions). `"nested"`: a
            `torch.nested` tensor, of the jagged layout where one dimension is free, else of the strided one, which
            torch calls a prototype. Dense, padded and nested ones refuse missing values, unless `nulls` puts something
            there.
        nulls: What stands where a value is missing: `"error"` refuses it in columns of numbers and times, naming the
            column (text and arrays in lists have None); `"mask"` puts 0, an empty text or an empty array there, and
            adds a column `<name>_valid`, a bool tensor (rows,), True where a value is there; a value stands there
            itself, text as `Fill(text)`. One of them for all nullable columns, or a dict by column name, where what is
            not named is `"error"`. In windows each row of a window is asked for itself: (rows, length).
        device: Where tensors arrive: `"cuda"`, a `torch.device`, or a number of a CUDA device. The next batch is copied
            there, from page-locked memory and on a stream of its own, while the current one trains; use a batch on the
            stream that was current when it was received. Lists and text stay on the host. A second batch is kept in the
            device's memory. `"cpu"` does the same without streams, for tests. None leaves tensors in the reader's
            memory.
        pin_memory: Copy tensors to page-locked memory, by torch's own code. Of no effect where `device` is given, which
            pins what it has to.
        **torch_options: Other options of torch's DataLoader are taken at their neutral value, so that a call need not
            be edited (`num_workers=0`, `shuffle=False`), and refused at any other.

    Raises:
        InvalidArgumentError: An option cannot be honoured; the message says what to use instead.

    Example:
        >>> import petastore, tempfile
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
        _refuse_no_reader(reader)
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise InvalidArgumentError(f"batch_size is a number of rows from 1, but {batch_size!r} was given")
        _refuse_options(torch_options, reader)
        self.device = device_of(device)
        """Where tensors arrive; None is the reader's memory."""
        self.ragged, self.nulls = ragged, nulls  # who makes a loader like this one anew looks for them
        refuse_dtypes(reader)
        shuffle_as_a_queue_would(reader, shuffling_queue_capacity)
        self.reader = reader
        passes = Passes(reader)
        super().__init__(
            _Rows(reader, passes, int(batch_size)),
            batch_size=int(batch_size),
            collate_fn=decimal_friendly_collate if collate_fn is None else collate_fn,
            pin_memory=pin_memory,
            drop_last=reader.plan.request.last_batch is Tail.DROP,
        )
        # torch gives loaders of iterable datasets a sampler of its own, and lets nobody else's in.
        vars(self)["sampler"] = _ToldEpochs(passes)
        whole_columns = collate_fn is None or collate_fn is decimal_friendly_collate
        forms = ragged_columns(reader, ragged)
        if any(form.is_asked_for for form in forms.values()) and not whole_columns:
            raise InvalidArgumentError(
                "ragged= is about whole columns, and a collate_fn gets rows; leave one of them out"
            )
        filled = nulls_of_reader(nulls, reader)
        if filled and not whole_columns:
            raise InvalidArgumentError(
                "nulls= is about whole columns, and a collate_fn gets rows; leave one of them out"
            )
        if whole_columns:
            refuse_stored_nulls(reader, filled)
        make: Callable[[Any], Any] = BatchTensors(forms, filled) if whole_columns else self._collated_rows
        self._passes, self._make = passes, make
        self._carrier = None if self.device is None else Carrier(self.device)
        self._ranks_known = ranks_known()
        self._is_accelerated = False

    def __len__(self) -> int:
        """Return the number of batches of the `for` under way, or of the next one; the same on every rank.

        A `for` gives all epochs; after `load_state_dict`, the batches that are left. Lightning always gets the length
        of a whole `for`: it counts a resumed epoch from its first batch.

        Raises:
            TypeError: The reader is endless.
        """
        size = int(self.batch_size or 1)
        whole = self.reader.steps_per_epoch(size) * epochs_of(self.reader.num_epochs)
        return whole if is_called_by_lightning() else self._passes.steps(size) or 0

    def __repr__(self) -> str:
        return f"DataLoader({self.reader!r}, batch_size={self.batch_size})"

    def __iter__(self) -> Iterator[Made]:  # type: ignore[override]
        warn_of_ranks_since(self._ranks_known, self.reader.plan.request.shard)
        refuse_what_keras_would_shard(self.reader, self.batch_size)
        batches = self._batches_of_a_pass()
        if self._is_accelerated:
            batches = noted_by_accelerate(batches, lambda: self._passes.is_over)
        return RaisesAfterErrors(batches)

    def _batches_of_a_pass(self) -> Iterator[Made]:
        batch_size = int(self.batch_size or 1)
        carrier, make = self._carrier, self._make
        if carrier is not None:
            return self._passes.start_ahead(batch_size, lambda batch: carrier.begin(make(batch)).arrive)
        if self.pin_memory:
            return iter(self._pinned(batch_size))
        # torch's own loop would cost a third as much again as making the tensors, and there is nothing left for it.
        return map(make, self._passes.start(batch_size))

    def _pinned(self, batch_size: int) -> torch.utils.data.DataLoader[Any]:
        """A loader of torch that does nothing but pin."""
        batches = _Batches(self._passes, batch_size)
        return torch.utils.data.DataLoader(batches, batch_size=None, collate_fn=self._make, pin_memory=True)

    def set_epoch(self, epoch: int) -> None:
        """The next `for` begins with this epoch, or goes on where a state was loaded.

        There is no need to call it: epochs count on through the loops. It is what trainers call that count epochs
        themselves, and for beginning with a later epoch without a state. Every rank calls it alike.

        A state that was loaded is never dropped for a number. Its own epoch is what fits; 0 means that the caller
        counts from 0 since the state was loaded, as Lightning's Fabric does: 1 is then the epoch after that of the
        state. Any other number is taken in this way, too, with a warning when the `for` begins.

        Raises:
            InvalidArgumentError: The reader gives several epochs in one `for`, which the caller would take for one; or
                it is no number of an epoch.
        """
        self._passes.set_epoch(epoch)

    use_stateful_dataloader = True
    """That Accelerate's `save_state` and `load_state` keep the state of this loader, too."""

    @property
    def _is_accelerate_prepared(self) -> bool:
        """What Accelerate's `prepare` asks: this loader has the rows of its rank, and nobody is to pick from them.

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
        """Where training stands: after the last batch that was handed out. Small, JSON, and the same on every rank."""
        return self._passes.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next `for` goes on where `state_dict` was called, and ends where that one would have ended.

        Raises:
            InvalidArgumentError: The state belongs to other data or another order; the message names the difference.
        """
        self.reader.load_state_dict(state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the reader, so that `with DataLoader(make_reader(…)) as loader:` needs no second block."""
        self.reader.stop()
        self.reader.join()

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __reduce__(self) -> NoReturn:
        raise NotPicklableError(
            f"{self!r} has a reader with threads and open files, and cannot be pickled: in hvd.elastic.TorchState put "
            "petastore.adapters.horovod.ElasticDataLoader in its place; to another process send the arguments, and "
            "make reader and loader there (petastore.adapters.torch.ReaderDataset is a dataset that travels). Its "
            "place is loader.state_dict(), a small dict"
        )

    def _collated_rows(self, batch: Any) -> Any:
        return self.collate_fn(rows_as_dicts(batch))


class _Batches(torch.utils.data.IterableDataset[Any]):
    """The reader's batches, for torch's DataLoader to fetch."""

    def __init__(self, passes: Passes, batch_size: int) -> None:
        self._passes = passes
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[Any]:
        return self._passes.start(self._batch_size)


class _Rows(torch.utils.data.IterableDataset[Any]):
    """`loader.dataset`: the rows of a pass as dicts, and how many there are."""

    def __init__(self, reader: Any, passes: Passes, batch_size: int) -> None:
        self._reader = reader
        self._passes = passes
        self._batch_size = batch_size

    def is_of(self, reader: Any) -> bool:
        """Whether these are the rows of this reader."""
        return self._reader is reader

    def __len__(self) -> int:
        """Rows of one pass, all epochs, on this rank."""
        return int(self._reader.plan.rows_per_epoch(self._batch_size)) * epochs_of(self._reader.num_epochs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return RaisesAfterErrors(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        if torch.utils.data.get_worker_info() is not None:
            raise InvalidArgumentError(f"num_workers is not 0: {_WORKERS_BELONG_TO_THE_READER}")
        shard = self._reader.plan.request.shard
        if shard.count > 1:
            raise InvalidArgumentError(
                f"somebody iterates `loader.dataset`, rows of shard {shard.index} of {shard.count}, in the loader's "
                "place, as one does who deals them out among ranks once more, or skips some. Iterate the loader "
                "itself, go on by its load_state_dict, and take rows from the reader"
            )
        for batch in self._passes.start(self._batch_size):
            yield from rows_as_dicts(batch)


class _ToldEpochs(torch.utils.data.Sampler[None]):
    """`loader.sampler`: samples nothing, but trainers tell epochs to a loader's sampler."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)

    def set_epoch(self, epoch: int) -> None:
        """As `DataLoader.set_epoch`."""
        self._passes.set_epoch(epoch)


def epochs_of(num_epochs: int | None) -> int:
    """Epochs of one pass, or TypeError where there is no end to them."""
    if num_epochs is None:
        raise TypeError("a reader with num_epochs=None is endless and has no length; count steps yourself")
    return int(num_epochs)


def _refuse_no_reader(reader: Any) -> None:
    if isinstance(reader, (str, os.PathLike, list, Dataset)):
        where = repr(reader) if isinstance(reader, str) else "url"
        raise InvalidArgumentError(
            f"a loader takes an open reader, but a {type(reader).__name__} was given: write "
            f"DataLoader(petastore.make_reader({where}), batch_size=…)"
        )


def _refuse_options(options: TorchOptions, reader: Reader) -> None:
    kept_by_the_reader = {"drop_last"} if reader.plan.request.last_batch is Tail.DROP else set()
    for option, value in options.items():
        if option == "in_order":
            continue  # it lets torch's worker processes overtake each other, and there are none
        if option == "dataset" and isinstance(value, _Rows) and value.is_of(reader):
            continue  # from who makes a loader like this one anew, as Lightning does for `predict`
        if option not in _WHY_NOT:
            raise TypeError(f"DataLoader has no option {option!r}")
        if value and option not in kept_by_the_reader:
            raise InvalidArgumentError(f"{option}={value!r} cannot be: {_WHY_NOT[option]}")
