"""Speedup of Python transforms by worker processes: `python -m benchmarks.transforms`. Makes its own dataset.

Three transforms of a row: one that computes for a millisecond, one that does next to nothing, and one that makes an
image anew (so that columns have to travel there and back). Each is read with the thread pool and the process pool in
turns, several times; a round gives the ratio of the two. Prints the median with its spread beside the bound that it has
to keep, and exits with 1 if one is not kept. The bound is meant for CPUs that nobody else uses: where others want them
too, two processes cannot have twice what one had.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from petastore import TransformSpec, Unischema, UnischemaField, make_reader, write_dataset
from petastore.codecs import NdarrayCodec
from petastore.work.pools import PoolType, available_cpus

ROUNDS = 7
BATCH = 64
SCHEMA = Unischema(
    "sample",
    [UnischemaField("id", np.int64), UnischemaField("image", np.uint8, (128, 128, 3), NdarrayCodec())],
)
STEPS = 0
"""How far `computes` counts in a millisecond: measured here, and sent to workers with the function."""


def computes(row: dict[str, Any]) -> dict[str, Any]:
    """A millisecond of pure Python, on a processor of its own."""
    total = 0
    for number in range(STEPS):
        total += number * number % 7
    row["id"] = np.int64(row["id"] + total - total)
    return row


def does_nothing(row: dict[str, Any]) -> dict[str, Any]:
    """What is left is what the pools themselves cost."""
    return row


def inverts(row: dict[str, Any]) -> dict[str, Any]:
    """49,152 bytes there and back for each row, and some NumPy."""
    return {"id": row["id"], "image": 255 - row["image"]}


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table."""

    what: str
    func: Callable[[dict[str, Any]], dict[str, Any]]
    fields: list[str]
    rows: int
    """Read in each turn; the first tenth, which starts the workers, is not counted."""
    bound: float
    """The least ratio that the median may have; 0 where none was promised."""


CASES = [
    Case("1 ms of pure Python", computes, ["id"], 2_000, 1.7),
    Case("nothing", does_nothing, ["id"], 100_000, 0),
    Case("an image anew", inverts, ["id", "image"], 4_000, 0),
]


def rate(url: str, case: Case, pool: PoolType) -> float:
    """Rows a second in the steady state."""
    spec = TransformSpec(case.func)
    with make_reader(url, case.fields, pool, shuffle_rows=True, seed=1, num_epochs=None, transform_spec=spec) as reader:
        rows = began = 0.0
        for batch in reader.iter_batches(BATCH):
            rows += batch.num_rows
            if not began and rows >= case.rows / 10:
                began, rows = time.perf_counter(), 0
            elif began and rows >= case.rows:
                break
        return rows / (time.perf_counter() - began)


def line(url: str, case: Case) -> tuple[str, bool]:
    """One case, measured in turns; its line of the table, and whether the bound is kept."""
    rates: dict[PoolType, list[float]] = {"thread": [], "process": []}
    for _ in range(ROUNDS):
        for pool, of_pool in rates.items():
            of_pool.append(rate(url, case, pool))
    ratios = [process / thread for thread, process in zip(*rates.values(), strict=True)]
    threads, processes, ratio = (statistics.median(each) for each in (*rates.values(), ratios))
    kept = ratio >= case.bound
    bound = "" if not case.bound else f"  at least {case.bound:g} ×: {'kept' if kept else 'NOT KEPT'}"
    said = f"{case.what:<22} {threads:>11,.0f} {processes:>11,.0f} {ratio:>8.2f} ×"
    return f"{said}  ({min(ratios):.2f} to {max(ratios):.2f}){bound}", kept


def steps_of_a_millisecond() -> int:
    """How far `computes` has to count here: the best of several tries, by the time of the processor."""
    counted, best = 20_000, float("inf")
    for _ in range(20):
        began = time.process_time()
        total = 0
        for number in range(counted):
            total += number * number % 7
        best = min(best, time.process_time() - began)
    return int(counted * 1e-3 / best)


def main() -> int:
    """Prints the table; 1 if a bound is not kept."""
    global STEPS
    STEPS = steps_of_a_millisecond()
    print(
        f"{platform.platform()}, Python {platform.python_version()}, {available_cpus()} CPUs, load "
        f"{os.getloadavg()[0]:.1f}; medians of {ROUNDS} rounds, rows a second"
    )
    print(f"{'transform of a row':<22} {'threads':>11} {'processes':>11} {'ratio':>10}")
    images = np.random.RandomState(0).randint(0, 256, (16, 128, 128, 3)).astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/samples"
        rows = ({"id": number, "image": images[number % 16]} for number in range(2_000))
        write_dataset(url, SCHEMA, rows, rows_per_row_group=250)
        lines = []
        for case in CASES:
            lines.append(line(url, case))
            print(lines[-1][0], flush=True)
    return 0 if all(kept for _, kept in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
