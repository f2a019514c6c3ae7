"""Program of a contender's process: write its format, check its batches, or measure it.

    python -m benchmarks.bench.drive TASK.json RESULT.json

Runs in the contender's own environment, so it needs nothing but Python and NumPy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import itertools
import json
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench.cpu import cpu_seconds
from benchmarks.bench.workloads import Workload, workload_named

__all__ = ["Pace", "check", "main", "measure", "rows_of"]


@dataclasses.dataclass(frozen=True)
class Pace:
    """How long to measure."""

    seconds: float
    """The steady state takes as many whole epochs as last this long."""

    patience: float
    """An epoch that takes longer is cut here."""


def main(task_file: str, result_file: str) -> None:
    """Does one task and writes what came of it."""
    task = json.loads(Path(task_file).read_text(encoding="utf-8"))
    workload = workload_named(task["workload"], task["scale"])
    folder = Path(task["folder"])
    if task["do"] == "make":
        from benchmarks.bench.values import make_values

        make_values(workload, folder)
        result: dict[str, Any] = {}
    else:
        contender = importlib.import_module(f"benchmarks.bench.contenders.{task['module']}")
        result = {"versions": _versions(contender.PACKAGES), "imported": time.monotonic() - task["started"]}
    if task["do"] == "write":
        from benchmarks.bench.values import Values

        contender.write(workload, Values(folder.parent / "values", workload), folder)
    elif task["do"] == "check":
        with contextlib.closing(contender.batches(workload, folder, **task["options"])) as batches:
            result |= check(workload, batches, task["patience"])
    elif task["do"] == "measure":
        pace = Pace(task["seconds"], task["patience"])
        result |= measure(lambda: contender.batches(workload, folder, **task["options"]), workload, pace)
        result["first_batch_of_process"] = result["imported"] + result["first_batch"]
    Path(result_file).write_text(json.dumps(result), encoding="utf-8")


def rows_of(batch: Any) -> int:
    """Rows of a batch: a number, or a dict of columns."""
    return batch if isinstance(batch, int) else len(next(iter(batch.values())))


def measure(open_batches: Callable[[], Generator[Any, None, None]], workload: Workload, pace: Pace) -> dict[str, Any]:
    """Seconds to the first batch and of the first epoch; rows a second, and CPU seconds a row, of the epochs after it.

    The clock starts before the reader is made. An epoch is over when as many rows have come as the workload has.
    """
    began = time.monotonic()
    with contextlib.closing(open_batches()) as batches:
        rows = rows_of(next(batches))
        first_batch = time.monotonic() - began
        rows, warm, whole = _epochs(batches, workload.rows, rows, began, Pace(0.0, pace.patience))
        cpu, carried = cpu_seconds(), rows % workload.rows
        again, ended, _ = _epochs(batches, workload.rows, carried, warm, pace)
        cpu = cpu_seconds() - cpu
    return {
        "first_batch": first_batch,
        "first_epoch": warm - began if whole else None,
        "rate": (again - carried) / (ended - warm),
        "cpu_a_row": cpu / (again - carried),
    }


def _epochs(batches: Iterator[Any], epoch_rows: int, rows: int, began: float, pace: Pace) -> tuple[int, float, bool]:
    """Takes whole epochs until the time is over: rows by then, the clock, and whether patience lasted."""
    end_of_epoch = epoch_rows
    while True:
        now = time.monotonic()
        if rows >= end_of_epoch:
            if now - began >= pace.seconds:
                return rows, now, True
            end_of_epoch += epoch_rows
        if now - began >= max(pace.patience, pace.seconds):
            return rows, now, False
        rows += rows_of(next(batches))


def check(workload: Workload, batches: Iterator[Any], patience: float) -> dict[str, Any]:
    """What the contender hands over in one epoch, or as much of it as comes in time: rows, types and order.

    `distinct` and `followers` (rows that still follow the one that they follow in the data) are shares of the rows.
    """
    import numpy as np

    keys: list[Any] = []
    kinds: dict[str, str] = {}
    counts, began = 0, time.monotonic()
    for batch in batches:
        counts += rows_of(batch)
        if not isinstance(batch, int):
            kinds = kinds or {name: _kind(column) for name, column in itertools.islice(batch.items(), 4)}
            keys.append(np.array(batch[workload.key]))
        if counts >= workload.rows or time.monotonic() - began > patience:
            break
    if not keys:
        return {"rows": counts}
    seen = np.concatenate(keys)[: workload.rows]
    return {
        "rows": counts,
        "distinct": len(np.unique(seen)) / len(seen),
        "followers": float(np.mean(np.diff(seen) == 1)),
        "ascending": bool(np.all(np.diff(seen) > 0)),
        "kinds": kinds,
    }


def _kind(column: Any) -> str:
    shape = getattr(column, "shape", None)
    name = f"{type(column).__module__.partition('.')[0]}.{type(column).__name__}"
    return name if shape is None else f"{name} {str(column.dtype).rpartition('.')[2]} {tuple(shape)}"


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
