"""DDP under `torchrun --max-restarts`: resumes from the last checkpoint, an ordinary file or a distributed one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn.parallel import DistributedDataParallel

from neighbours.torch.programs.journal import EPOCHS, Journal
from petastore import make_reader
from petastore.adapters.torch import DataLoader


class OneFile:
    """Rank 0 writes the checkpoint to one file, which is replaced atomically."""

    def __init__(self, folder: Path, model: Any, optimizer: Any, loader: DataLoader) -> None:
        self._path = folder / "checkpoint.pt"
        self._parts = {"model": model, "optimizer": optimizer, "loader": loader}

    def save(self, step: int) -> None:
        if dist.get_rank() == 0:
            torch.save({"step": step, **{name: part.state_dict() for name, part in self._parts.items()}}, "new.pt")
            Path("new.pt").replace(self._path)

    def load(self) -> int:
        if not self._path.exists():
            return 0
        saved = torch.load(self._path, weights_only=True)
        for name, part in self._parts.items():
            part.load_state_dict(saved[name])
        return int(saved["step"])


class Distributed:
    """All ranks write their parts to a folder per step; a file has the name of the last complete one."""

    def __init__(self, folder: Path, model: Any, optimizer: Any, loader: DataLoader) -> None:
        self._folder = folder
        self._model, self._optimizer, self._loader = model, optimizer, loader

    def save(self, step: int) -> None:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        parts = {"model": model, "optimizer": optimizer, "loader": self._loader}
        save(parts, checkpoint_id=self._folder / f"step-{step}")
        if dist.get_rank() == 0:
            Path("new").write_text(str(step))
            Path("new").replace(self._folder / "latest")

    def load(self) -> int:
        latest = self._folder / "latest"
        if not latest.exists():
            return 0
        step = int(latest.read_text())
        model, optimizer = get_state_dict(self._model, self._optimizer)
        parts = {"model": model, "optimizer": optimizer, "loader": self._loader}
        load(parts, checkpoint_id=self._folder / f"step-{step}")  # calls the loader's load_state_dict, too
        set_state_dict(self._model, self._optimizer, model_state_dict=model, optim_state_dict=optimizer)
        return step


def main() -> None:
    """Train to the end, from the last checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--distributed-checkpoint", action="store_true")
    asked = parser.parse_args()
    dist.init_process_group("gloo")
    os.chdir(asked.folder)
    journal = Journal(asked.folder, dist.get_rank())
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    ranks: Any = {"cur_shard": dist.get_rank(), "shard_count": dist.get_world_size()}
    with make_reader(asked.url, **ranks, shuffle_rows=True, seed=7, num_epochs=EPOCHS) as reader:
        loader = DataLoader(reader, batch_size=16)
        checkpoint = (Distributed if asked.distributed_checkpoint else OneFile)(asked.folder, model, optimizer, loader)
        step = checkpoint.load()
        journal.resumed(step)
        for batch in loader:
            step += 1
            epoch = (step - 1) // reader.steps_per_epoch(16)
            journal.trained(step, epoch, batch["id"].tolist(), loader.state_dict())
            journal.perhaps_die(step, "forward")
            optimizer.zero_grad()
            loss: Any = torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
            loss.backward()
            optimizer.step()
            journal.perhaps_die(step, "step")
            if step % 2 == 0:
                checkpoint.save(step)
            journal.perhaps_die(step, "saved")
    with make_reader(asked.url, cur_shard=0, shard_count=1, shuffle_row_groups=False) as reader, torch.no_grad():
        (rows,) = DataLoader(reader, batch_size=1000)
        journal.end(torch.nn.functional.mse_loss(model(rows["x"])[:, 0], rows["y"]).item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
