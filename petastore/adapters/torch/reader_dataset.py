"""ReaderDataset: a reader as the dataset of torch's own DataLoader, a part of it for each worker."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils.data

from petastore.adapters.nulls import Nulls, nulls_of_reader
from petastore.adapters.stored_nulls import refuse_stored_nulls
from petastore.adapters.told_epochs import ToldEpochs
from petastore.adapters.torch.accelerated import refuse_dealing_out
from petastore.adapters.torch.loader import epochs_of
from petastore.adapters.torch.map_dataset import selected_rows
from petastore.adapters.torch.ragged import TorchForm, ragged_columns
from petastore.adapters.torch.ranks import ranks_known, warn_of_ranks_since
from petastore.adapters.torch.rows import DecodedRows
from petastore.adapters.torch.sampling_pass import Pass, refuse_unequal_rows, told, worker_plan
from petastore.adapters.torch.shared_state import LOADED_LATE, SharedState
from petastore.adapters.torch.tensors import BatchTensors, refuse_dtypes
from petastore.callers import frames_inside_petastore, is_called_by_lightning
from petastore.codecs.images.image_hint import ImageDecode
from petastore.dataset import Dataset
from petastore.distributed.asked import asked_shard
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.lanes import DEFAULT_SHUFFLE_BUFFER_BYTES
from petastore.plan.plan import Plan
from petastore.plan.request import (
    Fields,
    OrderAsk,
    PlanAsk,
    Reshuffle,
    Shard,
    ShardWord,
    Tail,
    TailWord,
    whole_number,
)
from petastore.plan.selection import Selection
from petastore.plan.sharing.worker_state import dump_place, resume_place
from petastore.plan.sharing.workers import WorkerPlan, with_lanes_for_workers
from petastore.plan.state import dump_state
from petastore.readers.asked import (
    CacheAsk,
    CacheType,
    DatasetAsk,
    Filters,
    Predicate,
    RowGroupSelector,
    RowsAsk,
    SelectionCache,
    Urls,
)
from petastore.readers.by_number.reopen import reopened
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.reader import Reader
from petastore.storage.requests.under_way import DEFAULT_STORAGE_TIMEOUT_S
from petastore.transforming.transform import AnyTransform
from petastore.work.thread import available_cpus
from petastore.work.workers import DEFAULT_MAX_CELL_BYTES, Workers

__all__ = ["ReaderDataset"]

_NEVER_BEGUN, _BEGUN, _TOLD = range(3)
"""What became of the epoch: no `for` has begun; one has, and nobody said which epoch it is; somebody did."""


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
    first): the order of a second `for` is another one only if it was called, as with torch's DistributedSampler. If it
    never was, and the order is shuffled, the second `for` warns. Lightning does not call it: torch's DataLoader has no
    place where it could. Accelerate's `prepare` must not be given a loader of this dataset where there are several
    processes, and is told so when it iterates it: it would deal out the rows of a rank once more.

    It follows torchdata's protocol for StatefulDataLoader; with torch's DataLoader and several workers, see
    `state_after`.

    Args:
        dataset: What `petastore.open_dataset` gave, or a URL or list of URLs to open.
        schema_fields: Names, regular expressions over whole names, or fields; None is all.
        batch_size: Rows of a batch on this rank; None gives rows.
        workers_count: Threads of each worker process; None shares the CPUs among the workers.
        max_cell_bytes: As in `make_reader`.
        seed: As in `make_reader`.
        shuffle_rows: As in `make_reader`.
        shuffle_row_groups: As in `make_reader`.
        shuffle_buffer_bytes: Bytes of stored cells that all ranks and workers together keep for `shuffle_rows`.
        lanes: Row groups that are read side by side; None is a number that ranks and workers divide. Fewer than these
            are shared, and each of them is read by several workers.
        block_rows: As in `make_reader`.
        reshuffle: As in `make_reader`.
        num_epochs: Epochs of one `for`; None is without end.
        cur_shard: As in `make_reader`. Workers are not ranks.
        shard_count: As in `make_reader`.
        last_batch: As in `make_reader`.
        decode: As in `make_reader`.
        transform_spec: A function from a row, as a dict, to a row, or of what `TransformSpec.takes` says. It must
            pickle where workers are spawned.
        ragged: As in `petastore.adapters.torch.DataLoader`; needs `batch_size` where it is not `"auto"`.
        nulls: As in `petastore.adapters.torch.DataLoader`; needs `batch_size` where it is not `"error"`.
        selection: Which rows, from `petastore.select_rows`.
        filters: Which rows instead, as in `make_reader`; they are looked for here, once, and not in each worker.
        predicate: As in `make_reader`.
        rowgroup_selector: As in `make_reader`.
        filter_cache: As in `make_reader`.
        cache_type: As in `make_reader`; the workers of all ranks of a host share it.
        cache_location: As in `make_reader`.
        cache_size_limit: As in `make_reader`.
        storage_options: Passed to the fsspec filesystem of the URL's scheme.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        storage_timeout: As in `make_reader`.

    Raises:
        InvalidArgumentError: Something that was asked for cannot be; or single rows of several ranks cannot be shared
            equally.
        NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.
        DatasetNotFoundError: There is no dataset there.

    Warns:
        CacheBypassWarning: `cache_type="local-disk"` keeps nothing there.

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
        dataset: Dataset | Urls,
        schema_fields: Fields | None = None,
        *,
        batch_size: int | None = None,
        workers_count: int | None = None,
        max_cell_bytes: int | None = DEFAULT_MAX_CELL_BYTES,
        seed: int | None = None,
        shuffle_rows: bool = False,
        shuffle_row_groups: bool = True,
        shuffle_buffer_bytes: int = DEFAULT_SHUFFLE_BUFFER_BYTES,
        lanes: int | None = None,
        block_rows: int | None = None,
        reshuffle: Reshuffle | None = None,
        num_epochs: int | None = 1,
        cur_shard: int | Shard | ShardWord | None = None,
        shard_count: int | None = None,
        last_batch: TailWord | Tail = "even",
        decode: Mapping[str, ImageDecode] | None = None,
        transform_spec: AnyTransform | None = None,
        ragged: TorchForm | Mapping[str, TorchForm] = "auto",
        nulls: Nulls = "error",
        selection: Selection | None = None,
        filters: Filters | None = None,
        predicate: Predicate | None = None,
        rowgroup_selector: RowGroupSelector | None = None,
        filter_cache: SelectionCache = True,
        cache_type: CacheType | None = "null",
        cache_location: str | os.PathLike[str] | None = None,
        cache_size_limit: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
        storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
    ) -> None:
        rows = RowsAsk(filters, predicate, rowgroup_selector, filter_cache)
        cache = CacheAsk(cache_type, cache_location, cache_size_limit)
        at = DatasetAsk(dataset, storage_options, filesystem, storage_timeout, decode, cache)
        self.dataset = at.opened_alone()
        """The dataset that is read."""
        self.batch_size = None if batch_size is None else whole_number(batch_size, name="batch_size", least=1)
        self._size = self.batch_size or 1
        self._workers = Workers("thread", workers_count, max_cell_bytes=max_cell_bytes)
        self._threads = self._workers.count
        self._shuffle_buffer_bytes = shuffle_buffer_bytes
        self._transform: AnyTransform | None = transform_spec
        order = OrderAsk(seed, shuffle_row_groups, shuffle_rows, shuffle_buffer_bytes, lanes, block_rows, reshuffle)
        ask = PlanAsk(schema_fields, order, asked_shard(cur_shard, shard_count), num_epochs, Tail.parse(last_batch))
        plan = self.dataset.planned(ask, selection)  # refuses what cannot be, before a filter reads anything
        found = selected_rows(self.dataset, rows, selection, workers=self._workers)
        self.plan = plan if found is selection else self.dataset.planned(ask, found)
        """What this rank reads, before it falls to workers."""
        if self.batch_size is None:
            refuse_unequal_rows(self.plan)
        with self._reader(self.dataset, self.plan, threads=1) as reader:
            refuse_dtypes(reader)
            self._transform = reader.transform  # with its fields known, so that no worker asks the first row again
            self.schema = reader.schema
            """The fields that come out, after selection and transform."""
            self._ragged = ragged_columns(reader, ragged)
        if self.batch_size is None and any(form.is_asked_for for form in self._ragged.values()):
            raise InvalidArgumentError("ragged= is about batches, and rows were asked for; give batch_size")
        self._nulls = nulls_of_reader(nulls, self)
        if self._nulls and self.batch_size is None:
            raise InvalidArgumentError("nulls= is about batches, and rows were asked for; give batch_size")
        if self.batch_size is not None:  # rows have None
            refuse_stored_nulls(self, self._nulls)
        self._requested_plan = self.plan  # a state that is loaded changes the order of the other one
        self._pass: Pass | None = None  # the newest one of this process, or one that was loaded
        self._epochs = ToldEpochs()
        self._shared = SharedState()
        self._version = 0  # of the record in shared memory that this process knows
        self._loops = 0  # that began in this process
        self._own_loads = 0  # states that a worker process loaded for itself
        self._ranks_known = ranks_known()

    @property
    def transform(self) -> AnyTransform | None:
        """The function that makes rows of what is stored; None leaves them as they are."""
        return self._transform

    def _reader(self, dataset: Dataset, plan: Plan, *, threads: int) -> Reader:
        workers = dataclasses.replace(self._workers, count=threads)
        return Reader(dataset, plan, workers=workers, transform=self._transform)

    def __len__(self) -> int:
        """Return the number of batches of the next `for`, all epochs, on this rank; of rows where it gives rows.

        After `load_state_dict` these are the batches that are left, until that `for` ends. torch's DataLoader keeps the
        number that `len(loader)` returned, so call `len` again before the next `for`. Lightning always gets the length
        of a whole `for`: it counts a resumed epoch from its first batch.

        Raises:
            TypeError: It is endless.
        """
        each = self.plan.rows_per_epoch(1) if self.batch_size is None else self.plan.steps_per_epoch(self.batch_size)
        whole = each * epochs_of(self.plan.request.epochs)
        this = self._newest_pass
        if this is None or this.is_over or is_called_by_lightning():
            return whole
        if this.is_loaded and not self._is_waiting and self._shared.has_ended(self._version):
            return whole
        # torch warns in later loops, which are longer than the one that resumed: it asks for the length once.
        warnings.filterwarnings("ignore", "Length of IterableDataset <petastore", UserWarning)
        return self.plan.steps_left(self._size, this.begin) or 0

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is None:
            refuse_dealing_out(self, self.plan.request.shard)
        if _this_worker().index == 0:
            warn_of_ranks_since(self._ranks_known, self.plan.request.shard)
            self._warn_of_one_order()
        self._loops += 1
        loads = self._loads
        return RaisesAfterErrors(self._stream(_this_worker(), self._begin(), loads))

    def _begin(self) -> Pass:
        """Begin a loop: where a state was loaded that no loop has taken, or else with the first row of an epoch."""
        version, record = self._shared.read()
        if version != self._version:  # the process that has the loader has loaded a state since
            self._version = version
            self._adopt(record)
        this, info = self._pass, torch.utils.data.get_worker_info()
        if this is None or not (this.is_loaded and this.is_own):
            worker = None if info is None else info.id
            seed = 0 if info is None else (info.seed - info.id + self._loops) % 2**62
            takes = self._shared.begin(version, worker, seed)
            if this is None or not (takes and this.is_loaded):
                this = Pass(Cursor.of_epoch(self._shared.epoch))
        self._pass = dataclasses.replace(this, is_loaded=False, is_own=False, is_resumed=this.is_loaded)
        return self._pass

    @property
    def _loads(self) -> int:
        """The number of states that were loaded, as far as this process knows."""
        return self._shared.loads + self._own_loads

    @property
    def _is_waiting(self) -> bool:
        """Whether a state was loaded and no loop has taken it."""
        this = self._pass
        return this is not None and this.is_loaded and (this.is_own or not self._shared.is_taken(self._version))

    @property
    def _newest_pass(self) -> Pass | None:
        """The pass that a loaded state begins, or the newest one; None where workers alone know it."""
        this = self._pass
        if this is None or not this.is_loaded or self._is_waiting or self._shared.is_newest(self._version):
            return this
        return None

    def _warn_of_one_order(self) -> None:
        """Where a second `for` gives the first one's order, and nobody asked for that."""
        order = self.plan.request.order
        is_second = self._shared.order_warning == _BEGUN
        if self._shared.order_warning == _NEVER_BEGUN:
            self._shared.order_warning = _BEGUN
        if is_second and (order.shuffle_rows or order.shuffle_row_groups):
            self._shared.order_warning = _TOLD  # it was, now
            warnings.warn(
                "this for gives the rows in the same order as the last one, since nobody called set_epoch; call "
                "dataset.set_epoch(epoch) before each for (in Lightning, on_train_epoch_start of the module is the "
                "place), or ask for shuffle_row_groups=False if one order is meant",
                UserWarning,
                stacklevel=frames_inside_petastore() + 1,
            )

    def _stream(self, worker: Shard, this_pass: Pass, loads: int) -> Iterator[Any]:
        if loads != self._loads:  # since `iter()`, and no batch was given yet
            loads, this_pass = self._loads, self._begin()
        this_pass.is_begun = True
        plan = self._plan_of(worker, this_pass.begin)
        dataset = self.dataset if torch.utils.data.get_worker_info() is None else reopened(self.dataset)
        threads = self._threads or max(available_cpus() // worker.count, 1)
        with self._reader(dataset, plan, threads=threads) as reader:
            reader.load_state_dict(dump_state(plan, plan.place_after(this_pass.given, self._size)))
            tensors_of = BatchTensors(self._ragged, self._nulls)
            for batch in reader.iter_batches(self._size):
                if loads != self._loads:
                    raise InvalidArgumentError(LOADED_LATE)
                this_pass.given += 1
                if self.batch_size is None:
                    yield from DecodedRows(batch, batch.num_rows)
                else:
                    yield tensors_of(batch)
        if loads != self._loads:
            raise InvalidArgumentError(LOADED_LATE)
        this_pass.is_over = True
        if self._pass is this_pass:
            self._shared.end_loop()

    def _plan_of(self, worker: Shard, begin: Cursor) -> WorkerPlan:
        plan = with_lanes_for_workers(self.plan, worker.count, shuffle_buffer_bytes=self._shuffle_buffer_bytes)
        return worker_plan(plan, worker, begin, self._size)

    def set_epoch(self, epoch: int) -> None:
        """The next `for` begins with this epoch; or goes on where a state was loaded.

        To be called before each `for`, on every rank alike; persistent workers are told too.

        Raises:
            InvalidArgumentError: Accelerate calls it, to deal out rows of this dataset among several processes.

        Warns:
            UserWarning: A state was loaded, and this is neither its epoch nor 0; see `DataLoader.set_epoch`.
        """
        refuse_dealing_out(self, self.plan.request.shard)
        self._shared.order_warning = _TOLD
        this = self._pass
        if this is not None and not this.is_loaded and not this.is_begun:  # since `iter()`, as Lightning calls it
            taken = dataclasses.replace(this, is_loaded=this.is_resumed)
            self._shared.epoch, loaded = told(self._epochs, taken, epoch)
            this.begin = Cursor.of_epoch(self._shared.epoch) if loaded is None else loaded.begin
            this.given = 0 if loaded is None else loaded.given
            return
        waiting = this if self._is_waiting else None
        epoch, self._pass = told(self._epochs, waiting, epoch)
        if waiting is not None and not waiting.is_own:
            self._publish(waiting.begin)
        self._shared.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Where iteration *in this process* stands, as a new dict of JSON values; for torchdata's StatefulDataLoader.

        Raises:
            InvalidArgumentError: It was not iterated in this process; worker processes are asked by StatefulDataLoader
                alone.
        """
        if self._pass is None or (self._pass.is_loaded and not self._is_waiting):
            raise InvalidArgumentError(
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
            InvalidArgumentError: Not every worker has made as many batches; take states after a multiple of
                `num_workers`.
        """
        batches = whole_number(batches, name="batches", least=0)
        workers = max(whole_number(num_workers, name="num_workers", least=0), 1)
        this = self._newest_pass
        begin = this.begin if this is not None else Cursor.of_epoch(self._shared.epoch)
        state = dump_place(self._plan_of(Shard(0, workers), begin), batches, self._size, of_all=True)
        if state["format"] != dump_state(self.plan, begin)["format"]:
            raise InvalidArgumentError(
                f"after {batches:,} batches some of the {workers} workers have made one more than the others, and no "
                f"place in the order says that; ask after a multiple of {workers}, or at the end of the epoch"
            )
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume with the next `for`: it continues after the state, and ends where that `for` would have ended.

        Workers take the state too, persistent ones as well; the `for` after it is a whole one. A `for` that has given
        batches already raises an error: load the state before `iter(loader)`.

        Raises:
            InvalidArgumentError: The state is of other data, another order, or of another worker; the difference is
                named.
        """
        worker = _this_worker()
        plan, begin, given = resume_place(
            self._requested_plan, state, batch_size=self._size, workers=worker.count, worker=worker.index
        )
        self._set_plan(plan)
        is_own = torch.utils.data.get_worker_info() is not None
        self._pass = Pass(begin, given, is_loaded=True, is_own=is_own)
        self._shared.epoch = begin.first_epoch
        self._shared.order_warning = _NEVER_BEGUN
        if is_own:
            self._own_loads += 1
        else:
            self._publish(begin)
            self._shared.count_load()

    def _set_plan(self, plan: Plan) -> None:
        # The lanes of the state are the order that is gone on with, whatever the number of workers.
        request = dataclasses.replace(plan.request, chosen=plan.request.chosen - {"lanes"})
        self.plan = dataclasses.replace(plan, request=request)

    def _publish(self, begin: Cursor) -> None:
        """Hand the state to worker processes: its order, and where the next loop begins."""
        this = self._pass
        record = {"state": dump_state(self.plan, begin if this is None else this.begin), "resumes": this is not None}
        self._version = self._shared.publish(record)

    def _adopt(self, record: Mapping[str, Any]) -> None:
        """Take over a state that the process which has the loader has loaded."""
        plan, begin, _ = resume_place(self._requested_plan, record["state"], batch_size=1, workers=1, worker=None)
        self._set_plan(plan)
        self._pass = Pass(begin, is_loaded=True) if record["resumes"] else None


def _this_worker() -> Shard:
    info = torch.utils.data.get_worker_info()
    return Shard() if info is None else Shard(info.id, info.num_workers)
