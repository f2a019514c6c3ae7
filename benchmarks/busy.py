"""GPU utilization: the share of time in which a GPU waits for data. ResNet-50 on JPEGs, with 1 to 16 CPUs, on NVIDIA.

    python -m benchmarks.busy

Each number of CPUs is measured in a process that is limited to these CPUs, on which petastore decodes and the training
loop runs. The GPU's own clock measures when each step begins and ends; between two steps, the GPU is idle. For
comparison, the same steps train on one batch that stays on the GPU: their idle time is the cost of the loop itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

import petastore
from benchmarks.bench.machine import facts
from benchmarks.bench.tables import aligned
from petastore.adapters.torch import DataLoader
from petastore.codecs import CompressedImageCodec

__all__ = ["Busy", "counts_of", "main", "measure", "resnet50"]

SIDE: Final = 224
CLASSES: Final = 1000
WARM_STEPS: Final = 20

HEADER: Final = ("CPUs", "images/s", "GPU waits", "on one batch: images/s", "GPU waits")


@dataclasses.dataclass(frozen=True)
class Busy:
    """What the clock said of some steps.

    Args:
        step_ms: From the end of one to the end of the next, in the mean.
        waiting: Share of that time in which no step had begun.
    """

    step_ms: float
    waiting: float


def counts_of(cpus: int) -> list[int]:
    """Numbers of CPUs to try: powers of two, 16 at most, as many as there are.

    Example:
        >>> counts_of(6), counts_of(64)
        ([1, 2, 4], [1, 2, 4, 8, 16])
    """
    return [count for count in (1, 2, 4, 8, 16) if count <= cpus]


def measure(
    batches: Iterable[Any],
    step: Callable[[Any], object],
    steps: int,
    mark: Callable[[], Any],
    between_ms: Callable[[Any, Any], float],
) -> Busy:
    """Takes steps, and marks where each begins and ends; looks at the clock when all is done.

    Args:
        batches: More than `steps` of them: the first step is not counted.
        step: Trains on a batch.
        steps: To count.
        mark: Puts a mark where the device is now.
        between_ms: Milliseconds from one mark to a later one; waits for the later one.

    Example:
        >>> clock = itertools.count(0, 10)
        >>> measure("abcd", lambda batch: next(clock), 2, lambda: next(clock), lambda first, then: then - first)
        Busy(step_ms=30.0, waiting=0.3333333333333333)
    """
    begins, ends = [], []
    for batch in itertools.islice(batches, steps + 1):
        begins.append(mark())
        step(batch)
        ends.append(mark())
    if len(ends) != steps + 1:
        raise ValueError(f"{steps + 1} batches were wanted, {len(ends)} came")
    whole = between_ms(ends[0], ends[-1])
    idle = sum(between_ms(end, begin) for end, begin in zip(ends, begins[1:], strict=False))
    return Busy(whole / steps, idle / whole)


class _Bottleneck(nn.Module):
    def __init__(self, wide: int, narrow: int, stride: int) -> None:
        super().__init__()
        out = 4 * narrow
        self.path = nn.Sequential(
            *_convolved(wide, narrow, 1, 1), nn.ReLU(inplace=True),
            *_convolved(narrow, narrow, 3, stride), nn.ReLU(inplace=True),
            *_convolved(narrow, out, 1, 1),
        )  # fmt: skip
        self.past: nn.Module = nn.Identity() if wide == out else nn.Sequential(*_convolved(wide, out, 1, stride))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(images) + self.past(images))


def _convolved(wide: int, out: int, side: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(wide, out, side, stride, side // 2, bias=False), nn.BatchNorm2d(out)


def resnet50() -> nn.Module:
    """ResNet-50 for 1,000 classes, with the stride in the 3 × 3 convolutions; no weights of anybody's.

    Example:
        >>> sum(weights.numel() for weights in resnet50().parameters())
        25557032
    """
    layers: list[nn.Module] = [*_convolved(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for narrow, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers.append(_Bottleneck(wide, narrow, 2 if block == 0 and narrow > 64 else 1))
            wide = 4 * narrow
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, CLASSES))


def write(url: str, rows: int) -> None:
    """JPEGs of smooth noise, about as large as photographs of that size, with labels."""
    fields = [
        petastore.UnischemaField("image", np.uint8, (SIDE, SIDE, 3), CompressedImageCodec("jpeg", quality=90)),
        petastore.UnischemaField("label", np.int64),
    ]
    petastore.write_dataset(url, petastore.Unischema("Pictures", fields), _pictures(rows), rows_per_row_group=128)


def _pictures(rows: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    for _ in range(rows):
        coarse = rng.integers(0, 256, (SIDE // 8, SIDE // 8, 3))
        fine = rng.integers(-12, 13, (SIDE, SIDE, 3))
        image = np.clip(coarse.repeat(8, axis=0).repeat(8, axis=1) + fine, 0, 255).astype(np.uint8)
        yield {"image": image, "label": int(rng.integers(CLASSES))}


def stepper(device: torch.device) -> Callable[[dict[str, torch.Tensor]], None]:
    """One step of training in bfloat16, channels last; pixels become numbers on the device."""
    model = resnet50().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(batch: dict[str, torch.Tensor]) -> None:
        images = batch["image"].permute(0, 3, 1, 2).float().div_(255)
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), batch["label"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _on_cuda(url: str, cpus: int, batch_size: int, steps: int) -> dict[str, Any]:
    """Both measurements, in a process that keeps to so many CPUs from here on."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
    torch.set_num_threads(cpus)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda", torch.cuda.current_device())
    step = stepper(device)

    def mark() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between_ms(first: torch.cuda.Event, then: torch.cuda.Event) -> float:
        then.synchronize()
        return first.elapsed_time(then)

    with petastore.make_reader(url, shuffle_rows=True, seed=1, num_epochs=None) as reader:
        batches = iter(DataLoader(reader, batch_size=batch_size, device=device))
        first = next(batches)
        for _ in range(WARM_STEPS):
            step(first)
        resident = measure(itertools.repeat(first), step, steps, mark, between_ms)
        measure(batches, step, WARM_STEPS, mark, between_ms)  # use up the batches that were prefetched in the meantime
        fed = measure(batches, step, steps, mark, between_ms)
    return {"fed": dataclasses.asdict(fed), "resident": dataclasses.asdict(resident)}


