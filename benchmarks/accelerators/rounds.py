"""Measure a workload: first the decoding rate of the limit, which sets the step time, and then all readers in turns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.accelerators.limit import rate_of
from benchmarks.accelerators.processes import alone
from benchmarks.accelerators.training import LIMIT, OWN, PETASTORE, READY, RELEASED, train
from benchmarks.accelerators.workloads import DATASET, Workload

__all__ = ["CONFIGURED", "DEMANDS", "measure", "step_of"]

CONFIGURED: Final = "as configured"
DEMANDS: Final[dict[str, float | None]] = {CONFIGURED: None, "0.5": 0.5, "0.9": 0.9, "1.5": 1.5}
"""What accelerators ask for: rows a second as shares of the limit's rate; None is what MLPerf Storage says."""

_PASS_SECONDS: Final = 300.0
_RELEASED_STEPS: Final = 12

Say = Callable[[str], object]


def step_of(workload: Workload, demand: float | None, limit: float) -> float:
    """Seconds of a step in which the accelerator computes.

    Example:
        >>> from benchmarks.accelerators.workloads import WORKLOADS
        >>> step_of(WORKLOADS["pictures"], 0.5, 1600.0), step_of(WORKLOADS["pictures"], None, 1600.0)
        (0.5, 0.224)
    """
    return workload.step_s if demand is None else workload.batch / (demand * limit)


def measure(workload: Workload, data: Path, rounds: int, say: Say) -> dict[str, Any]:
    """Everything that is shown of a workload, whose data lie there.

    Returns:
        `read_threads`: rows a second of DLIO's own readers with so many workers, tried once; `best`: how many of them
        take part; `released`: the same of the reader as it was released, None where there is none. `cells`: for each
        demand a list of rounds, each with the `rate` at which the limit decoded just before, `step_s`, and by
        contender what `Training` holds.
    """

    def rate() -> float:
        return alone(_PASS_SECONDS, rate_of, workload.folder(data) / DATASET)

    rate()  # the first pass reads the files into the page cache
    eager = step_of(workload, DEMANDS["1.5"], rate())
    threads = {count: train(workload, data, OWN(count), eager, epochs=1).rate for count in _workers()}
    best = max(threads, key=threads.__getitem__)
    released = _released(workload, data, best, eager)
    say(f"{workload.name}: DLIO's own readers, rows/s by workers: {threads}; as released: {released}")
    contenders = {"limit": LIMIT, "petastore": PETASTORE, "own": OWN(best)}
    cells: dict[str, list[dict[str, Any]]] = {name: [] for name in DEMANDS}
    for number in range(rounds):
        for name, demand in DEMANDS.items():
            decoded = rate()
            step_s = step_of(workload, demand, decoded)
            steps = workload.configured_steps if demand is None else -1
            found = {
                who: dataclasses.asdict(train(workload, data, loader, step_s, steps))
                for who, loader in _turned(contenders, number)
            }
            if demand == 0.9:  # the shortest steps for which every reader can be fast enough
                found["ready"] = dataclasses.asdict(train(workload, data, READY, step_s, steps))
            cells[name].append({"rate": decoded, "step_s": step_s, **found})
            say(f"{workload.name}, {name}: limit {decoded:,.0f}/s, {step_s:.3f} s a step: " + _line(found))
    by_workers = {str(count): rate for count, rate in threads.items()}
    return {"read_threads": by_workers, "best": best, "released": released, "cells": cells}


def _workers() -> list[int]:
    """Numbers of worker processes to try for DLIO's own readers."""
    cpus = len(os.sched_getaffinity(0))
    return sorted({1, cpus, 2 * cpus})


def _released(workload: Workload, data: Path, workers: int, step_s: float) -> float | None:
    """Its steps are long, so fewer are taken, but several for each worker."""
    if not workload.released:
        return None
    return train(
        workload, data, (*OWN(workers), *RELEASED), step_s, min(workload.steps, _RELEASED_STEPS), epochs=1
    ).rate


def _turned(contenders: Mapping[str, Sequence[str]], number: int) -> Iterator[tuple[str, Sequence[str]]]:
    """Another one begins each round."""
    names = list(contenders)
    first = number % len(names)
    for name in names[first:] + names[:first]:
        yield name, contenders[name]


def _line(found: dict[str, Any]) -> str:
    return ", ".join(f"{who} {run['utilisation']:.1%}" for who, run in found.items())
