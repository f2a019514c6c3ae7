"""PyTorch: a `torch.utils.data.DataLoader` whose batches are the reader's own memory.

A reader has its pool of workers already, so nothing is collated row by row and nothing crosses a process border: a
batch of columns becomes a dict of tensors that share memory with its NumPy arrays. That is `DataLoader`, to be tried
first.

For torch's own DataLoader, with its own worker processes, there are `ReaderDataset`, whose workers read row groups of
their own, and `MapDataset`, rows by number for any sampler; `BlockSampler` is the one that is kind to row groups.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from petastore.adapters.columns import missing_rows, nanoseconds, present
from petastore.adapters.passes import Passes
from petastore.dataset import Dataset, open_dataset
from petastore.errors import MissingExtraError, RequestError
from petastore.plan.cursor import Cursor
from petastore.plan.lanes import DEFAULT_SHUFFLE_MEMORY
from petastore.plan.numbers import numbered_batches, plan_of_numbers
from petastore.plan.plan import Plan
from petastore.plan.request import Shard, Tail, whole_number
from petastore.plan.selection import Selection
from petastore.plan.state import dump_state
from petastore.plan.worker_state import dump_place, resume_place
from petastore.plan.workers import WorkerPlan, with_lanes_for_workers
from petastore.readers.options import Workers
from petastore.readers.pools.thread import available_cpus
from petastore.readers.random_access import DEFAULT_CACHE_BYTES, RandomAccess
from petastore.readers.reader import Reader
from petastore.readers.recent_row_groups import CacheInfo
from petastore.readers.reopen import reopened
from petastore.readers.transform import TransformSpec
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema

try:
    import torch
    import torch.utils.data
except ImportError:
    raise MissingExtraError("petastore.adapters.torch", package="torch", extra="torch") from None

__all__ = ["BlockSampler", "DataLoader", "MapDataset", "ReaderDataset", "decimal_friendly_collate"]

_PROMOTED: Final[dict[np.dtype[Any], np.dtype[Any]]] = {
    np.dtype(np.uint16): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int64),
}

_WORKERS_BELONG_TO_THE_READER: Final = (
    "the reader has its own workers, and each worker process of torch would decode every row group once more; set "
    "workers_count of make_reader instead"
)
_WHY_NOT: Final = {
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
    "drop_last": "the last batch belongs to the reader, which keeps all ranks equal; ask make_reader for tail='drop'",
    "pin_memory_device": "torch pins for its current accelerator",
}
"""Options of torch's DataLoader that have no meaning here, and what to do instead."""


