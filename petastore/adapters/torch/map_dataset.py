"""MapDataset and BlockSampler: random access to the rows of a Parquet dataset.

`MapDataset` returns rows by index, for any sampler. `BlockSampler` is a sampler that reads each row group about once.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, Unpack

import numpy as np
import torch
import torch.utils.data

from petastore.adapters.epoch_tracker import EpochNumbers
from petastore.adapters.nulls import Nulls
from petastore.adapters.torch.ranks import refuse_dealing_out, refuse_unequal_rows, shard_of_this_process
from petastore.adapters.torch.rows import DecodedRows
from petastore.adapters.torch.shared_state import LOADED_LATE, SamplingPass, pass_in_epoch, worker_plan
from petastore.adapters.torch.tensors import TorchForm, torch_plans
from petastore.byte_sizes import ByteSize, byte_size
from petastore.callers import is_called_by_lightning
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.request import Fields, LastBatch, LastBatchWord, Shard, whole_number
from petastore.plan.selection import Selection
from petastore.plan.workers import dump_place, numbered_batches, plan_of_numbers, resume_place
from petastore.readers.bad_rows import selected_rows
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.option_signatures import takes_options
from petastore.readers.options import DatasetOptions, RowOptions, RunOptions, Urls, options_of_rows
from petastore.readers.random_access import DEFAULT_CACHE_BYTES, CacheInfo, RandomAccess
from petastore.schema.unischema import Unischema

if TYPE_CHECKING:
    from petastore.readers.options import MapKwargs

__all__ = ["BlockSampler", "MapDataset", "chosen_rows"]


class MapDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """A map-style `torch.utils.data.Dataset` over Parquet, with random access to rows.

    It works with any torch sampler. Row i is the i-th row of an unshuffled reader (files sorted by path), as a dict
    from column name to tensor. Text, `Decimal` and other values that are not numbers stay Python objects; missing
    values are None. `DataLoader` lists the types. torch's `default_collate` works if all tensors of a column have the
    same shape and no text is missing. `decimal_friendly_collate` returns the same batches as `DataLoader`, zero-copy.

    Parquet is read by row groups. Each process has an LRU cache of encoded row groups, of size `cache_bytes`. If the
    dataset is larger than the cache, a random sampler reads a whole row group for nearly every row. In this case, use
    `BlockSampler`, `petastore.adapters.torch.DataLoader` or `ReaderDataset`, which read each row group once.

    Thread-safe, picklable and fork-safe: each process opens its own files and has its own cache, and no threads run in
    the background.

    Args:
        dataset: The dataset from `petastore.open_dataset`, or a URL or list of URLs.
        schema_fields: Names, regular expressions over whole names, or fields; None selects all.
        cache_bytes: Size of the cache in each process, in bytes of encoded row groups. The row group read last is
            always cached.
        ragged: As in `DataLoader`, for batches of `decimal_friendly_collate`; in a single row, each array is one
            tensor.
        nulls: As in `DataLoader`, for rows and batches.
        selection: Selected rows, from `petastore.select_rows`; indices count the selected rows only. None means all
            rows.
        **options: The dataset and row options of `petastore.make_reader`, `max_cell_bytes` and `transform_spec`.
            Filters and predicates are evaluated once, by the constructor; indices count the selected rows only. The
            transform runs each time a row is requested. `cache_type="local-disk"` adds a cache on local disk.

    Raises:
        InvalidArgumentError: An argument is invalid; the message names it.
        DatasetNotFoundError: No dataset exists at the URL.

    Warns:
        CacheBypassWarning: `cache_type="local-disk"` was given, but the cache directory is not usable.

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

    @takes_options(
        DatasetOptions,
        RowOptions,
        RunOptions,
        without=("reader_pool_type", "workers_count", "memory_budget", "progress"),
    )
    def __init__(
        self,
        dataset: Dataset | Urls,
        schema_fields: Fields | None = None,
        *,
        cache_bytes: ByteSize = DEFAULT_CACHE_BYTES,
        ragged: TorchForm | Mapping[str, TorchForm] = "auto",
        nulls: Nulls = "error",
        selection: Selection | None = None,
        **options: Unpack[MapKwargs],
    ) -> None:
        at, rows, run = options_of_rows(dataset, **options)
        opened, workers = at.opened_alone(), run.workers
        fields = opened.fields_of(schema_fields)  # raise errors for invalid options before a filter reads data
        selection = chosen_rows(opened, [field.name for field in fields], rows, run, selection)
        self.rows = RandomAccess(
            opened,
            fields,
            cache_bytes=byte_size(cache_bytes, name="cache_bytes", least=0),
            max_cell_bytes=workers.max_cell_bytes,
            transform=run.transform_spec,
            selection=selection,
            provenance=run.provenance,
        )
        """The rows as NumPy arrays: `rows.take([3, 1])`."""
        self._plans = torch_plans(self.rows, ragged, nulls, is_checked=False)

    @property
    def schema(self) -> Unischema:
        """The fields of a row, after column selection and transform."""
        return self.rows.schema

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """Return one row; negative indices count from the end.

        Raises:
            IndexError: The index is out of range.
            DecodeError: A cell does not match its field; the message names column, file, row group and row.
        """
        row: dict[str, Any] = self.__getitems__([index])[0]
        return row

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> Sequence[dict[str, Any]]:
        """Return several rows, decoded together, in the order of `indices`.

        torch's DataLoader calls this method for each batch. A call reads each row group at most once. The rows are
        views of shared columns, created when they are accessed.
        """
        numbers = np.fromiter((_whole_index(index) for index in indices), dtype=np.int64, count=len(indices))
        columns: dict[str, Any] = {}
        for name, column in self.rows.take(numbers).items():
            columns |= self._plans[name].filled(column)
        return DecodedRows(columns, len(numbers), self._plans)

    def cache_info(self) -> CacheInfo:
        """Return the cache counters of this process.

        A miss is a row group that was read, and a hit is one that was found in memory.
        """
        return self.rows.cache_info()

    def __repr__(self) -> str:
        return f"MapDataset({self.rows.dataset.url!r}, {len(self):,} rows, {len(self.schema)} columns)"


