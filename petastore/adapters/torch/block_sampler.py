"""BlockSampler: an order of rows that is kind to row groups, for `MapDataset`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils.data

from petastore.adapters.told_epochs import ToldEpochs
from petastore.adapters.torch.accelerated import refuse_dealing_out
from petastore.adapters.torch.map_dataset import MapDataset
from petastore.adapters.torch.sampling_pass import (
    Pass,
    refuse_unequal_rows,
    shard_of_this_process,
    told,
    worker_plan,
)
from petastore.adapters.torch.shared_state import LOADED_LATE
from petastore.callers import is_called_by_lightning
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.request import Shard, Tail, TailWord, whole_number
from petastore.plan.sharing.numbers import numbered_batches, plan_of_numbers
from petastore.plan.sharing.worker_state import dump_place, resume_place
from petastore.readers.execution.handouts import RaisesAfterErrors

__all__ = ["BlockSampler"]


class BlockSampler(torch.utils.data.DistributedSampler[Any]):
    """An order over the rows of a `MapDataset` that is kind to row groups: petastore's own, as row numbers.

    Rows are shuffled well, from as many row groups at a time as half the dataset's `cache_bytes` holds, and each row
    group is read about once an epoch. Ranks get exact shards of one order.

    With a `batch_size` it is a *batch sampler*: `DataLoader(dataset, batch_sampler=BlockSampler(dataset, batch_size=64,
    num_workers=4), num_workers=4)`. That is the way to go where there are worker processes or ranks, since only then
    can each worker have row groups of its own (torch deals batches to workers in turns, and every worker has a cache of
    its own) and each rank the same number of batches. Without one it gives single rows, as a `sampler=`.

    It is a DistributedSampler, so that trainers which give ranks one of torch's leave a `sampler=` of this kind alone,
    and tell it epochs. Accelerate's `prepare` would pick from its batches all the same, which is refused for a shard.

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
        last_batch: What becomes of the rows that fill no whole batch on every rank: `"even"` (each row once), `"drop"`,
            or `"wrap"` (some rows twice).
        shuffle_buffer_bytes: Bytes of row groups that the order is made for, over all ranks and workers; None is half
            of what the workers of this rank keep.

    Raises:
        InvalidArgumentError: Something that was asked for cannot be; or single rows of several ranks cannot be shared
            equally.
        NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.

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
        last_batch: TailWord | Tail = "even",
        shuffle_buffer_bytes: int | None = None,
    ) -> None:
        self.batch_size = None if batch_size is None else whole_number(batch_size, name="batch_size", least=1)
        self._size = self.batch_size or 1
        self._workers = max(whole_number(num_workers, name="num_workers", least=0), 1)
        if self.batch_size is None and num_workers:
            raise InvalidArgumentError(
                "num_workers needs a batch_size: torch deals whole batches to its workers; use "
                "DataLoader(dataset, batch_sampler=BlockSampler(dataset, batch_size=…, num_workers=…))"
            )
        shard = shard_of_this_process(num_replicas, rank)
        super().__init__(dataset, shard.count, shard.index, shuffle, seed)
        last_batch = Tail.parse(last_batch)
        if last_batch is Tail.PAD:
            raise InvalidArgumentError(
                "last_batch='pad' marks repeats in a column, and a sampler has none; use 'even' or 'wrap'"
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
        self._requested_plan = self._plan  # a state that is loaded changes the order of the other one
        self._steps = self._plan.steps_per_epoch(self._size)
        self._pass = Pass(Cursor())
        self._loads = 0  # states that were loaded
        self._epochs = ToldEpochs()

    def __len__(self) -> int:
        """Return the number of batches of the pass under way, or of the next one; of rows where it gives rows.

        It is the same on every rank. After `load_state_dict` these are the batches that are left. Lightning always gets
        the length of an epoch: it counts a resumed epoch from its first batch.
        """
        this = self._pass
        if this.is_over or is_called_by_lightning():
            return self._steps
        return (self._plan.steps_left(self._size, this.begin) or 0) - this.first

    def __iter__(self) -> Iterator[Any]:
        if self._plan.request.shard.count > 1:
            refuse_dealing_out(self, self._plan.request.shard)
        if not self._pass.is_loaded:
            # The epoch under way if nothing of it was taken, else the next one.
            self._pass = Pass(Cursor.of_epoch(self._pass.begin.epoch + (self._pass.given > 0)))
        self._pass.is_loaded = False
        return RaisesAfterErrors(self._batches(self._pass, self._loads))

    def _batches(self, this_pass: Pass, loads: int) -> Iterator[Any]:
        if loads != self._loads:  # since `iter()`, and no batch was taken yet
            loads, this_pass = self._loads, self._pass
            this_pass.is_loaded = False
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
        """The next pass is this epoch, from its first row; or goes on from where a state was loaded.

        Raises:
            InvalidArgumentError: It is no number of an epoch.

        Warns:
            UserWarning: It is neither the epoch of the state nor 0; see `DataLoader.set_epoch`.
        """
        epoch, loaded = told(self._epochs, self._pass, epoch)
        self._pass = loaded or Pass(Cursor.of_epoch(epoch))

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
        plan = worker_plan(self._plan, Shard(0, self._workers), self._pass.begin, self._size)
        return dump_place(plan, batches, self._size, of_all=True)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass goes on where the state was taken, and ends with that epoch.

        Raises:
            InvalidArgumentError: The state is of other data, another order, or of other workers; the difference is
                named.
        """
        self._plan, begin, given = resume_place(
            self._requested_plan, state, batch_size=self._size, workers=self._workers, worker=None
        )
        if begin != begin.pass_ends(1):  # it may be of a reader, whose passes may have several epochs
            begin = dataclasses.replace(begin, first_epoch=begin.epoch)
        self._pass = Pass(begin, given, given, is_loaded=True)
        self._loads += 1
