"""Accelerate under `torchrun --max-restarts`: `save_state` includes the position of a prepared loader."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from neighbours.torch.programs.journal import EPOCHS, Journal
from petastore import make_reader
from petastore.adapters.torch import DataLoader


class Steps:
    """Counter of steps, for `register_for_checkpointing`."""

    taken = 0

    def state_dict(self) -> dict[str, Any]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.taken = state["taken"]


def main() -> None:
    """Train to the end, from the last checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every-epoch", action="store_true", help="a checkpoint at the end of each, not every 2 steps")
    asked = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    os.chdir(asked.folder)
    journal = Journal(asked.folder, accelerator.process_index)
    torch.manual_seed(0)
    steps = Steps()
    accelerator.register_for_checkpointing(steps)
    ranks = {"cur_shard": accelerator.process_index, "shard_count": accelerator.num_processes}
    with make_reader(asked.url, **ranks, shuffle_rows=True, seed=7) as reader:
        model: Any = torch.nn.Linear(4, 1)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(reader, batch_size=16))
        latest = asked.folder / "latest"
        if latest.exists():
            accelerator.load_state(latest.read_text())
        journal.resumed(steps.taken)
        for epoch in range(steps.taken // reader.steps_per_epoch(16), EPOCHS):
            loader.set_epoch(epoch)
            for batch in loader:
                step = steps.taken + 1
                journal.trained(step, epoch, batch["id"].tolist(), loader.state_dict())
                journal.perhaps_die(step, "forward")
                optimizer.zero_grad()
                accelerator.backward(torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"]))
                optimizer.step()
                steps.taken = step
                journal.perhaps_die(step, "step")
                if step % (reader.steps_per_epoch(16) if asked.every_epoch else 2) == 0:
                    folder = asked.folder / f"step-{step}"
                    accelerator.save_state(str(folder))
                    accelerator.wait_for_everyone()
                    if accelerator.is_main_process:
                        Path("new").write_text(str(folder))
                        Path("new").replace(latest)
                journal.perhaps_die(step, "saved")
    with make_reader(asked.url, cur_shard=0, shard_count=1, shuffle_row_groups=False) as reader, torch.no_grad():
        (rows,) = DataLoader(reader, batch_size=1000)
        journal.end(torch.nn.functional.mse_loss(model(rows["x"])[:, 0], rows["y"]).item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
