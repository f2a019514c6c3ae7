"""Program of a reader process: read some epochs of one dataset with one loader, and print a line of JSON for each.

    python -m benchmarks.storage.epochs TASK

After each epoch but the last it waits for a line, and ends where none comes. Runs in the loader's own environment, so
it needs nothing but Python and NumPy. The clock of the first epoch starts before the reader is made, after imports.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.bench.cpu import cpu_seconds
from benchmarks.bench.drive import rows_of
from benchmarks.storage.datasets import workload_of

__all__ = ["main"]


def main(text: str) -> None:
    """Reads, and tells: seconds, rows, how many of them are distinct, and what the loader tells itself."""
    task = json.loads(text)
    source, workload = importlib.import_module(task["module"]), workload_of(task["workload"], task["scale"])
    began, cpu = time.monotonic(), cpu_seconds()
    with contextlib.closing(source.batches(workload, task["place"], **task["options"])) as batches:
        rows = first = 0
        for epoch in range(1, task["epochs"] + 1):
            keys: list[Any] = []
            while rows < epoch * task["rows"]:
                batch = next(batches)
                first = first or time.monotonic() - began  # type: ignore[assignment]
                rows += rows_of(batch)
                keys.append(np.asarray(batch[workload.key]))
            told = {"seconds": time.monotonic() - began, "first_batch": first, "cpu": cpu_seconds() - cpu}
            told |= {"rows": sum(map(len, keys)), "distinct": len(np.unique(np.concatenate(keys)))}
            print(json.dumps(told | getattr(batches, "told", dict)()), flush=True)
            if epoch < task["epochs"] and not sys.stdin.readline():
                return
            began, cpu = time.monotonic(), cpu_seconds()


if __name__ == "__main__":
    main(sys.argv[1])
