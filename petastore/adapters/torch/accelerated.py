"""Hugging Face Accelerate, in a program that uses it: whose rows it takes, and what it wants to know of a pass.

Nothing is imported that the program has not imported itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

__all__ = ["device_of_accelerate", "noted_by_accelerate", "refuse_an_unsharded_loader", "refuse_dealing_out"]

Item = TypeVar("Item")


def _processes() -> int:
    from accelerate.state import PartialState

    return int(PartialState().num_processes)


def device_of_accelerate() -> torch.device | None:
    """Where models go that it prepared, if that is a CUDA device."""
    from accelerate.state import PartialState

    device: torch.device = PartialState().device
    return device if device.type == "cuda" else None


def refuse_an_unsharded_loader(shard: Shard) -> None:
    """For who is prepared: each process would train on all rows.

    Raises:
        InvalidArgumentError: There are several processes, and one shard.
    """
    processes = _processes()
    if processes > 1 == shard.count:
        raise InvalidArgumentError(
            f"this loader cannot be prepared: Accelerate has {processes} processes, and the reader gives all rows to "
            "each of them; write make_reader(…, cur_shard=accelerator.process_index, "
            "shard_count=accelerator.num_processes), or leave the loader out of prepare where each process is to see "
            "everything"
        )


def refuse_dealing_out(source: object, shard: Shard) -> None:
    """For a dataset or sampler under torch's own loader, of which Accelerate makes one that deals out rows or batches.

    Of a shard, that loses most rows. Of a dataset that is not sharded, it reads all of it on each process, or on one
    for all, and gives some rows twice to fill the last batch.

    Raises:
        InvalidArgumentError: Accelerate iterates it now, to deal it out among several processes.
    """
    if "accelerate" not in sys.modules or not _is_being_dealt_out(source) or _processes() == 1:
        return
    name = type(source).__name__
    if shard.count > 1:
        already, write = f", and these are the rows of shard {shard.index} of {shard.count} already", ""
    else:
        already = ""
        write = f"write {name}(…, cur_shard=accelerator.process_index, shard_count=accelerator.num_processes), "
    raise InvalidArgumentError(
        f"Accelerate deals out what a prepared loader has among its {_processes()} processes{already}, so that rows "
        f"would be lost or doubled. Leave the loader over this {name} out of prepare, {write}call set_epoch before "
        "each for, and move batches to the device in the loop; or prepare a petastore.adapters.torch.DataLoader, "
        "which Accelerate leaves as it is"
    )


def _is_being_dealt_out(source: object) -> bool:
    from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, IterableDatasetShard
    from accelerate.state import GradientState

    # One of Accelerate's loaders reads on one process for all; in the other, something that picks is wrapped around.
    loader = GradientState().active_dataloader
    for names in (("dataset",), ("batch_sampler", "sampler")):
        deals_out = isinstance(loader, DataLoaderDispatcher)
        for layer in _layers(loader, names):
            if layer is source:
                return deals_out
            deals_out = deals_out or isinstance(layer, (IterableDatasetShard, BatchSamplerShard))
    return False


def _layers(outer: object, names: tuple[str, ...]) -> Iterator[object]:
    """What something reads by these attributes, what that reads, and so on."""
    while True:
        inner = next((found for name in names if (found := getattr(outer, name, None)) is not None), None)
        if inner is None:
            return
        yield inner
        outer = inner


class _UnderWay:
    """What Accelerate asks the loader that is iterated: `accumulate` steps with the last batch, however many came."""

    end_of_dataloader = False
    remainder = 0
    """Rows that were repeated to fill the last batch: none."""


def noted_by_accelerate(items: Iterator[Item], is_last: Callable[[], bool]) -> Iterator[Item]:
    """The same items, while Accelerate knows that a loader is iterated, and which of them is the last.

    Args:
        items: Batches of a pass.
        is_last: Whether the one that was given last is the last of the pass.
    """
    from accelerate.state import GradientState

    state, pass_ = GradientState(), _UnderWay()
    state._add_dataloader(pass_)  # noqa: SLF001 (what Accelerate's own loaders call, and all that there is)
    try:
        for item in items:
            pass_.end_of_dataloader = is_last()
            yield item
    finally:
        state._remove_dataloader(pass_)  # noqa: SLF001