def row_of(cpus: int, told: dict[str, dict[str, float]], batch_size: int) -> tuple[str, ...]:
    """A line of the table.

    Example:
        >>> told = {"step_ms": 100.0, "waiting": 0.25}
        >>> row_of(4, {"fed": told, "resident": told}, 256)
        ('4', '2,560', '25.0 %', '2,560', '25.0 %')
    """
    cells = [str(cpus)]
    for found in (told["fed"], told["resident"]):
        cells += [f"{1000 * batch_size / found['step_ms']:,.0f}", f"{100 * found['waiting']:.1f} %"]
    return tuple(cells)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100, help="counted, for each number of CPUs (100)")
    parser.add_argument("--child", nargs=2, metavar=("URL", "CPUS"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("There is no CUDA device here, so no GPU waits for data; run this on a machine with an NVIDIA GPU.")
    if asked.child:
        print(json.dumps(_on_cuda(asked.child[0], int(asked.child[1]), asked.batch_size, asked.steps)))
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {asked.batch_size} images a step")
    print("\n".join(f"{name}: {fact}" for name, fact in facts().items()), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder, "pictures"))
        write(url, asked.rows)
        rows: list[tuple[str, ...]] = [HEADER]
        for count in counts_of(len(os.sched_getaffinity(0))):
            words = ["--child", url, str(count), "--batch-size", str(asked.batch_size), "--steps", str(asked.steps)]
            ran = subprocess.run(
                [sys.executable, "-m", "benchmarks.busy", *words], capture_output=True, text=True, check=False
            )
            if ran.returncode:
                sys.exit(f"with {count} CPUs it failed:\n{ran.stderr}")
            rows.append(row_of(count, json.loads(ran.stdout.splitlines()[-1]), asked.batch_size))
    print(aligned(rows))


if __name__ == "__main__":
    main()
