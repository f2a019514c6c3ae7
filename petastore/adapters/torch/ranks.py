"""Rank of this process in torch.distributed or Accelerate, and checks of sharding.

A warning is shown if ranks were started after the loader was created. With Hugging Face Accelerate, an error is raised
if the reader is not sharded, or if Accelerate would shard its rows again. This module uses Accelerate only if the
program has imported it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
import torch.distributed

from petastore.callers import frames_inside_petastore
from petastore.distributed.current import launched_as
from petastore.errors import InvalidArgumentError, UnshardedReaderWarning
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Shard

__all__ = [
    "device_of_accelerate",
    "noted_by_accelerate",
    "ranks_known",
    "refuse_an_unsharded_loader",
    "refuse_dealing_out",
    "refuse_unequal_rows",
    "shard_of_this_process",
    "warn_of_ranks_since",
]


def ranks_known() -> int:
    """Return the number of ranks that a framework or launcher reports; 1 if unknown.

    Opening a reader without a shard warns if there are several ranks.
    """
    claim = launched_as()
    return 1 if claim is None else claim.shard.count


def warn_of_ranks_since(known: int, shard: Shard) -> None:
    """Warn if ranks were started after the loader was created.

    Each rank would then read all rows. Opening a reader already warns if there are several ranks. A trainer that starts
    the ranks itself, such as Lightning, has them only when the loader is iterated.

    Args:
        known: Result of `ranks_known` when the loader was created.
        shard: Shard that the loader reads.
    """
    if shard.count > 1 or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    ranks = torch.distributed.get_world_size()
    if ranks > known:
        warnings.warn(
            f"torch.distributed was initialized with {ranks} ranks after this loader was made, so each rank reads all "
            "rows. Open the reader after the ranks were started, such as in train_dataloader of a LightningModule, "
            "with cur_shard=self.trainer.global_rank, shard_count=self.trainer.world_size. If each rank should read "
            "all rows, pass cur_shard=0, shard_count=1",
            UnshardedReaderWarning,
            stacklevel=frames_inside_petastore() + 1,
        )


def shard_of_this_process(num_replicas: int | None, rank: int | None) -> Shard:
    """Return the shard of this process: the given rank, or that in torch.distributed.

    Return rank 0 of 1 if neither exists.

    Raises:
        InvalidArgumentError: Only one of `num_replicas` and `rank` is given; or the environment variable `WORLD_SIZE`
            announces several ranks, but torch.distributed is not initialized.
    """
    if (num_replicas is None) != (rank is None):
        raise InvalidArgumentError(
            f"num_replicas and rank must be given together, got num_replicas={num_replicas!r} and rank={rank!r}. "
            "Give both, or neither"
        )
    if num_replicas is not None and rank is not None:
        return Shard(rank, num_replicas)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Shard(torch.distributed.get_rank(), torch.distributed.get_world_size())
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InvalidArgumentError(
            f"torch.distributed must be initialized, because WORLD_SIZE is {os.environ['WORLD_SIZE']}, and the rank "
            "is unknown. Call torch.distributed.init_process_group first, or pass num_replicas and rank"
        )
    return Shard()


def refuse_unequal_rows(plan: Plan) -> None:
    """Raise an error if ranks have different numbers of rows.

    If torch makes batches of single rows, such ranks could have different numbers of batches.

    Raises:
        InvalidArgumentError: Ranks would have different numbers of rows.
    """
    ranks = plan.request.shard.count
    if plan.request.last_batch is LastBatch.EVEN and plan.num_rows % ranks:
        raise InvalidArgumentError(
            f"batch_size must be given where {plan.num_rows:,} rows do not divide equally among {ranks} ranks: a "
            "rank with one row more may have one batch more, and would wait forever for the others. Pass "
            "batch_size, which gives equal numbers of batches, or last_batch='drop' or 'wrap'"
        )


Item = TypeVar("Item")


def _processes() -> int:
    from accelerate.state import PartialState

    return int(PartialState().num_processes)


def device_of_accelerate() -> torch.device | None:
    """Return Accelerate's device for prepared models; None if it is not a CUDA device."""
    from accelerate.state import PartialState

    device: torch.device = PartialState().device
    return device if device.type == "cuda" else None


