"""Accelerate on two ranks: pass sharded loaders to `prepare`, and print the trained rows or the error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches

from neighbours.torch.programs.gathered import tell
from petastore import make_reader
from petastore.adapters.torch import BlockSampler, DataLoader, MapDataset, ReaderDataset
from petastore.errors import InvalidArgumentError


def trained(loader: Iterable[Any]) -> list[int]:
    """Return the rows that a loop trains on."""
    return [i for batch in loader for i in batch["id"].tolist()]


def of(case: str, loop: Callable[[], Any]) -> None:
    """Print the result of a loop, or its error."""
    try:
        tell(case, loop())
    except InvalidArgumentError as refusal:
        tell(case, str(refusal))


def main(url: str) -> None:
    """Run and print every case."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    fetching = Accelerator(
        cpu=True,
        gradient_accumulation_steps=4,
        dataloader_config=DataLoaderConfiguration(dispatch_batches=False),
    )
    ranks: Any = {"cur_shard": accelerator.process_index, "shard_count": accelerator.num_processes}

    def loader(**asked: Any) -> DataLoader:
        return DataLoader(make_reader(url, ["id"], **(ranks | asked)), batch_size=16)

    def torchs_own(batch_size: int | None, outer: int | None) -> Any:
        return torch.utils.data.DataLoader(
            ReaderDataset(url, ["id"], batch_size=batch_size, **ranks, last_batch="drop"), outer
        )

    def batched(sampler: BlockSampler) -> Any:
        return torch.utils.data.DataLoader(sampler.dataset, batch_sampler=sampler)

    of("reader", lambda: trained(accelerator.prepare(loader())))
    of("reader, each fetches", lambda: trained(fetching.prepare(loader())))
    of("reader that is not sharded", lambda: accelerator.prepare(loader(cur_shard=0, shard_count=1)))
    of("batches of a dataset", lambda: trained(accelerator.prepare(torchs_own(16, None))))
    of("batches of a dataset, each fetches", lambda: trained(fetching.prepare(torchs_own(16, None))))
    of("rows of a dataset, each fetches", lambda: trained(fetching.prepare(torchs_own(None, 16))))
    of("dataset beside a prepared model", lambda: trained(torchs_own(16, None)))
    birds = MapDataset(url, ["id"])
    of("batch sampler", lambda: trained(accelerator.prepare(batched(BlockSampler(birds, batch_size=16)))))
    of("batch sampler beside a prepared model", lambda: trained(batched(BlockSampler(birds, batch_size=16))))
    rows = torch.utils.data.DataLoader(birds, 16, sampler=BlockSampler(birds, last_batch="drop"))
    of("sampler of rows", lambda: trained(accelerator.prepare(rows)))
    of("skipping", lambda: trained(skip_first_batches(accelerator.prepare(loader()), 2)))
    of(
        "somebody else's loader over ours",
        lambda: trained(torch.utils.data.DataLoader(loader().dataset, batch_size=16)),
    )

    stepped = []
    prepared = accelerator.prepare(loader())
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    for batch in prepared:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch["id"][:, None].float()).mean())
            stepped.append(accelerator.sync_gradients)
    tell("stepped", stepped)
    tell("under way after the loop", accelerator.gradient_state.in_dataloader)
    # If a model outlives its process group, torch often aborts the process at exit on a busy machine.
    accelerator.free_memory()
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