class DataLoader(torch.utils.data.DataLoader[Any]):
    """Batches of a reader as dicts from column name to tensor.

    A real `torch.utils.data.DataLoader`, for code that asks. One `for` gives all epochs of the reader; the next `for`
    starts again from the first row, also after a `break`, unless `load_state_dict` came in between. Two loops at once
    over one loader end the older one with a `RequestError`. Use it from one thread at a time.

    ```text
    column                                   in the batch
    numbers, booleans                        tensor (rows, *shape) sharing memory with the reader's array
    uint16, uint32                           int32, int64 (a copy; as Petastorm did)
    datetime64, timedelta64                  int64 nanoseconds
    a shape with None                        list of tensors, one a row
    text, bytes, Decimal, structs            list of Python values, None where missing
    numbers with missing values              DecodeError that names the column
    "valid" of tail="pad"                    bool tensor (rows,)
    ```

    A column whose array is read-only or not in native byte order is copied.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave. The caller stops it; the loader never does.
        batch_size: Rows of a batch on this rank. The last batch of an epoch may differ: the reader's `tail` says how.
        collate_fn: Makes a batch from a list of rows, each a dict from column name to NumPy value (None where
            missing; types as in the table). Rows are made for this only; None takes whole columns, which is many
            times faster. `decimal_friendly_collate` means None.
        shuffling_queue_capacity: Petastorm's shuffling queue. Accepted, and does nothing: ask the reader for
            `shuffle_rows=True`.
        pin_memory: Copy tensors to page-locked memory, by torch's own code.
        **torch_options: Other options of torch's DataLoader are taken at their neutral value, so that a call need not
            be edited (`num_workers=0`, `shuffle=False`), and refused at any other.

    Raises:
        RequestError: An option cannot be honoured; the message says what to use instead.

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
        reader: Any,
        batch_size: int = 1,
        collate_fn: Callable[[list[dict[str, Any]]], Any] | None = None,
        shuffling_queue_capacity: int = 0,
        *,
        pin_memory: bool = False,
        **torch_options: Any,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise RequestError(f"batch_size is a number of rows from 1, but {batch_size!r} was given")
        _refuse_options(torch_options, reader)
        _refuse_dtypes(reader)
        if shuffling_queue_capacity:
            warnings.warn(
                f"shuffling_queue_capacity={shuffling_queue_capacity} does nothing: a reader shuffles by itself; ask "
                "make_reader for shuffle_rows=True",
                UserWarning,
                stacklevel=2,
            )
        self.reader = reader
        passes = Passes(reader)
        super().__init__(
            _Rows(reader, passes, int(batch_size)),
            batch_size=int(batch_size),
            collate_fn=decimal_friendly_collate if collate_fn is None else collate_fn,
            pin_memory=pin_memory,
            drop_last=reader.plan.request.tail is Tail.DROP,
        )
        whole_columns = collate_fn is None or collate_fn is decimal_friendly_collate
        # torch fetches, collates and pins; it is told not to batch, because a reader's batches are ready.
        self._batch_loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
            _Batches(passes, int(batch_size)),
            batch_size=None,
            collate_fn=_tensors if whole_columns else self._collated_rows,
            pin_memory=pin_memory,
        )

    def __len__(self) -> int:
        """Batches of one whole `for`, all epochs, on this rank; the same on every rank.

        Raises:
            TypeError: The reader is endless.
        """
        return int(self.reader.steps_per_epoch(self.batch_size)) * _epochs(self.reader.num_epochs)

    def __iter__(self) -> Any:
        return iter(self._batch_loader)

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: after the last batch that was handed out. Small, JSON, and the same on every rank."""
        state: dict[str, Any] = self.reader.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next `for` goes on where `state_dict` was called, and ends where that one would have ended.

        Raises:
            RequestError: The state belongs to other data or another order; the message names the difference.
        """
        self.reader.load_state_dict(state)

    def _collated_rows(self, batch: Any) -> Any:
        return self.collate_fn(_rows(batch))


def decimal_friendly_collate(batch: Sequence[Any]) -> Any:
    """One batch from a list of rows: Petastorm's collate function.

    Text, bytes and `Decimal` stay lists; dicts are collated key by key; everything else is what
    `torch.utils.data.default_collate` makes of it. Arrays whose shapes differ become a list of tensors. The rows that
    a `MapDataset` decoded together are handed over as the columns that they are, as `DataLoader` has them.

    Args:
        batch: Rows, each a dict from column name to value; or the values of one column. Not empty.

    Raises:
        DecodeError: A value is None.

    Example:
        >>> rows = [{"id": np.int32(1), "price": Decimal("1.50")}, {"id": np.int32(2), "price": Decimal("2")}]
        >>> decimal_friendly_collate(rows)
        {'id': tensor([1, 2], dtype=torch.int32), 'price': [Decimal('1.50'), Decimal('2')]}
    """
    if isinstance(batch, _DecodedRows):
        return batch.tensors()
    first = batch[0]
    if isinstance(first, Mapping):
        return {key: _collated_column(key, [row[key] for row in batch]) for key in first}
    if isinstance(first, (str, bytes, Decimal, list)):
        return list(batch)
    if isinstance(first, (np.ndarray, torch.Tensor)) and len({value.shape for value in batch}) > 1:
        return [torch.as_tensor(value) for value in batch]
    return torch.utils.data.default_collate(list(batch))


def _collated_column(key: Any, values: list[Any]) -> Any:
    if any(value is None for value in values):
        present(str(key), np.array([value is not None or None for value in values], dtype=object))
    return decimal_friendly_collate(values)


class MapDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Rows by number, so that any sampler of torch works: a map-style dataset over Parquet.

    Row i is the i-th row of an unshuffled reader (files sorted by path), as a dict from column name to a tensor, or to
    the Python value where no tensor can be: as the table of `DataLoader` says, and None where a value is missing.
    `torch.utils.data.default_collate` makes batches of it where all tensors of a column are of one shape and there is
    no text missing; `decimal_friendly_collate` makes the batches that `DataLoader` makes, and copies nothing.

    Parquet is read by row groups. Each process keeps those that it used last, encoded, up to `cache_bytes`; with a
    sampler that jumps all over a dataset that is larger, nearly every row costs the reading of a row group. Give the
    sampler's order a `BlockSampler`, or read in the reader's order: that is what `DataLoader` and `ReaderDataset` are
    for.

    Thread-safe. Pickles, and may be inherited by forked workers: each of them opens files and keeps row groups by
    itself, and nothing is started here.

    Args:
        dataset: What `petastore.open_dataset` gave, or a URL or list of URLs to open.
        schema_fields: Names, regular expressions over whole names, or fields; None is all.
        cache_bytes: Bytes of row groups, as they are stored, that a process keeps; the one that was read last is kept
            whatever its size.
        transform_spec: A function from a row, as a dict of NumPy values, to a row; it runs each time that a row is
            asked for.
        selection: Which rows, from `petastore.select_rows`; they are numbered among themselves.
        storage_options: Passed to the fsspec filesystem of the URL's scheme.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Raises:
        RequestError: Something that was asked for cannot be.
        DatasetNotFoundError: There is no dataset there.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("xy", "float32", (2,))])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"xy": np.full(2, i, "float32")} for i in range(5)])
        >>> points = MapDataset(url)
        >>> len(points), points[-1]
        (5, {'xy': tensor([4., 4.])})
        >>> loader = torch.utils.data.DataLoader(points, batch_size=3, shuffle=True)
        >>> [batch["xy"].shape for batch in loader]
        [torch.Size([3, 2]), torch.Size([2, 2])]
    """

    def __init__(
        self,
        dataset: Dataset | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        schema_fields: Iterable[str | UnischemaField] | None = None,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        transform_spec: TransformSpec | None = None,
        selection: Selection | None = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
    ) -> None:
        self.rows = RandomAccess(
            _opened(dataset, storage_options, filesystem),
            schema_fields,
            cache_bytes=cache_bytes,
            transform=transform_spec,
            selection=selection,
        )
        """The rows as NumPy arrays: `rows.take([3, 1])`."""
        _refuse_dtypes(self)

    @property
    def schema(self) -> Unischema:
        """The fields of a row, after selection and transform."""
        return self.rows.schema

    def __len__(self) -> int:
        """Rows."""
        return len(self.rows)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """One row; negative numbers count from the end.

        Raises:
            IndexError: There is no such row.
            DecodeError: A cell is not what its field declares; column, file, row group and row are named.
        """
        row: dict[str, Any] = self.__getitems__([index])[0]
        return row

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> Sequence[dict[str, Any]]:
        """Many rows in the order asked for, decoded together; torch's DataLoader asks for a batch so.

        Each row group is read at most once a call. The rows share memory with each other; they are made when somebody
        looks at them.
        """
        numbers = np.fromiter((_whole_index(index) for index in indices), dtype=np.int64, count=len(indices))
        return _DecodedRows(self.rows.take(numbers), len(numbers))

    def cache_info(self) -> CacheInfo:
        """What the cache of this process has done so far: row groups read, and found at hand."""
        return self.rows.cache_info()

    def __repr__(self) -> str:
        return f"MapDataset({self.rows.dataset.url!r}, {len(self):,} rows, {len(self.schema)} columns)"


