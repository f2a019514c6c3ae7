"""Hugging Face Accelerate: checks and progress reports for prepared loaders.

The checks raise an error if the reader is not sharded, or if Accelerate would shard its rows again. This module uses
Accelerate only if the program has imported it.
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
