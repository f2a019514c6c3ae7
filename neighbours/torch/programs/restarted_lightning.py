"""Lightning under `torchrun --max-restarts`: `fit(ckpt_path=…)` resumes in the middle of an epoch."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from neighbours.torch.programs.journal import EPOCHS, Journal
from petastore import make_reader
from petastore.adapters.torch import DataLoader


class Regression(lightning.LightningModule):  # type: ignore[misc]
    """One linear layer that records its training."""

    def __init__(self, url: str, journal: Journal) -> None:
        super().__init__()
        self.url, self.journal = url, journal
        self.layer = torch.nn.Linear(4, 1)

    def train_dataloader(self) -> DataLoader:
        ranks = {"cur_shard": self.trainer.global_rank, "shard_count": self.trainer.world_size}
        self.loader = DataLoader(make_reader(self.url, **ranks, shuffle_rows=True, seed=7), batch_size=16)
        return self.loader

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_train_start(self) -> None:
        self.journal.resumed(self.trainer.global_step)

    def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
        step = self.trainer.global_step + 1
        self.journal.trained(step, self.current_epoch, batch["id"].tolist(), self.loader.state_dict())
        self.journal.perhaps_die(step, "forward")
        return torch.nn.functional.mse_loss(self.layer(batch["x"])[:, 0], batch["y"])

    def optimizer_step(self, *given: Any, **named: Any) -> None:
        step = self.trainer.global_step + 1
        super().optimizer_step(*given, **named)
        self.journal.perhaps_die(step, "step")

    def on_train_batch_end(self, *_: Any) -> None:
        self.journal.perhaps_die(self.trainer.global_step, "saved")

    def on_train_end(self) -> None:
        self.loader.__exit__(None, None, None)


def main() -> None:
    """Train to the end, from the last checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every-epoch", action="store_true", help="a checkpoint at the end of each, not every 2 steps")
    asked = parser.parse_args()
    torch.manual_seed(0)
    journal = Journal(asked.folder, int(os.environ["RANK"]))
    last = asked.folder / "last.ckpt"
    often: Any = {"every_n_epochs": 1} if asked.every_epoch else {"every_n_train_steps": 2}
    kept = ModelCheckpoint(asked.folder, filename="last", **often, enable_version_counter=False)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        callbacks=[kept],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
    )
    module = Regression(asked.url, journal)
    trainer.fit(module, ckpt_path=last if last.exists() else None, weights_only=False)
    with make_reader(asked.url, cur_shard=0, shard_count=1, shuffle_row_groups=False) as reader, torch.no_grad():
        (rows,) = DataLoader(reader, batch_size=1000)
        journal.end(torch.nn.functional.mse_loss(module.layer(rows["x"])[:, 0], rows["y"]).item())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