class BlockSampler(torch.utils.data.Sampler[Any]):
    """An order over the rows of a `MapDataset` that is kind to row groups: petastore's own, as row numbers.

    Rows are shuffled well, from as many row groups at a time as half the dataset's `cache_bytes` holds, and each row
    group is read about once an epoch. Ranks get exact shards of one order.

    With a `batch_size` it is a *batch sampler*: `DataLoader(dataset, batch_sampler=BlockSampler(dataset, batch_size=64,
    num_workers=4), num_workers=4)`. That is the way to go where there are worker processes or ranks, since only then
    can each worker have row groups of its own (torch deals batches to workers in turns, and every worker has a cache of
    its own) and each rank the same number of batches. Without one it gives single rows, as a `sampler=`.

    Each pass has another order: epoch 0, 1, 2, … A pass that was left early is not gone on with, but by
    `load_state_dict`.

    Args:
        dataset: What is sampled.
        batch_size: Rows of a batch on this rank; None gives rows one by one.
        num_workers: Worker processes of the DataLoader, which take turns; needs `batch_size`.
        shuffle: Whether rows are shuffled, or come in file order, one contiguous part for each rank and worker.
        seed: Any integer, the same on every rank.
        num_replicas: Ranks; None asks torch.distributed, and is 1 where nothing speaks of ranks.
        rank: This rank; None asks torch.distributed.
        tail: What becomes of the rows that fill no whole batch on every rank: `"even"` (each row once), `"drop"`, or
            `"wrap"` (some rows twice).
        shuffle_memory: Bytes of row groups that the order is made for, over all ranks and workers; None is half of what
            the workers of this rank keep.

    Raises:
        RequestError: Something that was asked for cannot be; or single rows of several ranks cannot be shared equally.
        NoDataAvailableError: `tail="even"` with fewer rows than ranks.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("id", "int32")])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(10)], rows_per_row_group=2)
        >>> points = MapDataset(url)
        >>> sampler = BlockSampler(points, batch_size=4)
        >>> loader = torch.utils.data.DataLoader(points, batch_sampler=sampler)
        >>> len(loader), sorted(i for batch in loader for i in batch["id"].tolist())
        (3, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
        >>> points.cache_info().reads
        5
    """

    def __init__(
        self,
        dataset: MapDataset,
        *,
        batch_size: int | None = None,
        num_workers: int = 0,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        tail: str | Tail = "even",
        shuffle_memory: int | None = None,
    ) -> None:
        self.batch_size = None if batch_size is None else whole_number(batch_size, name="batch_size", least=1)
        self._size = self.batch_size or 1
        self._workers = max(whole_number(num_workers, name="num_workers", least=0), 1)
        if self.batch_size is None and num_workers:
            raise RequestError(
                "num_workers needs a batch_size: torch deals whole batches to its workers; use "
                "DataLoader(dataset, batch_sampler=BlockSampler(dataset, batch_size=…, num_workers=…))"
            )
        tail = Tail.parse(tail)
        if tail is Tail.PAD:
            raise RequestError("tail='pad' marks repeats in a column, and a sampler has none; use 'even' or 'wrap'")
        if shuffle_memory is None:
            shuffle_memory = dataset.rows.cache_bytes // 2 * self._workers
        self._plan = plan_of_numbers(
            dataset.rows.dataset.inventory,
            dataset.rows.rows,
            shuffle=shuffle,
            seed=seed,
            shard=_shard_of_this_process(num_replicas, rank),
            tail=tail,
            workers=self._workers,
            shuffle_memory=whole_number(shuffle_memory, name="shuffle_memory", least=0),
        )
        if self.batch_size is None:
            _refuse_unequal_rows(self._plan)
        self._steps = self._plan.steps_per_epoch(self._size)
        self._pass = _Pass(Cursor())

    def __len__(self) -> int:
        """Batches of an epoch on this rank, the same on every rank; rows where it gives rows."""
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        if not self._pass.is_loaded:
            # The epoch under way if nothing of it was taken, else the next one.
            self._pass = _Pass(_beginning(self._pass.begin.epoch + (self._pass.given > 0)))
        self._pass.is_loaded = False
        return self._batches(self._pass)

    def _batches(self, this_pass: _Pass) -> Iterator[Any]:
        for numbers in numbered_batches(
            self._plan, self._size, workers=self._workers, begin=this_pass.begin, given=this_pass.given
        ):
            this_pass.given += 1
            if self.batch_size is None:
                yield from numbers
            else:
                yield numbers

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch, from its first row; or from where a state was loaded, if that is in it."""
        self._pass = _loaded_in(self._pass, epoch) or _Pass(_beginning(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands, as a new dict of JSON values: after the last batch that was *taken from the sampler*.

        A DataLoader with workers takes batches ahead of training; `state_after` says where training stands, and
        torchdata's StatefulDataLoader asks at the right time by itself.
        """
        return self.state_after(self._pass.given)

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state after as many batches of the pass under way (rows, where it gives rows).

        After a multiple of `num_workers` batches, other numbers of workers and ranks and other batch sizes may go on
        from it.
        """
        batches = whole_number(batches, name="batches", least=0)
        plan = _worker_plan(self._plan, Shard(0, self._workers), self._pass.begin)
        return dump_place(plan, batches, self._size, of_all=True)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass goes on where the state was taken, and ends with that epoch.

        Raises:
            RequestError: The state is of other data, another order, or of other workers; the difference is named.
        """
        self._plan, begin, given = resume_place(
            self._plan, state, batch_size=self._size, workers=self._workers, worker=None
        )
        is_over = begin == Cursor(begin.first_epoch + 1, 0, begin.first_epoch)
        if not is_over:  # it may be of a reader, whose passes may have several epochs
            begin = dataclasses.replace(begin, first_epoch=begin.epoch)
        self._pass = _Pass(begin, given, is_loaded=True)


