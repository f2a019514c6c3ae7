"""Cost of the counters behind `reader.diagnosis()`: `python -m benchmarks.diagnostics [WORKLOAD …]`.

The workloads of `make bench`, each read by one reader, in turns with counters and without. A turn is a few epochs. A
reader always counts; here, the methods that count are replaced for the other turns. Prints the medians of both rates,
and of the ratios within pairs of turns, with their quartiles and the standard error of the median. On a noisy machine
this error is larger than the cost, so the CPU time in these methods is also measured, in further turns. It includes two
reads of the clock for each call. Exits with 1 if a ratio of rates is below 0.99.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import petastore
from benchmarks.bench.data import Data
from benchmarks.bench.machine import facts
from benchmarks.bench.workloads import WORKLOADS
from petastore.adapters.torch import DataLoader
from petastore.monitoring.activity import at_work, during
from petastore.monitoring.waits import WaitMeter

LEAST: Final = 0.99
EPOCHS: Final = 4
"""Epochs per turn."""


def _ignore(*_: Any, **__: Any) -> None:
    return None


_COUNTING: Final = (
    (at_work, "__enter__"),
    (at_work, "__exit__"),
    (during, "__enter__"),
    (during, "__exit__"),
    (WaitMeter, "note_wait"),
    (WaitMeter, "note_loads"),
)
"""Methods that log and count."""


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Replace the methods that log and count, while no reader is iterated over."""
    with contextlib.ExitStack() as stack:
        for owner, method in _COUNTING:
            stack.enter_context(mock.patch.object(owner, method, _ignore))
        yield


@contextlib.contextmanager
def timed() -> Iterator[list[float]]:
    """Measure the methods that log and count; return the seconds of CPU time of each call."""
    seconds: list[float] = []

    def timed_method(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            began = time.thread_time()
            made = method(*args, **options)
            seconds.append(time.thread_time() - began)
            return made

        return call

    with contextlib.ExitStack() as stack:
        for owner, method in _COUNTING:
            stack.enter_context(mock.patch.object(owner, method, timed_method(getattr(owner, method))))
        yield seconds


def turn_s(loader: Iterable[Any]) -> tuple[float, float]:
    """Read all epochs of a turn; return the seconds that it took, and those of CPU time."""
    began, busy = time.perf_counter(), time.process_time()
    collections.deque(loader, maxlen=0)
    return time.perf_counter() - began, time.process_time() - busy


def compare(name: str, data: Data, seconds: float) -> bool:
    """Measure one workload and print the result; return whether the bound is kept."""
    workload = WORKLOADS[name]
    on: list[tuple[float, float]] = []
    off: list[tuple[float, float]] = []
    options: Any = {"shuffle_rows": True, "seed": 1, "workers_count": 2, "num_epochs": EPOCHS}
    with petastore.make_reader(data.make(name, "petastore"), **options) as reader:
        loader = reader if name == "rows" else DataLoader(reader, batch_size=workload.batch)
        began = time.perf_counter()
        for number in range(1_000_000):
            for counts in (True, False) if number % 2 else (False, True):
                with contextlib.nullcontext() if counts else uncounted():
                    (on if counts else off).append(turn_s(loader))
            if time.perf_counter() - began > seconds and number > 10:
                break
        shares = []
        for _ in range(5):
            with timed() as seconds_of_calls:
                _, busy_s = turn_s(loader)
            shares.append(sum(seconds_of_calls) / busy_s)
    del on[:2], off[:2]  # the first turns read the files into the page cache
    rates, costs = ([other[of] / one[of] for one, other in zip(on, off, strict=True)] for of in (0, 1))
    ratio = statistics.median(rates)
    with_counters, without = (
        EPOCHS * workload.rows / statistics.median(took for took, _ in each) for each in (on, off)
    )
    print(f"{name}: {with_counters:,.0f} rows/s with counters, {without:,.0f} without; load {os.getloadavg()[0]:.1f}")
    print(f"  rate: {_told(rates)}; at least {LEAST}: {'kept' if ratio >= LEAST else 'NOT KEPT'}")
    print(f"  rows per second of CPU: {_told(costs)}")
    least, share, most = min(shares), statistics.median(shares), max(shares)
    print(f"  CPU time of the counters: {share:.2%} of all ({least:.2%} to {most:.2%})", flush=True)
    return ratio >= LEAST


def _told(ratios: list[float]) -> str:
    """Return as text the median, quartiles and the error of the median, which is that of a normal distribution."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    error = 1.2533 * (high - low) / 1.349 / len(ratios) ** 0.5
    return f"{middle:.4f} ± {error:.4f} of {len(ratios)} pairs (quartiles {low:.3f} to {high:.3f})"


def main() -> int:
    """Measure the named workloads, or all; return 1 if a bound is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: all of {', '.join(WORKLOADS)}")
    parser.add_argument("--seconds", type=float, default=60, help="time per workload (60)")
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="folder of the datasets (.bench)")
    asked = parser.parse_args()
    print(*(f"{name}: {fact}" for name, fact in facts().items()), sep="\n")
    data = Data(asked.folder.absolute())
    kept = [compare(name, data, asked.seconds) for name in asked.workloads or WORKLOADS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
