"""How far one iteration of a sampler or dataset has come, and what of it falls to this process."""

from __future__ import annotations

import dataclasses
import os

import torch
import torch.utils.data

from petastore.adapters.told_epochs import ToldEpochs, going_on
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Shard, Tail, whole_number
from petastore.plan.sharing.workers import WorkerPlan

__all__ = ["Pass", "refuse_unequal_rows", "shard_of_this_process", "told", "worker_plan"]


@dataclasses.dataclass
class Pass:
    """How far one iteration has come."""

    begin: Cursor
    given: int = 0
    """Batches since then: of the worker that this process is, or of all where they are made here."""
    first: int = 0
    """How many of these were made before the state that it comes from."""
    is_loaded: bool = False
    """Whether it comes from a state, and nobody has begun to iterate it."""
    is_own: bool = False
    """Whether a worker process loaded the state for itself."""
    is_resumed: bool = False
    """Whether a loop began with it where a state was loaded."""
    is_begun: bool = False
    """Whether the first batch was asked for."""
    is_over: bool = False
    """Whether this process has given its last batch."""


def told(epochs: ToldEpochs, this_pass: Pass | None, number: int) -> tuple[int, Pass | None]:
    """The epoch that is meant by a number, and the pass that goes on in it, where one was loaded and has not begun."""
    number = whole_number(number, name="epoch", least=0)
    if this_pass is None or not this_pass.is_loaded:
        return epochs.meant(number), None
    epoch = epochs.meant(number, this_pass.begin, given=this_pass.given)
    begin = going_on(this_pass.begin, epoch)
    return epoch, None if begin is None else dataclasses.replace(this_pass, begin=begin)


def shard_of_this_process(num_replicas: int | None, rank: int | None) -> Shard:
    """The rank that was given, or that of torch.distributed; the only one where neither says anything."""
    if (num_replicas is None) != (rank is None):
        raise InvalidArgumentError(f"num_replicas={num_replicas!r} and rank={rank!r}: give both, or neither")
    if num_replicas is not None and rank is not None:
        return Shard(rank, num_replicas)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Shard(torch.distributed.get_rank(), torch.distributed.get_world_size())
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InvalidArgumentError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but torch.distributed is not initialised, so nobody knows "
            "which rank this is; call torch.distributed.init_process_group first, or give num_replicas and rank"
        )
    return Shard()


def worker_plan(plan: Plan, worker: Shard, begin: Cursor, batch_size: int) -> WorkerPlan:
    """What one worker reads of a rank's plan, in a pass that begins at a cursor."""
    return WorkerPlan(plan.inventory, plan.request, plan.selection, worker=worker, begin=begin, batch_size=batch_size)


def refuse_unequal_rows(plan: Plan) -> None:
    """Row by row, torch makes the batches, and one row more on one rank may be one batch more.

    Raises:
        InvalidArgumentError: Ranks would have different numbers of rows.
    """
    ranks = plan.request.shard.count
    if plan.request.last_batch is Tail.EVEN and plan.num_rows % ranks:
        raise InvalidArgumentError(
            f"{plan.num_rows:,} rows cannot be shared equally, row by row, by {ranks} ranks, and a rank with one row "
            "more may have one batch more, for which the others do not wait; give batch_size, which makes whole "
            "batches and as many on each rank, or last_batch='drop' or 'wrap'"
        )