class ReaderDataset(torch.utils.data.IterableDataset[Any]):
    """A reader for torch's own DataLoader and its worker processes: each row once, each row group for one worker.

    `DataLoader(ReaderDataset(url, batch_size=64), batch_size=None, num_workers=4)`. The batches are made in the workers
    and cross in shared memory; they are those of `petastore.adapters.torch.DataLoader`. Without `batch_size` it gives
    rows, as `MapDataset` does, for torch's own batching: `DataLoader(ReaderDataset(url), batch_size=64)`; that runs
    Python for each row.

    Each worker opens its own reader, over lanes of its own; only row groups on the borders of lanes, and those at the
    end of the epoch, are read by a second one. Each rank gets the same number of batches, which does not depend on the
    number of workers; their contents do: each is made from one worker's row groups. They come in the same order each
    time, for equal arguments and equal `num_workers`.

    One `for` gives `num_epochs` epochs. Every `for` begins with the epoch that was set last by `set_epoch` (0 at
    first): the order of a second `for` is another one only if it was called, as with torch's DistributedSampler.

    It follows torchdata's protocol for StatefulDataLoader; with torch's DataLoader and several workers, see
    `state_after`.

    Args:
        dataset: What `petastore.open_dataset` gave, or a URL or list of URLs to open.
        schema_fields: Names, regular expressions over whole names, or fields; None is all.
        batch_size: Rows of a batch on this rank; None gives rows.
        workers_count: Threads of each worker process; None shares the CPUs among the workers.
        seed: As in `make_reader`.
        shuffle_rows: As in `make_reader`.
        shuffle_row_groups: As in `make_reader`.
        shuffle_memory: Bytes of stored cells that all ranks and workers together keep for `shuffle_rows`.
        lanes: Row groups that are read side by side; None is a number that ranks and workers divide. Fewer than these
            are shared, and each of them is read by several workers.
        block_rows: As in `make_reader`.
        reshuffle: As in `make_reader`.
        num_epochs: Epochs of one `for`; None is without end.
        cur_shard: This rank, from 0; give it together with `shard_count`. Workers are not ranks.
        shard_count: Ranks.
        tail: As in `make_reader`.
        transform_spec: A function from a row, as a dict, to a row. It must pickle where workers are spawned.
        selection: Which rows, from `petastore.select_rows`.
        storage_options: Passed to the fsspec filesystem of the URL's scheme.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Raises:
        RequestError: Something that was asked for cannot be; or single rows of several ranks cannot be shared equally.
        NoDataAvailableError: `tail="even"` with fewer rows than ranks.
        DatasetNotFoundError: There is no dataset there.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("id", "int32")])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(5)])
        >>> loader = torch.utils.data.DataLoader(ReaderDataset(url, batch_size=3), batch_size=None)
        >>> len(loader), [batch["id"].tolist() for batch in loader]
        (2, [[0, 1, 2], [3, 4]])
    """

    def __init__(
        self,
        dataset: Dataset | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        schema_fields: Iterable[str | UnischemaField] | None = None,
        *,
        batch_size: int | None = None,
        workers_count: int | None = None,
        seed: int | None = None,
        shuffle_rows: bool = False,
        shuffle_row_groups: bool = True,
        shuffle_memory: int = DEFAULT_SHUFFLE_MEMORY,
        lanes: int | None = None,
        block_rows: int | None = None,
        reshuffle: str = "epoch",
        num_epochs: int | None = 1,
        cur_shard: int | None = None,
        shard_count: int | None = None,
        tail: str | Tail = "even",
        transform_spec: TransformSpec | None = None,
        selection: Selection | None = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
    ) -> None:
        self.dataset = _opened(dataset, storage_options, filesystem)
        """The dataset that is read."""
        self.batch_size = None if batch_size is None else whole_number(batch_size, name="batch_size", least=1)
        self._size = self.batch_size or 1
        self._threads = Workers("thread", workers_count).count
        self._shuffle_memory = shuffle_memory
        self._transform = transform_spec
        self.plan = self.dataset.plan(
            columns=schema_fields,
            seed=seed,
            shuffle_row_groups=shuffle_row_groups,
            shuffle_rows=shuffle_rows,
            shuffle_memory=shuffle_memory,
            lanes=lanes,
            block_rows=block_rows,
            reshuffle=reshuffle,
            shard=Shard.parse(cur_shard, shard_count),
            epochs=num_epochs,
            tail=tail,
            selection=selection,
        )
        """What this rank reads, before it falls to workers."""
        if self.batch_size is None:
            _refuse_unequal_rows(self.plan)
        with self._reader(self.dataset, self.plan, threads=1) as reader:
            _refuse_dtypes(reader)
            self.schema = reader.schema
            """The fields that come out, after selection and transform."""
        self._pass: _Pass | None = None
        # Persistent workers are told by shared memory: nothing else reaches them.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def _reader(self, dataset: Dataset, plan: Plan, *, threads: int) -> Reader:
        return Reader(dataset, plan, workers=Workers("thread", threads), transform=self._transform)

    def __len__(self) -> int:
        """Batches of one whole `for`, all epochs, on this rank; rows where it gives rows.

        Raises:
            TypeError: It is endless.
        """
        each = self.plan.rows_per_epoch(1) if self.batch_size is None else self.plan.steps_per_epoch(self.batch_size)
        return each * _epochs(self.plan.request.epochs)

    def __iter__(self) -> Iterator[Any]:
        if self._pass is None or not self._pass.is_loaded:
            self._pass = _Pass(_beginning(int(self._epoch[0])))
        self._pass.is_loaded = False
        return self._stream(_this_worker(), self._pass)

    def _stream(self, worker: Shard, this_pass: _Pass) -> Iterator[Any]:
        plan = self._plan_of(worker, this_pass.begin)
        dataset = self.dataset if torch.utils.data.get_worker_info() is None else reopened(self.dataset)
        threads = self._threads or max(available_cpus() // worker.count, 1)
        with self._reader(dataset, plan, threads=threads) as reader:
            reader.load_state_dict(dump_state(plan, plan.place_after(this_pass.given, self._size)))
            for batch in reader.batches(self._size):
                this_pass.given += 1
                if self.batch_size is None:
                    yield from _DecodedRows(batch, batch.num_rows)
                else:
                    yield _tensors(batch)

    def _plan_of(self, worker: Shard, begin: Cursor) -> WorkerPlan:
        plan = with_lanes_for_workers(self.plan, worker.count, shuffle_memory=self._shuffle_memory)
        return _worker_plan(plan, worker, begin)

    def set_epoch(self, epoch: int) -> None:
        """The next `for` begins with this epoch; or where a state was loaded, if that is in this epoch.

        To be called before each `for`, on every rank alike; persistent workers are told too.
        """
        self._pass = _loaded_in(self._pass, epoch)
        self._epoch[0] = epoch

    def state_dict(self) -> dict[str, Any]:
        """Where iteration *in this process* stands, as a new dict of JSON values; for torchdata's StatefulDataLoader.

        Raises:
            RequestError: It was not iterated in this process; worker processes are asked by StatefulDataLoader alone.
        """
        if self._pass is None:
            raise RequestError(
                "this dataset was not iterated in this process, so it does not know how far its workers are; use "
                "state_after(batches, num_workers), or torchdata's StatefulDataLoader"
            )
        worker = _this_worker()
        return dump_place(self._plan_of(worker, self._pass.begin), self._pass.given, self._size, of_all=False)

    def state_after(self, batches: int, num_workers: int) -> dict[str, Any]:
        """The state after as many batches of the `for` under way, all workers together (rows, where it gives rows).

        It is the state of any reader: other numbers of workers and ranks and other batch sizes may go on from it.

        Args:
            batches: Batches that training has had since the `for` began.
            num_workers: What the DataLoader was given.

        Raises:
            RequestError: Not every worker has made as many batches; take states after a multiple of `num_workers`.
        """
        batches = whole_number(batches, name="batches", least=0)
        workers = max(whole_number(num_workers, name="num_workers", least=0), 1)
        begin = self._pass.begin if self._pass is not None else _beginning(int(self._epoch[0]))
        state = dump_place(self._plan_of(Shard(0, workers), begin), batches, self._size, of_all=True)
        if state["format"] != dump_state(self.plan, begin)["format"]:
            raise RequestError(
                f"after {batches:,} batches some of the {workers} workers have made one more than the others, and no "
                f"place in the order says that; ask after a multiple of {workers}, or at the end of the epoch"
            )
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next `for` goes on where the state was taken, and ends where that one would have ended.

        With worker processes that are not persistent, each further `for` does so too, until `set_epoch` is called.

        Raises:
            RequestError: The state is of other data, another order, or of another worker; the difference is named.
        """
        worker = _this_worker()
        plan, begin, given = resume_place(
            self.plan, state, batch_size=self._size, workers=worker.count, worker=worker.index
        )
        # The lanes of the state are the order that is gone on with, whatever the number of workers.
        request = dataclasses.replace(plan.request, chosen=plan.request.chosen - {"lanes"})
        self.plan = dataclasses.replace(plan, request=request)
        self._epoch[0] = begin.first_epoch
        self._pass = _Pass(begin, given, is_loaded=True)


@dataclasses.dataclass
class _Pass:
    """How far one iteration has come."""

    begin: Cursor
    given: int = 0
    """Batches since then: of the worker that this process is, or of all where they are made here."""
    is_loaded: bool = False
    """Whether it comes from a state, and nobody has begun to iterate it."""


def _beginning(epoch: int) -> Cursor:
    return Cursor(epoch, 0, epoch)


def _loaded_in(this_pass: _Pass | None, epoch: int) -> _Pass | None:
    """The pass if it was loaded, has not begun yet, and is the one of this epoch or stands in it; else None."""
    epoch = whole_number(epoch, name="epoch", least=0)
    if (
        this_pass is None
        or not this_pass.is_loaded
        or epoch not in (this_pass.begin.first_epoch, this_pass.begin.epoch)
    ):
        return None
    if epoch != this_pass.begin.first_epoch:
        this_pass.begin = dataclasses.replace(this_pass.begin, first_epoch=epoch)
    return this_pass


def _this_worker() -> Shard:
    info = torch.utils.data.get_worker_info()
    return Shard() if info is None else Shard(info.id, info.num_workers)


def _worker_plan(plan: Plan, worker: Shard, begin: Cursor) -> WorkerPlan:
    return WorkerPlan(plan.inventory, plan.request, plan.selection, worker=worker, begin=begin)


def _opened(dataset: Any, storage_options: Mapping[str, Any] | None, filesystem: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        return open_dataset(dataset, storage_options=storage_options, filesystem=filesystem)
    if storage_options is not None or filesystem is not None:
        raise RequestError("storage_options and filesystem belong to open_dataset, which has opened this dataset")
    return dataset


def _whole_index(index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(f"a row is asked for by its number, but {index!r:.100} was given") from None


def _refuse_unequal_rows(plan: Plan) -> None:
    """Row by row, torch makes the batches, and one row more on one rank may be one batch more."""
    ranks = plan.request.shard.count
    if plan.request.tail is Tail.EVEN and plan.num_rows % ranks:
        raise RequestError(
            f"{plan.num_rows:,} rows cannot be shared equally, row by row, by {ranks} ranks, and a rank with one row "
            "more may have one batch more, for which the others do not wait; give batch_size, which makes whole "
            "batches and as many on each rank, or tail='drop' or 'wrap'"
        )


def _shard_of_this_process(num_replicas: int | None, rank: int | None) -> Shard:
    if (num_replicas is None) != (rank is None):
        raise RequestError(f"num_replicas={num_replicas!r} and rank={rank!r}: give both, or neither")
    if num_replicas is not None and rank is not None:
        return Shard(rank, num_replicas)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Shard(torch.distributed.get_rank(), torch.distributed.get_world_size())
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise RequestError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but torch.distributed is not initialised, so nobody knows "
            "which rank this is; call torch.distributed.init_process_group first, or give num_replicas and rank"
        )
    return Shard()


class _DecodedRows(Sequence[dict[str, Any]]):
    """Rows that were decoded together, as dicts of tensors; made one by one only for those who look at them so."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], num_rows: int) -> None:
        self._columns = dict(columns)
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(self._num_rows))]
        if not -self._num_rows <= index < self._num_rows:
            raise IndexError(index)
        return {name: values[index] for name, values in self._values.items()}

    @functools.cached_property
    def _values(self) -> dict[str, Any]:
        return {name: _row_tensors(name, column) for name, column in self._columns.items()}

    def tensors(self) -> dict[str, Any]:
        """The rows as one batch."""
        return _tensors(self._columns)


