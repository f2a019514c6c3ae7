"""Ray Train: `TorchTrainer` restarts its workers, and they resume from the last reported checkpoint."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

from neighbours.torch.programs.journal import EPOCHS, Journal
from petastore import make_reader
from petastore.adapters.torch import DataLoader


def train(asked: dict[str, Any]) -> None:
    """Train in one of two workers, from the last checkpoint."""
    context = ray.train.get_context()
    rank = context.get_world_rank()
    journal = Journal(asked["folder"], rank)
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    ranks = {"cur_shard": rank, "shard_count": context.get_world_size()}
    with make_reader(asked["url"], **ranks, shuffle_rows=True, seed=7, num_epochs=EPOCHS) as reader:
        loader = DataLoader(reader, batch_size=16)
        parts = {"model": model, "optimizer": optimizer, "loader": loader}
        step = 0
        last = ray.train.get_checkpoint()
        if last is not None:
            with last.as_directory() as folder:
                saved = torch.load(Path(folder) / "state.pt", weights_only=True)
            step = saved["step"]
            for name, part in parts.items():
                part.load_state_dict(saved[name])
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
                with tempfile.TemporaryDirectory() as folder:
                    checkpoint = None
                    if rank == 0:  # the states are the same on every rank
                        states = {name: part.state_dict() for name, part in parts.items()}
                        torch.save({"step": step, **states}, Path(folder) / "state.pt")
                        checkpoint = Checkpoint.from_directory(folder)
                    ray.train.report({"step": step}, checkpoint=checkpoint)
            journal.perhaps_die(step, "saved")
    with make_reader(asked["url"], cur_shard=0, shard_count=1, shuffle_row_groups=False) as reader, torch.no_grad():
        (rows,) = DataLoader(reader, batch_size=1000)
        journal.end(torch.nn.functional.mse_loss(model(rows["x"])[:, 0], rows["y"]).item())


def main() -> None:
    """Train to the end, with as many restarts as needed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("ray_folder")
    asked = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, _temp_dir=asked.ray_folder)
    try:
        TorchTrainer(
            train,
            train_loop_config={"url": asked.url, "folder": str(asked.folder)},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name="run",
                storage_path=str(asked.folder),
                failure_config=FailureConfig(max_failures=3),
                checkpoint_config=CheckpointConfig(num_to_keep=1),
            ),
        ).fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
