"""ReaderDataset: an `IterableDataset` for PyTorch's own DataLoader.

The workers of the DataLoader divide the rows among them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import torch
import torch.utils.data

from petastore.adapters.epoch_tracker import EpochNumbers, epochs_of
from petastore.adapters.nulls import Nulls
from petastore.adapters.torch.map_dataset import chosen_rows
from petastore.adapters.torch.ranks import ranks_known, refuse_dealing_out, refuse_unequal_rows, warn_of_ranks_since
from petastore.adapters.torch.rows import DecodedRows
from petastore.adapters.torch.shared_state import LOADED_LATE, SamplingPass, SharedState, pass_in_epoch, worker_plan
from petastore.adapters.torch.tensors import BatchTensors, TorchForm, refuse_forms_of_rows, torch_plans
from petastore.callers import frames_inside_petastore, is_called_by_lightning
from petastore.dataset import Dataset
from petastore.dataset.shared_row_groups import SharedFolder, sharing
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Fields, OrderOptions, Shard, whole_number
from petastore.plan.selection import Selection
from petastore.plan.state import dump_state
from petastore.plan.workers import WorkerPlan, dump_place, resume_place, with_lanes_for_workers
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.option_signatures import takes_options
from petastore.readers.options import (
    DatasetOptions,
    EpochOptions,
    ReadOptions,
    RowOptions,
    RunOptions,
    Urls,
)
from petastore.readers.random_access import reopened
from petastore.readers.reader import Reader
from petastore.transforming.transform import AnyTransform
from petastore.work.pools import available_cpus

if TYPE_CHECKING:
    from petastore.readers.options import ThreadKwargs

__all__ = ["ReaderDataset"]

_NOT_IN_WORKERS = ("reader_pool_type", "memory_budget", "progress")
"""Parameters of `make_reader` that readers in worker processes do not support."""

_NEVER_BEGUN, _BEGUN, _TOLD = range(3)
"""Values of `SharedState.order_warning`: no loop has begun; a loop has begun without `set_epoch`; no warning is due,
because `set_epoch` was called or the warning was shown."""


class ReaderDataset(torch.utils.data.IterableDataset[Any]):
    """An `IterableDataset` for torch's DataLoader with worker processes.

    Each row is yielded once per epoch, and almost every row group is read by one worker only. Use it as
    `DataLoader(ReaderDataset(url, batch_size=64), batch_size=None, num_workers=4)`. Workers assemble the batches, with
    the same types as `petastore.adapters.torch.DataLoader`, and send them through shared memory. Without `batch_size`
    the dataset yields rows, as `MapDataset` does, for torch's own batching:
    `DataLoader(ReaderDataset(url), batch_size=64)`. This is slower, because it runs Python code for each row.

    Each worker reads its own sequence of row groups. Only the first and last row groups of a sequence, and row groups
    at the end of the epoch, are read by two workers. Each rank gets the same number of batches, for any number of
    workers. A batch has rows of one worker, so `num_workers` changes the contents of batches. The order is
    deterministic for equal arguments and equal `num_workers`.

    One `for` loop covers `num_epochs` epochs and begins with the epoch that `set_epoch` set last (initially 0). As with
    torch's DistributedSampler, call `set_epoch` before each loop to get a new order; a second loop without it gives a
    warning. Lightning does not call it for this dataset. Do not pass a loader of this dataset to Accelerate's `prepare`
    on several ranks: it would shard the rows a second time, so iteration raises an error.

    torchdata's StatefulDataLoader saves and restores its state. With torch's own DataLoader and several workers, use
    `state_after`.

    Args:
        dataset: The dataset from `petastore.open_dataset`, or a URL or list of URLs.
        schema_fields: Names, regular expressions over whole names, or fields; None selects all.
        batch_size: Rows per batch on this rank; None yields single rows.
        ragged: As in `petastore.adapters.torch.DataLoader`; any value except `"auto"` needs `batch_size`.
        nulls: As in `petastore.adapters.torch.DataLoader`; any value except `"error"` needs `batch_size`.
        selection: Selected rows, from `petastore.select_rows`; None means all.
        **options: Options of `petastore.make_reader`. Filters and predicates are evaluated once, by the constructor,
            not in each worker. `workers_count` is the number of threads in each worker process; None divides the CPUs
            among the workers. `num_epochs` is the number of epochs of one loop. All workers and ranks on a host share
            one disk cache. If `interleave` is less than workers × ranks, several workers read the same row groups.
            `transform_spec` must be picklable if workers are spawned.

    Raises:
        InvalidArgumentError: An argument is invalid; or, without `batch_size`, the number of rows is not a multiple of
            the number of ranks.
        NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`.
        DatasetNotFoundError: No dataset exists at the URL.

    Warns:
        CacheBypassWarning: `cache_type="local-disk"` was given, but the cache directory is not usable.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("id", "int32")])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(5)])
        >>> loader = torch.utils.data.DataLoader(ReaderDataset(url, batch_size=3), batch_size=None)
        >>> len(loader), [batch["id"].tolist() for batch in loader]
        (2, [[0, 1, 2], [3, 4]])
    """

    @takes_options(DatasetOptions, RowOptions, OrderOptions, EpochOptions, RunOptions, without=_NOT_IN_WORKERS)
    def __init__(
        self,
        dataset: Dataset | Urls,
        schema_fields: Fields | None = None,
        *,
        batch_size: int | None = None,
        ragged: TorchForm | Mapping[str, TorchForm] = "auto",
        nulls: Nulls = "error",
        selection: Selection | None = None,
        **options: Unpack[ThreadKwargs],
    ) -> None:
        asked = ReadOptions.of(dataset, **options)
        rows = asked.rows
        self.dataset = asked.dataset.opened_alone()
        """The dataset that is read."""
        self.batch_size = None if batch_size is None else whole_number(batch_size, name="batch_size", least=1)
        self._size = self.batch_size or 1
        self._workers = asked.run.workers
        self._threads = self._workers.count
        self._shuffle_buffer_bytes = asked.plan.order.buffer_bytes
        self._transform: AnyTransform | None = asked.run.transform_spec
        self._build = functools.partial(build_execution, provenance=asked.run.provenance)
        ask = dataclasses.replace(asked.plan, columns=schema_fields)
        plan = self.dataset.planned(ask, selection)  # raise errors for invalid options before a filter reads data
        found = chosen_rows(self.dataset, plan.request.columns, rows, asked.run, selection)
        self.plan = plan if found is selection else self.dataset.planned(ask, found)
        """The plan of this rank, before it is divided among workers."""
        if self.batch_size is None:
            refuse_unequal_rows(self.plan)
        with self._reader(self.dataset, self.plan, threads=1) as reader:
            self._transform = reader.transform  # the fields are determined here, so that workers need not infer them
            self.schema = reader.schema
            """The fields of the output, after column selection and transform."""
            # A single row may have None for a missing value, so null counts matter only for batches.
            self._plans = torch_plans(reader, ragged, nulls, is_checked=self.batch_size is not None)
        if self.batch_size is None:
            refuse_forms_of_rows(
                self._plans,
                "this argument applies to batches, but without batch_size the dataset returns single rows. Set "
                "batch_size",
            )
        self._requested_plan = self.plan  # a loaded state changes the order of `plan`
        self._pass: SamplingPass | None = None  # the newest iteration of this process, or the loaded one
        self._epochs = EpochNumbers()
        self._shared = SharedState()
        caches = self.dataset.is_fetched and self.dataset.kept.cache is None
        self._folder = SharedFolder() if caches else None
        self._version = 0  # version of the record in shared memory that this process has seen
        self._loops = 0  # loops that began in this process
        self._own_loads = 0  # states that a worker process loaded itself
        self._loads_at_start: int | None = 0  # states loaded before this worker started; None after its first `iter`
        self._ranks_known = ranks_known()

    @property
    def transform(self) -> AnyTransform | None:
        """The transform function; None if there is no transform."""
        return self._transform

    def _reader(self, dataset: Dataset, plan: Plan, *, threads: int) -> Reader:
        workers = dataclasses.replace(self._workers, count=threads)
        return Reader(dataset, plan, workers=workers, transform=self._transform, build=self._build)

    def __len__(self) -> int:
        """Return the number of batches of the next loop on this rank, over all epochs.

        Without `batch_size`, it is the number of rows. After `load_state_dict` it is the number of remaining batches,
        until that loop ends. torch's DataLoader stores the result of `len(loader)`, so call `len` again before the next
        loop. Lightning counts a resumed epoch from its first batch, so it always gets the length of a whole loop.

        Raises:
            TypeError: `num_epochs` is None.
        """
        each = self.plan.rows_per_epoch(1) if self.batch_size is None else self.plan.steps_per_epoch(self.batch_size)
        whole = each * epochs_of(self.plan.request.epochs)
        this = self._newest_pass
        if this is None or this.is_over or is_called_by_lightning():
            return whole
        if this.is_loaded and not self._is_waiting and self._shared.has_ended(self._version):
            return whole
        # torch reads the length only once, and warns in later loops, which are longer than the resumed one.
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
        try:
            batches = self._stream(_this_worker(), self._begin(), loads)
        except InvalidArgumentError as problem:
            # Raised at the first batch, because persistent workers exit if `iter(dataset)` raises.
            batches = _raising(problem)
        return RaisesAfterErrors(batches)

    def _begin(self) -> SamplingPass:
        """Begin a loop, and return its position.

        The loop resumes from a loaded state that no loop has used yet; otherwise it begins with the first row of an
        epoch.
        """
        info = torch.utils.data.get_worker_info()
        if info is not None:
            at_start, self._loads_at_start = self._loads_at_start, None
            if at_start not in (None, self._shared.loads):
                raise InvalidArgumentError(LOADED_LATE)  # the next loop uses the state, and may have begun already
        version, record = self._shared.read()
        if version != self._version:  # the main process has loaded a state since then
            self._version = version
            self._adopt(record)
        this = self._pass
        if this is None or not (this.is_loaded and this.is_own):
            worker = None if info is None else info.id
            seed = 0 if info is None else (info.seed - info.id + self._loops) % 2**62
            takes = self._shared.begin(version, worker, seed, _this_worker().count)
            if this is None or not (takes and this.is_loaded):
                this = SamplingPass(Cursor.of_epoch(self._shared.epoch))
        self._pass = dataclasses.replace(this, is_loaded=False, is_own=False, is_resumed=this.is_loaded)
        return self._pass

    @property
    def _loads(self) -> int:
        """Number of states loaded so far, as known in this process; a running loop must end when it changes."""
        return self._shared.loads + self._own_loads

    @property
    def _is_waiting(self) -> bool:
        """Whether a state was loaded and no loop has used it."""
        this = self._pass
        return this is not None and this.is_loaded and (this.is_own or not self._shared.is_taken(self._version))

    @property
    def _newest_pass(self) -> SamplingPass | None:
        """Position of the newest `for` loop, or of a loaded state that the next loop uses.

        None if only worker processes know the position.
        """
        this = self._pass
        if this is None or not this.is_loaded or self._is_waiting or self._shared.is_newest(self._version):
            return this
        return None

    def _warn_of_one_order(self) -> None:
        """Warn if a second `for` loop repeats the shuffled order of the first."""
        order = self.plan.request.order
        is_second = self._shared.order_warning == _BEGUN
        if self._shared.order_warning == _NEVER_BEGUN:
            self._shared.order_warning = _BEGUN
        if is_second and (order.shuffle_rows or order.shuffle_row_groups):
            self._shared.order_warning = _TOLD  # so that the warning is shown only once
            warnings.warn(
                "this loop has the same order as the last one, because set_epoch was not called. Call "
                "dataset.set_epoch(epoch) before each for (in Lightning, in on_train_epoch_start of the module), or "
                "pass shuffle_row_groups=False if all loops should have one order",
                UserWarning,
                stacklevel=frames_inside_petastore() + 1,
            )

    def _stream(self, worker: Shard, this_pass: SamplingPass, loads: int) -> Iterator[Any]:
        in_worker, latest = torch.utils.data.get_worker_info() is not None, self._pass
        if loads != self._loads and latest is not None and (latest.is_own or not in_worker):
            # A state was loaded since `iter()`, and no batch was yielded yet. If the main process loaded the state,
            # another worker may have yielded a batch, so a worker raises an error below.
            loads, this_pass = self._loads, self._begin()
        this_pass.is_begun = True
        plan = self._plan_of(worker, this_pass.begin)
        dataset = reopened(self.dataset) if in_worker else self.dataset
        threads = self._threads or max(available_cpus() // worker.count, 1)
        with contextlib.ExitStack() as stack:
            groups = None
            if worker.count > 1 and self._folder is not None:
                dataset, groups = stack.enter_context(sharing(dataset, plan, self._size, self._folder))
            reader = stack.enter_context(self._reader(dataset, plan, threads=threads))
            reader.load_state_dict(dump_state(plan, plan.place_after(this_pass.given, self._size)))
            tensors_of = BatchTensors(self._plans)
            for batch in reader.iter_batches(self._size):
                if groups is not None:
                    groups.move_to(batch.cursor.epoch)
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
        return dataclasses.replace(worker_plan(plan, worker, begin), batch_size=self._size)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next `for` loop.

        After `load_state_dict`, the loop resumes from the state instead. Call `set_epoch` before each loop, with the
        same number on every rank. Persistent workers also use this epoch.

        Raises:
            InvalidArgumentError: `epoch` is not an int of at least 0, or Accelerate would shard the rows of this
                dataset a second time.

        Warns:
            UserWarning: `epoch` is neither the epoch of the loaded state nor 0; see `DataLoader.set_epoch`.
        """
        refuse_dealing_out(self, self.plan.request.shard)
        self._shared.order_warning = _TOLD
        this = self._pass
        # Lightning calls `set_epoch` after `iter()`, so the iteration that has not begun yet is changed.
        if this is not None and not this.is_loaded and not this.is_begun:
            taken = dataclasses.replace(this, is_loaded=this.is_resumed)
            self._shared.epoch, loaded = pass_in_epoch(self._epochs, taken, epoch)
            this.begin = Cursor.of_epoch(self._shared.epoch) if loaded is None else loaded.begin
            this.given = 0 if loaded is None else loaded.given
            return
        waiting = this if self._is_waiting else None
        epoch, self._pass = pass_in_epoch(self._epochs, waiting, epoch)
        if waiting is not None and not waiting.is_own:
            self._publish(waiting.begin)
        self._shared.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the iteration *in this process*, as JSON values.

        torchdata's StatefulDataLoader calls this method.

        Raises:
            InvalidArgumentError: The dataset was not iterated in this process. Only StatefulDataLoader reads states
                from worker processes.
        """
        if self._pass is None or (self._pass.is_loaded and not self._is_waiting):
            raise InvalidArgumentError(
                "state_dict() must be called in the process that iterates the dataset, got another process, such as "
                "the parent of worker processes. Use state_after(batches, num_workers), or torchdata's "
                "StatefulDataLoader"
            )
        worker = _this_worker()
        return dump_place(self._plan_of(worker, self._pass.begin), self._pass.given, self._size, of_all=False)

    def state_after(self, batches: int, num_workers: int) -> dict[str, Any]:
        """Return the state after a number of batches over all workers.

        Without `batch_size`, `batches` counts rows. Any number of workers or ranks and any batch size can resume from
        the state, as from a reader's state.

        Args:
            batches: Number of batches that training has received since the current loop began.
            num_workers: The DataLoader's `num_workers`.

        Raises:
            InvalidArgumentError: `batches` is not a multiple of `num_workers`, so workers are at different positions.
        """
        batches = whole_number(batches, name="batches", least=0)
        workers = max(whole_number(num_workers, name="num_workers", least=0), 1)
        this = self._newest_pass
        begin = this.begin if this is not None else Cursor.of_epoch(self._shared.epoch)
        state = dump_place(self._plan_of(Shard(0, workers), begin), batches, self._size, of_all=True)
        if state["format"] != dump_state(self.plan, begin)["format"]:
            raise InvalidArgumentError(
                f"batches must be a multiple of num_workers ({workers}) or the number at the end of an epoch, got "
                f"{batches:,}: at other numbers, some workers are one batch ahead of others. Save the state after "
                f"a multiple of {workers} batches"
            )
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state: the next `for` loop yields the remaining batches.

        Worker processes also use the state, including persistent workers. Later loops are complete. Load the state
        before `iter(loader)`: a loop that has yielded batches or has started worker processes raises an error.

        Raises:
            InvalidArgumentError: The state was saved with another dataset, row order or worker; the message names the
                difference.
        """
        worker = _this_worker()
        plan, begin, given = resume_place(
            self._requested_plan, state, batch_size=self._size, workers=worker.count, worker=worker.index
        )
        self._set_plan(plan)
        is_own = torch.utils.data.get_worker_info() is not None
        self._pass = SamplingPass(begin, given, is_loaded=True, is_own=is_own)
        self._shared.epoch = begin.first_epoch
        self._shared.order_warning = _NEVER_BEGUN
        if is_own:
            self._own_loads += 1
        else:
            self._publish(begin)
            self._shared.count_load()
            self._loads_at_start = self._shared.loads

    def _set_plan(self, plan: Plan) -> None:
        # The state contains the number of lanes (sequences of row groups that an epoch interleaves). This number
        # defines the order, so it must not depend on the number of workers here.
        request = dataclasses.replace(plan.request, chosen=plan.request.chosen - {"lanes"})
        self.plan = dataclasses.replace(plan, request=request)

    def _publish(self, begin: Cursor) -> None:
        """Write to shared memory how the next loop begins, for worker processes.

        The record contains the row order, the position at which the loop begins, and whether the loop resumes from a
        loaded state.

        Args:
            begin: Position of a loaded state that `set_epoch` may have discarded.
        """
        this = self._pass
        record = {"state": dump_state(self.plan, begin if this is None else this.begin), "resumes": this is not None}
        self._version = self._shared.publish(record)

    def _adopt(self, record: Mapping[str, Any]) -> None:
        """Apply a state that was loaded in the main process."""
        plan, begin, _ = resume_place(self._requested_plan, record["state"], batch_size=1, workers=1, worker=None)
        self._set_plan(plan)
        self._pass = SamplingPass(begin, is_loaded=True) if record["resumes"] else None


def _raising(problem: Exception) -> Iterator[Any]:
    """Return an iterator that raises an error."""
    raise problem
    yield


def _this_worker() -> Shard:
    info = torch.utils.data.get_worker_info()
    return Shard() if info is None else Shard(info.id, info.num_workers)
