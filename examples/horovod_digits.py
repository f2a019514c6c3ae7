"""Handwritten digits on the ranks of Horovod: `horovodrun -np 2 python -m examples.horovod_digits`, or `make horovod`.

Each rank reads its share of scikit-learn's digits and trains in step with the others. At the end all of it is checked:
the same steps on every rank, each row once in each epoch, the accuracy on digits that were held out. On machines with
GPUs each rank takes one, and batches are copied there while the one before trains.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import torch
import torch.nn.functional as nn
from sklearn.datasets import load_digits

from examples.digits.schema import DigitSchema, dataset_url
from examples.digits.train import Network
from petastore import make_reader, write_dataset
from petastore.adapters.torch import DataLoader
from petastore.distributed import horovod_all_gather

TRAIN_ROW_GROUPS = (300, 17, 401, 89, 250, 3, 377)
"""Rows of each row group; no two alike, as filters and appended data leave them."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all ranks are told."""

    directory: Path
    epochs: int = 20
    batch_size: int = 32
    seed: int = 7


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a rank has done."""

    steps: int
    ids: list[int]
    """Of the rows that it trained on, in turn."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as one of Horovod's ranks; 0 where everything is as it should be."""
    hvd.init()
    parser = argparse.ArgumentParser(prog="python -m examples.horovod_digits", description=__doc__)
    parser.add_argument("--directory", type=Path, help="where the datasets go; a temporary folder unless given")
    for name in ("epochs", "batch_size", "seed"):
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=getattr(Settings, name), help="default %(default)s")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="digits-") as scratch:
        options.directory = hvd.broadcast_object(options.directory or Path(scratch))
        settings = Settings(**vars(options))
        if hvd.rank() == 0:
            write_digits(settings)
        hvd.barrier()
        code = _train_and_check(settings)
        hvd.barrier()  # rank 0 removes its temporary folder when all have read
    return code


def write_digits(settings: Settings) -> None:
    """Write 1,437 digits to train on and 360 to hold out, without Spark."""
    digits = load_digits()
    order = np.random.default_rng(settings.seed).permutation(len(digits.target))
    borders = np.cumsum([0, *TRAIN_ROW_GROUPS, len(order) - sum(TRAIN_ROW_GROUPS)])
    for number, (begin, end) in enumerate(itertools.pairwise(borders)):
        split = "train" if number < len(TRAIN_ROW_GROUPS) else "test"
        ids = order[begin:end]
        rows = ({"id": i, "image": digits.images[i].astype(np.uint8), "label": digits.target[i]} for i in ids)
        write_dataset(
            dataset_url(settings.directory, split),
            DigitSchema,
            rows,
            mode="append" if split == "train" and number else "overwrite",
            rows_per_row_group=len(ids),
        )


def _train_and_check(settings: Settings) -> int:
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", hvd.local_rank())  # one GPU for each rank of this machine
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    model = Network().to(device)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(settings.seed + hvd.rank())  # each rank drops out other values
    reports = hvd.allgather_object(_train(model, settings, device))
    accuracy = _accuracy(model, settings, device)
    if hvd.rank() != 0:
        return 0
    steps = [report.steps for report in reports]
    seen = collections.Counter(itertools.chain.from_iterable(report.ids for report in reports))
    is_exact = len(seen) == sum(TRAIN_ROW_GROUPS) and set(seen.values()) == {settings.epochs}
    print(
        f"horovod_digits: accuracy {accuracy:.3f}, {hvd.size()} ranks, steps {steps}, {len(seen):,} rows, "
        f"{'each' if is_exact else 'NOT each'} once in each of {settings.epochs} epochs",
        flush=True,
    )
    return 0 if accuracy >= 0.97 and is_exact and len(set(steps)) == 1 else 1


def _train(model: torch.nn.Module, settings: Settings, device: torch.device) -> Trained:
    """Train in step with the other ranks. They all have `len(loader)` batches, so nobody has to `hvd.join()`."""
    with make_reader(
        dataset_url(settings.directory, "train"),
        cur_shard=hvd.rank(),
        shard_count=hvd.size(),
        seed=settings.seed,
        shuffle_rows=True,
        num_epochs=settings.epochs,
    ) as reader:
        reader.plan.assert_agreed(horovod_all_gather)  # once; afterwards nobody talks about data
        loader = DataLoader(reader, batch_size=settings.batch_size, device=None if device.type == "cpu" else device)
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=len(loader))
        steps, ids = 0, []
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.cross_entropy(model(batch["image"]), batch["label"])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            steps += 1
            ids += batch["id"].tolist()
    return Trained(steps, ids)


@torch.no_grad()
def _accuracy(model: torch.nn.Module, settings: Settings, device: torch.device) -> float:
    """The share of the held-out digits that is right, of all ranks together."""
    model.eval()
    counts = torch.zeros(2)
    url = dataset_url(settings.directory, "test")
    with make_reader(url, cur_shard=hvd.rank(), shard_count=hvd.size()) as reader:
        for batch in DataLoader(reader, batch_size=settings.batch_size):
            right = model(batch["image"].to(device)).argmax(dim=1).cpu() == batch["label"]
            counts += torch.tensor([float(right.sum()), float(len(right))])
    correct, held_out = hvd.allreduce(counts, op=hvd.Sum).tolist()
    return float(correct / held_out)


if __name__ == "__main__":
    sys.exit(main())