def refuse_an_unsharded_loader(shard: Shard) -> None:
    """Raise an error if the reader of a prepared loader is not sharded.

    Each process would otherwise train on all rows.

    Raises:
        InvalidArgumentError: Several processes read one shard.
    """
    processes = _processes()
    if processes > 1 == shard.count:
        raise InvalidArgumentError(
            "a prepared loader must read one shard per process, got a reader of all rows in each of Accelerate's "
            f"{processes} processes. Write make_reader(…, cur_shard=accelerator.process_index, "
            "shard_count=accelerator.num_processes), or leave the loader out of prepare if each process needs all "
            "rows"
        )


def refuse_dealing_out(source: object, shard: Shard) -> None:
    """Raise an error if Accelerate would divide the rows of a dataset or sampler.

    If the dataset is sharded, Accelerate would shard its rows a second time, and most rows would be lost. Otherwise,
    each process would read all rows, and some rows would be repeated to fill the last batch.

    Raises:
        InvalidArgumentError: Accelerate iterates over the dataset to divide it among several processes.
    """
    if "accelerate" not in sys.modules or not _is_being_dealt_out(source) or _processes() == 1:
        return
    name = type(source).__name__
    if shard.count > 1:
        already, write = f" (this loader already has only the rows of shard {shard.index} of {shard.count})", ""
    else:
        already = ""
        write = f"write {name}(…, cur_shard=accelerator.process_index, shard_count=accelerator.num_processes), "
    raise InvalidArgumentError(
        f"Accelerate must not divide the rows of a {name} among its {_processes()} processes, because it would lose or "
        f"repeat rows{already}. Leave the loader over this {name} out of prepare, {write}call set_epoch before each "
        "for, and move batches to the device in the loop; or prepare a petastore.adapters.torch.DataLoader, which "
        "Accelerate leaves unchanged"
    )


def _is_being_dealt_out(source: object) -> bool:
    from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, IterableDatasetShard
    from accelerate.state import GradientState

    # Accelerate has two kinds of loaders: one reads in one process for all processes, the other wraps the sampler.
    loader = GradientState().active_dataloader
    for names in (("dataset",), ("batch_sampler", "sampler")):
        deals_out = isinstance(loader, DataLoaderDispatcher)
        for layer in _layers(loader, names):
            if layer is source:
                return deals_out
            deals_out = deals_out or isinstance(layer, (IterableDatasetShard, BatchSamplerShard))
    return False


def _layers(outer: object, names: tuple[str, ...]) -> Iterator[object]:
    """Yield the objects that are wrapped in `outer`, from the outside in.

    A wrapped object is the first attribute of `names` that exists and is not None.
    """
    while True:
        inner = next((found for name in names if (found := getattr(outer, name, None)) is not None), None)
        if inner is None:
            return
        yield inner
        outer = inner


def noted_by_accelerate(items: Iterator[Item], is_last: Callable[[], bool]) -> Iterator[Item]:
    """Yield the batches of a loop, and report the progress of the loop to Accelerate.

    Accelerate learns when the loop runs, and which batch is the last.

    Args:
        items: Batches of one loop.
        is_last: Function that returns whether the last yielded batch was the last batch of the loop.
    """
    from accelerate.data_loader import DataLoaderStateMixin
    from accelerate.state import GradientState

    class Progress(DataLoaderStateMixin):  # type: ignore[misc]
        """Progress of the current loop.

        `Accelerator.accumulate` reads it, to step the optimizer at the last batch.
        """

        gradient_state = GradientState()

    progress = Progress()
    progress.begin()
    progress.remainder = 0  # no rows were repeated to fill the last batch
    try:
        for item in items:
            progress.end_of_dataloader = is_last()
            yield item
    finally:
        progress.end()