def _row_tensors(name: str, column: NDArray[Any]) -> Any:
    """What has the tensor, or the value, of row i at place i; None where it is missing."""
    missing = missing_rows(column)
    if column.dtype == np.dtype(object) or not missing.any():
        return _tensor_or_list(name, column)
    tensors = torch.from_numpy(_shareable(name, np.asarray(column)))
    return [None if gone else tensor for gone, tensor in zip(missing.tolist(), tensors, strict=True)]


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

    def __len__(self) -> int:
        """Rows of one pass, all epochs, on this rank."""
        return int(self._reader.plan.rows_per_epoch(self._batch_size)) * _epochs(self._reader.num_epochs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if torch.utils.data.get_worker_info() is not None:
            raise RequestError(f"num_workers is not 0: {_WORKERS_BELONG_TO_THE_READER}")
        for batch in self._passes.start(self._batch_size):
            yield from _rows(batch)


def _epochs(num_epochs: int | None) -> int:
    if num_epochs is None:
        raise TypeError("a reader with num_epochs=None is endless and has no length; count steps yourself")
    return int(num_epochs)


def _rows(batch: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    names = list(batch)
    columns = [_row_values(name, batch[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _row_values(name: str, column: NDArray[Any]) -> list[Any]:
    """One NumPy value a row, of the dtypes that tensors have; None where it is missing."""
    if column.dtype == np.dtype(object):
        return [_shareable(name, cell) if isinstance(cell, np.ndarray) else cell for cell in column]
    missing = missing_rows(column)
    values = list(_shareable(name, np.asarray(column)))
    return [None if gone else value for gone, value in zip(missing, values, strict=True)] if missing.any() else values


def _tensors(batch: Any) -> dict[str, Any]:
    return {name: _tensor_or_list(name, column) for name, column in batch.items()}


def _tensor_or_list(name: str, column: NDArray[Any]) -> Any:
    if column.dtype == np.dtype(object):
        return [_cell(name, cell) for cell in column]
    return torch.from_numpy(_shareable(name, present(name, column)))


def _cell(name: str, cell: Any) -> Any:
    if not isinstance(cell, np.ndarray):
        return cell
    if cell.dtype.kind in "OSU":
        return cell.tolist()
    return torch.from_numpy(_shareable(name, present(name, cell) if cell.ndim else cell))


def _shareable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in a dtype and layout that torch can share; itself wherever it can."""
    if array.dtype.kind in "mM":
        array = nanoseconds(name, array)
    native = array.dtype.newbyteorder("=")
    dtype: np.dtype[Any] = _PROMOTED.get(native, native)
    steps_backwards = any(step < 0 or step % array.itemsize for step in array.strides)
    if dtype != array.dtype or steps_backwards or not array.flags.behaved:
        return array.astype(dtype, order="C", copy=True)
    return array


def _refuse_options(options: Mapping[str, Any], reader: Any) -> None:
    kept_by_the_reader = {"drop_last"} if reader.plan.request.tail is Tail.DROP else set()
    for option, value in options.items():
        if option == "in_order":
            continue  # it lets torch's worker processes overtake each other, and there are none
        if option not in _WHY_NOT:
            raise TypeError(f"DataLoader has no option {option!r}")
        if value and option not in kept_by_the_reader:
            raise RequestError(f"{option}={value!r} cannot be: {_WHY_NOT[option]}")


def _refuse_dtypes(reader: Any) -> None:
    for field in reader.schema:
        if field.dtype.char in "gG":
            raise RequestError(
                f"column {field.name!r} is {field.dtype}, and torch has no extended precision; leave it out with "
                "schema_fields, or convert it in a transform_spec"
            )
