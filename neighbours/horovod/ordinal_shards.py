"""A control: digits dealt to Horovod's ranks as Petastorm deals them, row group n to rank n modulo ranks.

`horovodrun -np 2 python -m neighbours.horovod.ordinal_shards DIRECTORY`, after `examples.horovod_digits` has written
its digits there. Nothing else differs: the same network, batches and optimizer, one epoch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import horovod.torch as hvd
import torch
import torch.nn.functional as nn
from torch.utils.data import Subset

from examples.digits.schema import dataset_url
from examples.digits.train import Network
from petastore import open_dataset
from petastore.adapters.torch import MapDataset

BATCH_SIZE = 32


def rows_of(rank: int, ranks: int, row_groups: list[int]) -> list[int]:
    """Numbers of a rank's rows, where row groups have so many rows."""
    begins = [sum(row_groups[:number]) for number in range(len(row_groups))]
    mine = range(rank, len(row_groups), ranks)
    return [begins[number] + row for number in mine for row in range(row_groups[number])]


def main(directory: Path) -> None:
    """Train one epoch; says how many steps this rank has. The one with fewer ends first, and lets the others down."""
    hvd.init()
    torch.set_num_threads(1)
    dataset = open_dataset(dataset_url(directory, "train"))
    mine = rows_of(hvd.rank(), hvd.size(), dataset.inventory.rows.tolist())
    loader = torch.utils.data.DataLoader(Subset(MapDataset(dataset), mine), batch_size=BATCH_SIZE, shuffle=True)
    model = Network()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    print(f"rank {hvd.rank()} has {len(loader)} steps", flush=True)
    for batch in loader:
        optimizer.zero_grad()
        nn.cross_entropy(model(batch["image"]), batch["label"]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    print(f"rank {hvd.rank()} has done them", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