def chosen_rows(
    dataset: Dataset,
    columns: Sequence[str],
    rows: RowOptions,
    run: RunOptions,
    selection: Selection | None,
) -> Selection | None:
    """Return the rows that `selection` or the options in `rows` select, or None.

    None means all rows.

    Raises:
        InvalidArgumentError: Options that cannot be combined were given, or an option is invalid.
    """
    if rows.is_for_all:
        return selection
    if selection is not None:
        names = ("filters", "predicate", "rowgroup_selector", "exclude_rows")
        given = [f"{name}=" for name in names if getattr(rows, name) is not None]
        given += [] if rows.on_error == "raise" else ["on_error="]
        raise InvalidArgumentError(
            f"selection must be given without other arguments that select rows, got {', '.join(given)}. Pass these to "
            "petastore.select_rows instead, or leave selection out"
        )
    return selected_rows(dataset, columns, rows, run)


def _whole_index(index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(f"index must be an int, got {index!r:.100}") from None


class BlockSampler(torch.utils.data.DistributedSampler[Any]):
    """A shuffling, sharded sampler that reads each row group about once per epoch.

    It is for `MapDataset`. The row groups of the shuffle buffer fit into half of the dataset's `cache_bytes`. All ranks
    use the same global order, and each rank gets its shard of this order, exact to the row.

    With `batch_size` it is a *batch sampler*: `DataLoader(dataset, batch_sampler=BlockSampler(dataset, batch_size=64,
    num_workers=4), num_workers=4)`. Use this form with worker processes or several ranks: torch assigns batches to
    workers round-robin, so only this form gives each worker its own row groups and each rank the same number of
    batches. Without `batch_size` it yields the indices of single rows, for `sampler=`.

    It is a subclass of torch's DistributedSampler, so trainers do not replace it, and call its `set_epoch`.
    Accelerate's `prepare` would shard its batches a second time; with a sharded sampler, this raises an error.

    Each iteration is a new epoch (0, 1, 2, …) with a new order. To continue an iteration that was stopped early, call
    `load_state_dict`.

    Args:
        dataset: The dataset to sample from.
        batch_size: Rows per batch on this rank; None yields single rows.
        num_workers: Worker processes of the DataLoader; needs `batch_size`.
        shuffle: Whether to shuffle rows; without it, each rank and worker reads one contiguous part in file order.
        seed: Any integer, the same on every rank.
        num_replicas: Number of ranks; None takes it from torch.distributed, or 1 without a process group.
        rank: This rank; None takes it from torch.distributed.
        last_batch: Policy for the rows that do not fill a batch on every rank: `"even"` (divided among the ranks, each
            row once), `"drop"` (left out), or `"wrap"` (filled with rows from the start of the epoch).
        shuffle_buffer_bytes: Size of the shuffle buffer in bytes of row groups, over all ranks and workers. None means
            half of the cache of this rank's workers.

    Raises:
        InvalidArgumentError: An argument is invalid; or, without `batch_size`, the number of rows is not a multiple of
            the number of ranks.
        NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`.

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
        last_batch: LastBatchWord | LastBatch = "even",
        shuffle_buffer_bytes: int | None = None,
    ) -> None:
        self.batch_size = None if batch_size is None else whole_number(batch_size, name="batch_size", least=1)
        self._size = self.batch_size or 1
        self._workers = max(whole_number(num_workers, name="num_workers", least=0), 1)
        if self.batch_size is None and num_workers:
            raise InvalidArgumentError(
                "num_workers must be 0 without batch_size, because torch assigns whole batches to its workers. Write "
                "DataLoader(dataset, batch_sampler=BlockSampler(dataset, batch_size=…, num_workers=…))"
            )
        shard = shard_of_this_process(num_replicas, rank)
        super().__init__(dataset, shard.count, shard.index, shuffle, seed)
        last_batch = LastBatch.parse(last_batch)
        if last_batch is LastBatch.PAD:
            raise InvalidArgumentError(
                "last_batch must be 'even', 'drop' or 'wrap' for a sampler, got 'pad', which needs a column to mark "
                "repeats. Use 'even' or 'wrap'"
            )
        if shuffle_buffer_bytes is None:
            shuffle_buffer_bytes = dataset.rows.cache_bytes // 2 * self._workers
        self._plan = plan_of_numbers(
            dataset.rows.dataset.inventory,
            dataset.rows.rows,
            shuffle=shuffle,
            seed=seed,
            shard=shard,
            last_batch=last_batch,
            workers=self._workers,
            shuffle_buffer_bytes=whole_number(shuffle_buffer_bytes, name="shuffle_buffer_bytes", least=0),
        )
        if self.batch_size is None:
            refuse_unequal_rows(self._plan)
        self._requested_plan = self._plan  # a loaded state changes the order of `_plan`
        self._steps = self._plan.steps_per_epoch(self._size)
        self._pass = SamplingPass(Cursor())
        self._loads = 0  # number of loaded states
        self._epochs = EpochNumbers()

    def __len__(self) -> int:
        """Return the number of batches of the current iteration, or of the next one.

        Without `batch_size`, it is the number of rows. It is the same on every rank. After `load_state_dict` it is the
        number of remaining batches. Lightning counts a resumed epoch from its first batch, so it always gets the length
        of a whole epoch.
        """
        this = self._pass
        if this.is_over or is_called_by_lightning():
            return self._steps
        return (self._plan.steps_left(self._size, this.begin) or 0) - this.first

    def __iter__(self) -> Iterator[Any]:
        if self._plan.request.shard.count > 1:
            refuse_dealing_out(self, self._plan.request.shard)
        if not self._pass.is_loaded:
            # Begin the current epoch, or the next one if the sampler has yielded a batch of the current epoch.
            self._pass = SamplingPass(Cursor.of_epoch(self._pass.begin.epoch + (self._pass.given > 0)))
        # torch's DataLoader with workers calls `iter` twice and drops the first iterator. A loaded state is therefore
        # used only when the first batch is taken.
        this = dataclasses.replace(self._pass) if self._pass.is_loaded else self._pass
        return RaisesAfterErrors(self._batches(this, self._loads))

    def _batches(self, this_pass: SamplingPass, loads: int) -> Iterator[Any]:
        if loads != self._loads:  # a state was loaded since `iter()`, and no batch was taken yet
            loads, this_pass = self._loads, dataclasses.replace(self._pass)
        if this_pass.is_loaded:
            this_pass.is_loaded = False
            self._pass = this_pass
        for numbers in numbered_batches(
            self._plan, self._size, workers=self._workers, begin=this_pass.begin, given=this_pass.given
        ):
            if loads != self._loads:
                raise InvalidArgumentError(LOADED_LATE)
            this_pass.given += 1
            if self.batch_size is None:
                yield from numbers
            else:
                yield numbers
        if loads != self._loads:
            raise InvalidArgumentError(LOADED_LATE)
        this_pass.is_over = True

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration.

        After `load_state_dict`, the iteration resumes from the state instead.

        Raises:
            InvalidArgumentError: `epoch` is not an int of at least 0.

        Warns:
            UserWarning: `epoch` is neither the epoch of the loaded state nor 0; see `DataLoader.set_epoch`.
        """
        epoch, loaded = pass_in_epoch(self._epochs, self._pass, epoch)
        self._pass = loaded or SamplingPass(Cursor.of_epoch(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that the *sampler* has yielded.

        The position is a new JSON-serializable dict. A DataLoader with workers prefetches, so this position is ahead of
        training. For the position of training, use `state_after`. torchdata's StatefulDataLoader saves the correct
        position itself.
        """
        return self.state_after(self._pass.given)

    def state_after(self, batches: int) -> dict[str, Any]:
        """Return the state after a number of batches of the current iteration.

        Without `batch_size`, `batches` counts rows. If `batches` is a multiple of `num_workers`, any number of workers
        or ranks and any batch size can resume from the state.
        """
        batches = whole_number(batches, name="batches", least=0)
        plan = worker_plan(self._plan, Shard(0, self._workers), self._pass.begin)
        return dump_place(plan, batches, self._size, of_all=True)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of `state_dict` or `state_after`.

        The next iteration yields the remaining batches of the state's epoch.

        Raises:
            InvalidArgumentError: The state was saved with another dataset, row order or number of workers; the message
                names the difference.
        """
        self._plan, begin, given = resume_place(
            self._requested_plan, state, batch_size=self._size, workers=self._workers, worker=None
        )
        # The state may be in any epoch of a reader's iteration, but a sampler's iteration has one epoch. Begin the
        # sampler's iteration in the epoch of the state. A state at the end of a one-epoch iteration stays there.
        if begin != begin.pass_ends(1):
            begin = dataclasses.replace(begin, first_epoch=begin.epoch)
        self._pass = SamplingPass(begin, given, given, is_loaded=True)
        self._loads += 1
