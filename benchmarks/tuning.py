"""`petastore.tuning.tune` compared with a full grid of settings: `python -m benchmarks.tuning [WORKLOAD …]`.

It makes its own datasets. For each workload, tuning chooses a setting in a minute. Then all settings of the grid are
measured in rounds, one after the other, each over whole epochs of the whole dataset. The best setting of the grid is
the one that was fastest in every second round; the other rounds compare the chosen setting with it, so noise favors
neither. Exits with 1 if the chosen setting has less than 0.95 of that rate, or if tuning took more than 90 s.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from benchmarks.bench.machine import facts
from petastore import Dataset, Unischema, UnischemaField, open_dataset, write_dataset
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.testing.faults import Faults, FaultyFileSystem
from petastore.tuning import reader_throughput, tune

if TYPE_CHECKING:
    from petastore.readers.options import PassedKwargs

LEAST: Final = 0.95
MOST_S: Final = 90.0
WORKERS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
SLOW_S: Final = 0.05
"""Delay of each request to the slow store."""

SECONDS: Final = 1.0
"""Time of a measurement of the grid with the chosen setting."""

RANDOM: Final = np.random.default_rng(0)


def write_tabular(url: str) -> None:
    """400,000 rows of 16 float32 and 8 int64; row groups of 10,000."""
    rows = 400_000
    floats = {f"f{number}": RANDOM.random(rows, dtype=np.float32) for number in range(16)}
    integers = {f"i{number}": RANDOM.integers(0, 1000, rows) for number in range(8)}
    write_dataset(url, floats | integers, rows_per_row_group=10_000)


def write_images(url: str) -> None:
    """2,048 JPEGs of 128 × 128 × 3; row groups of 64."""
    image = UnischemaField("image", "uint8", (128, 128, 3), CompressedImageCodec("jpeg"))
    slope = np.linspace(0, 225, 128)[:, None, None] + np.zeros((128, 128, 3))
    pictures = (np.add(slope, RANDOM.integers(0, 30, slope.shape)).astype(np.uint8) for _ in range(2048))
    write_dataset(url, Unischema("Images", [image]), [{"image": one} for one in pictures], rows_per_row_group=64)


def write_arrays(url: str) -> None:
    """8,000 float32 arrays of 64 × 32; row groups of 250."""
    field = UnischemaField("array", "float32", (64, 32), NdarrayCodec())
    arrays = RANDOM.random((8000, 64, 32), dtype=np.float32)
    write_dataset(url, Unischema("Arrays", [field]), {"array": arrays}, rows_per_row_group=250)


WORKLOADS: Final[dict[str, tuple[Callable[[str], None], int, bool]]] = {
    "tabular": (write_tabular, 1024, False),
    "images": (write_images, 64, False),
    "arrays": (write_arrays, 256, False),
    "arrays-slow": (write_arrays, 256, True),
}
"""Writer, batch size, and whether the store is slow."""


def grid(*, is_slow: bool) -> list[dict[str, Any]]:
    """Return the settings of the full grid."""
    plain = [{"workers_count": count} for count in WORKERS if is_slow or count <= 8]
    return [{**one, **cache} for cache in ({}, {"cache_type": "local-disk"})[: 1 + is_slow] for one in plain]


def rate(dataset: Dataset, batch_size: int, workers: int, cache: dict[str, str], epochs: int) -> float:
    """Return rows per second over whole epochs, after one to warm up."""
    rows, of_reader = dataset.inventory.num_rows, cast("PassedKwargs", {"shuffle_rows": True, "seed": 0, **cache})
    return reader_throughput(
        dataset,
        None,
        rows,
        epochs * rows,
        loaders_count=workers,
        reader_extra_args=of_reader,
        spawn_new_process=False,
        batch_size=batch_size,
    ).rows_per_second


def is_good(name: str, folder: str, rounds: int) -> bool:
    """Tune one workload, measure the grid, print both, and return whether the bounds are kept."""
    write, batch_size, is_slow = WORKLOADS[name]
    write(f"{folder}/{name}")
    files = FaultyFileSystem(Faults(slow=1.0, slow_s=SLOW_S)) if is_slow else None
    dataset = open_dataset(f"{folder}/{name}", filesystem=files)
    cache: Any = {"cache_location": f"{folder}/cache"} if is_slow else {}
    began = time.perf_counter()
    found = tune(dataset, batch_size=batch_size, shuffle_rows=True, **cache)
    took = time.perf_counter() - began
    print(f"\n{name}, {write.__doc__} Tuned in {took:.0f} s:\n{found}\n", flush=True)

    chosen = {"workers_count": found.default_workers, **found.winner.arguments}
    settings = [*(one for one in grid(is_slow=is_slow) if one != chosen), chosen]
    caches = [{"cache_type": one["cache_type"], **cache} if "cache_type" in one else {} for one in settings]
    epochs = math.ceil(SECONDS * found.winner.median / dataset.inventory.num_rows)
    rates = [
        [
            rate(dataset, batch_size, one["workers_count"], cached, epochs)
            for one, cached in zip(settings, caches, strict=True)
        ]
        for _ in range(rounds)
    ]
    of_settings = list(zip(*rates, strict=True))
    for one, measured in zip(settings, of_settings, strict=True):
        print(f"  {statistics.median(measured):11,.0f} rows/s ({min(measured):,.0f} to {max(measured):,.0f})  {one}")
    # Every second round determines the best setting; the other rounds compare it with the chosen one.
    best = max(range(len(settings)), key=lambda number: statistics.median(of_settings[number][::2]))
    ratio = statistics.median(one[-1] / one[best] for one in rates[1::2])
    is_kept = ratio >= LEAST and took <= MOST_S
    print(
        f"{name}: chosen {chosen}, best of {len(settings)} {settings[best]}; ratio {ratio:.3f}, at least {LEAST}; "
        f"tuned in {took:.0f} s, at most {MOST_S:.0f}: {'KEPT' if is_kept else 'NOT KEPT'}; "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return is_kept


def main() -> int:
    """Run the workloads; return 1 if a bound is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"some of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of the grid; default: 6")
    asked = parser.parse_args()
    print("; ".join(facts().values()))
    with tempfile.TemporaryDirectory() as folder:
        kept = [is_good(name, folder, asked.rounds) for name in asked.workloads or WORKLOADS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
