"""What each rank does: read its part, train a small network in step with the others, and count what it gets right."""

from __future__ import annotations

import dataclasses
import gc
import os
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as nn
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch.nn.parallel import DistributedDataParallel

from examples.digits.schema import LEVELS, dataset_url
from petastore import make_reader
from petastore.adapters.torch import DataLoader

__all__ = ["Report", "Settings", "run_rank"]

LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all ranks are told."""

    directory: Path
    ranks: int = 2
    epochs: int = 20
    batch_size: int = 32
    seed: int = 7


@dataclasses.dataclass(frozen=True)
class Report:
    """What a rank tells."""

    rank: int
    steps: int
    rows: int
    seconds: float
    correct: int
    """Of all ranks together."""
    held_out: int
    """Rows that all ranks together were asked about."""


class Network(torch.nn.Module):
    """Two convolutions and one layer on top; takes images `(rows, 8, 8)` of uint8."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(1, 32, 3, padding=1)
        self.second = torch.nn.Conv2d(32, 64, 3, padding=1)
        self.last = torch.nn.Linear(64 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of the ten digits, `(rows, 10)`."""
        pixels = images.unsqueeze(1).float() / LEVELS
        hidden = nn.relu(self.second(nn.relu(self.first(pixels))))
        hidden = nn.dropout(nn.max_pool2d(hidden, 2).flatten(1), 0.4, self.training)
        scores: torch.Tensor = self.last(hidden)
        return scores


def run_rank(rank: int, settings: Settings, port: int, reports: Any) -> None:
    """Train as one rank of several, each in a process of its own.

    Args:
        rank: This rank, from 0.
        settings: The same on all ranks.
        port: Where the parent's store listens, on this machine.
        reports: A queue for this rank's `Report`.
    """
    torch.set_num_threads(1)  # the ranks share the machine, and this network is small
    torch.manual_seed(settings.seed)
    if "lo" in {name for _, name in socket.if_nameindex()}:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # gradients stay on this machine
    store = dist.TCPStore(LOOPBACK, port, settings.ranks, is_master=False)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=settings.ranks, timeout=timedelta(minutes=2))
    try:
        reports.put(dataclasses.astuple(_train_and_test(rank, settings)))
        dist.barrier()
    finally:
        # gloo's threads end with the last reference to the group, and a wrapped model in a reference cycle is one. A
        # rank that ends before them is aborted: they need Python to let go of the last tensors.
        gc.collect()
        dist.destroy_process_group()


def _train_and_test(rank: int, settings: Settings) -> Report:
    model = DistributedDataParallel(Network())
    torch.manual_seed(settings.seed + rank)  # each rank drops out other values
    steps, rows, seconds = _train(model, rank, settings)
    correct, held_out = _test(model, rank, settings)
    return Report(rank, steps, rows, seconds, correct, held_out)


def _train(model: torch.nn.Module, rank: int, settings: Settings) -> tuple[int, int, float]:
    """Steps, rows and seconds of this rank."""
    steps = rows = 0
    began = time.perf_counter()
    with make_reader(
        dataset_url(settings.directory, "train"),
        cur_shard=rank,
        shard_count=settings.ranks,
        seed=settings.seed,
        shuffle_rows=True,
        num_epochs=settings.epochs,
    ) as reader:
        loader = DataLoader(reader, batch_size=settings.batch_size)
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=len(loader))
        with _progress(rank) as progress:
            task = progress.add_task("training", total=len(loader), loss=float("nan"))
            for batch in loader:
                loss = nn.cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                steps += 1
                rows += len(batch["id"])
                progress.update(task, advance=1, loss=loss.item())
    return steps, rows, time.perf_counter() - began


def _test(model: torch.nn.Module, rank: int, settings: Settings) -> tuple[int, int]:
    """How many held-out digits all ranks together got right, and how many there were."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64)
    url = dataset_url(settings.directory, "test")
    with torch.no_grad(), make_reader(url, cur_shard=rank, shard_count=settings.ranks) as reader:
        for batch in DataLoader(reader, batch_size=settings.batch_size):
            right = model(batch["image"]).argmax(dim=1) == batch["label"]
            counts += torch.tensor([int(right.sum()), len(right)])
    dist.all_reduce(counts)
    correct, held_out = counts.tolist()
    return correct, held_out


def _progress(rank: int) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps, loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
        console=Console(quiet=rank != 0),
    )
