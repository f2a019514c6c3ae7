"""Lightning on two ranks: load states late, twice, into workers, at an epoch's end, and with a filter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch

from neighbours.torch.programs.gathered import tell
from petastore import col, make_reader
from petastore.adapters.torch import DataLoader
from petastore.errors import PetastoreError


class Noting(lightning.LightningModule):  # type: ignore[misc]
    """A model that records the batches of each epoch, and can call a function after a step.

    Args:
        url: The dataset.
        after: Functions to call after a step, by its number from 1.
        asked: Parameters of the reader.
    """

    def __init__(self, url: str, after: dict[int, Callable[[Any], None]] | None = None, **asked: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.url, self.after, self.asked = url, after or {}, asked
        self.epochs: dict[int, list[list[int]]] = {}

    def train_dataloader(self) -> DataLoader:
        ranks = {"cur_shard": self.trainer.global_rank, "shard_count": self.trainer.world_size}
        self.loader = DataLoader(make_reader(self.url, **ranks, shuffle_rows=True, seed=7, **self.asked), batch_size=16)
        return self.loader

    def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
        self.epochs.setdefault(self.current_epoch, []).append(batch["id"].tolist())
        return torch.nn.functional.mse_loss(self.layer(batch["x"])[:, 0], batch["y"])

    def on_train_batch_end(self, *_: Any) -> None:
        self.after.get(self.trainer.global_step, lambda _: None)(self)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def trainer(epochs: int, **asked: Any) -> lightning.Trainer:
    quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=2, strategy="ddp", enable_checkpointing=False, **quiet, **asked
    )


def fit(module: Noting, epochs: int, path: Path | None = None, **asked: Any) -> Any:
    """Return the batches of each epoch of a training run, or its error as text."""
    try:
        trainer(epochs, **asked).fit(module, ckpt_path=path, weights_only=False)
    except PetastoreError as problem:
        return f"{type(problem).__name__}: {problem}"
    finally:
        module.loader.reader.stop()
    return module.epochs


def main(url: str, folder: str) -> None:
    """Run and print every case."""

    def saved(step: int, **asked: Any) -> Path:
        """Return the path of a checkpoint after a step."""
        path = Path(folder) / f"after {step} {sorted(asked)}.ckpt"
        fit(Noting(url, {step: lambda module: module.trainer.save_checkpoint(path)}, **asked), 2, max_steps=step)
        return path

    def load_late(module: Noting) -> None:
        module.loader.load_state_dict(states[0])

    states: list[Any] = []
    tell("whole", fit(Noting(url), 3))
    third, fifth = saved(3), saved(5)
    module = Noting(url, {3: lambda module: states.append(module.loader.state_dict())})
    fit(module, 1)
    tell("late", fit(Noting(url, {2: load_late}), 2))
    module = Noting(url)
    tell("twice", [fit(module, 2, third), fit(Noting(url), 2, fifth), fit(Noting(url), 2, fifth)])
    workers: Any = {"reader_pool_type": "process", "workers_count": 2}
    tell("into_workers", fit(Noting(url, **workers), 2, saved(3, **workers)))
    tell("at_the_end", fit(Noting(url), 3, saved(7)))
    behind: Any = {"filters": col("id") >= 50}
    tell("filtered", fit(Noting(url, **behind), 2))
    tell("behind_a_filter", fit(Noting(url, **behind), 2, saved(3, **behind)))
    tell("behind_another_filter", fit(Noting(url, filters=col("id") >= 60), 2, saved(3, **behind)))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
