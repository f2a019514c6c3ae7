"""Overlap of the copy of the next batch with training on the current one, on a machine with an NVIDIA GPU.

    python -m benchmarks.device_prefetch

It trains a stand-in (matrix products that take about as long as the copy of a batch) on images of 256 × 256 × 3 and
prints milliseconds a step: of the products alone, of reading alone, of a plain loader whose batches are moved in the
loop, and of `device="cuda"`. It also checks that the values arrive whole while the device is busy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

import petastore
from petastore.adapters.torch import DataLoader
from petastore.codecs import NdarrayCodec

SHAPE = (256, 256, 3)
SIZE = 4096


def write(url: str, rows: int) -> None:
    """Images that are all their own number."""
    fields = [
        petastore.UnischemaField("id", "int64"),
        petastore.UnischemaField("image", "uint8", SHAPE, NdarrayCodec()),
    ]
    values = ({"id": i, "image": np.full(SHAPE, i % 251, np.uint8)} for i in range(rows))
    petastore.write_dataset(url, petastore.Unischema("images", fields), values, rows_per_row_group=128)


def check(loader: DataLoader, work: Callable[[], object]) -> None:
    """Every image arrives whole while the device is busy; batches are kept by twos, so that memory is used again."""
    wrong = torch.zeros((), dtype=torch.int64, device=loader.device)
    before: dict[str, Any] = {}
    for batch in loader:
        work()
        for each in (before, batch):
            if each:
                expected = (each["id"] % 251).to(torch.uint8).view(-1, 1, 1, 1)
                wrong += (each["image"] != expected).sum()
        before = batch
    if int(wrong):
        sys.exit(f"{int(wrong):,} pixels arrived wrong: device= does not keep its promise here")


def step_ms(steps: Iterator[object], work: Callable[[], object]) -> float:
    """Milliseconds a step, the work on the device included."""
    torch.cuda.synchronize()
    began, count = time.perf_counter(), 0
    for _ in steps:
        work()
        count += 1
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / count


def moved(loader: DataLoader, device: torch.device) -> Iterator[Any]:
    """What one writes without `device=`."""
    for batch in loader:
        yield {name: tensor.to(device) for name, tensor in batch.items()}


def products(batch_bytes: int, device: torch.device) -> Callable[[], object]:
    """As many matrix products as take about as long as the copy of a batch."""
    a = torch.randn(SIZE, SIZE, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    source = torch.empty(batch_bytes, dtype=torch.uint8, pin_memory=True)

    def copies() -> None:
        source.to(device, non_blocking=True)

    def one() -> None:
        torch.mm(a, a, out=out)

    def nothing() -> None:
        pass

    for warm in (copies, one):
        step_ms(iter(range(20)), warm)
    times = [step_ms(iter(range(50)), each) for each in (copies, one, nothing)]
    count = max(round((times[0] - times[2]) / max(times[1] - times[2], 1e-6)), 1)

    def work() -> None:
        for _ in range(count):
            one()

    return work


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit(
            "There is no CUDA device here, so there is nothing to measure; run this on a machine with an NVIDIA GPU."
        )
    device = torch.device("cuda", torch.cuda.current_device())
    work = products(asked.batch_size * int(np.prod(SHAPE)), device)
    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/images"
        write(url, asked.rows)
        with petastore.make_reader(url, seed=1, shuffle_rows=True) as reader:
            plain = DataLoader(reader, batch_size=asked.batch_size)
            ahead = DataLoader(reader, batch_size=asked.batch_size, device=device)
            check(ahead, work)
            contenders: dict[str, tuple[Callable[[], Iterator[object]], Callable[[], object]]] = {
                "products alone": (lambda: iter(range(len(plain))), work),
                "reading alone, on the host": (lambda: iter(plain), lambda: None),
                "plain loader, moved in the loop": (lambda: moved(plain, device), lambda: None),
                "plain loader, moved, and products": (lambda: moved(plain, device), work),
                "device=, alone": (lambda: iter(ahead), lambda: None),
                "device=, and products": (lambda: iter(ahead), work),
            }
            times: dict[str, list[float]] = {name: [] for name in contenders}
            for _ in range(asked.rounds):
                for name, (steps, each) in contenders.items():
                    times[name].append(step_ms(steps(), each))
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, {asked.batch_size} images a batch")
    print(f"every pixel of {asked.rows:,} images arrived as it was written")
    for name, found in times.items():
        print(f"{name:36} {statistics.median(found):8.2f} ms a step  (least {min(found):.2f}, most {max(found):.2f})")


if __name__ == "__main__":
    main()
