"""Lightning's Fabric under `torchrun --max-restarts`: it counts epochs from 0 in each process, and resumes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch

from neighbours.torch.programs.journal import EPOCHS, Journal
from petastore import make_reader
from petastore.adapters.torch import DataLoader


def train(fabric: lightning.Fabric, url: str, folder: Path, journal: Journal) -> torch.nn.Module:
    """Train to the last epoch, from the last checkpoint, and return the model."""
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))
    ranks = {"cur_shard": fabric.global_rank, "shard_count": fabric.world_size}
    last = folder / "last.ckpt"
    with make_reader(url, **ranks, shuffle_rows=True, seed=7) as reader:
        # Fabric saves objects with a state_dict. Its wrapper of a loader has none, so the loader itself is passed.
        loader = DataLoader(reader, batch_size=16)
        batches = fabric.setup_dataloaders(loader)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer, "loader": loader, "step": 0, "epoch": 0}
        if last.exists():
            fabric.load(last, state)
        journal.resumed(state["step"])
        for epoch in range(state["epoch"], EPOCHS):
            state["epoch"] = epoch
            for batch in batches:
                state["step"] += 1
                step = state["step"]
                journal.trained(step, epoch, batch["id"].tolist(), loader.state_dict())
                loss = torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
                journal.perhaps_die(step, "forward")
                fabric.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                journal.perhaps_die(step, "step")
                if step % 2 == 0:
                    fabric.save(last, state)
                    fabric.barrier()
                journal.perhaps_die(step, "saved")
    return net


def main() -> None:
    """Train, and record the loss over all rows."""
    url, folder = sys.argv[1], Path(sys.argv[2])
    journal = Journal(folder, int(os.environ["RANK"]))
    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    net = train(fabric, url, folder, journal)
    with make_reader(url, cur_shard=0, shard_count=1, shuffle_row_groups=False) as reader, torch.no_grad():
        (rows,) = DataLoader(reader, batch_size=1000)
        journal.end(torch.nn.functional.mse_loss(net(rows["x"])[:, 0], rows["y"]).item())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
