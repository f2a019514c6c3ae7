"""Throughput of many small row groups compared with pyarrow.dataset: `python -m benchmarks.tiny_row_groups [groups]`.

Writes 20,000 row groups of 50 rows, in one file and in 20. All rows are read by petastore and by `pyarrow.dataset`, in
one process and in turns, from listing the directory on. Prints the ratio of each pair of runs as the median of several
rounds with its spread, of wall time and of CPU time, and the bound of wall time. Exits with 1 if one is exceeded.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from petastore import make_batch_reader

GROUPS = 20_000
ROWS = 50
ROUNDS = 5
ORDERS: dict[str, tuple[dict[str, Any], float]] = {
    "in order": ({"shuffle_row_groups": False}, 1.0),
    "row groups shuffled": ({"seed": 1}, 2.0),
    "rows shuffled": ({"seed": 1, "shuffle_rows": True}, 2.0),
}
"""Options of each order, and the multiple of the time of `pyarrow.dataset` that it may take."""


def write_files(directory: Path, files: int, groups: int) -> None:
    """Write files of a number, a measurement and a name."""
    directory.mkdir()
    generator = np.random.default_rng(0)
    rows = groups * ROWS // files
    for number in range(files):
        ids = np.arange(number * rows, (number + 1) * rows)
        columns = {"id": ids, "x": generator.random(rows, np.float32), "name": [f"row {row}" for row in ids.tolist()]}
        pq.write_table(pa.table(columns), directory / f"part-{number:02d}.parquet", row_group_size=ROWS)


def by_arrow(directory: str) -> int:
    """Return the number of rows, read by `pyarrow.dataset` batch by batch."""
    return sum(batch.num_rows for batch in pyarrow.dataset.dataset(directory).to_batches())


def by_batches(directory: str, **options: Any) -> int:
    """Return the number of rows, read in batches of 1,000."""
    with make_batch_reader(directory, **options) as reader:
        return sum(batch.num_rows for batch in reader.iter_batches(1000))


def seconds(read: Callable[[], int], rows: int) -> tuple[float, float]:
    """Return the wall time and the CPU time of reading all rows."""
    began, worked = time.perf_counter(), time.process_time()
    found = read()
    took = time.perf_counter() - began, time.process_time() - worked
    assert found == rows, f"{found:,} of {rows:,} rows were read"
    return took


def are_within_bounds(directory: str, what: str, rows: int) -> bool:
    """Compare each order with `pyarrow.dataset`, print the ratios, and return whether all are within their bounds."""
    ratios: dict[str, list[tuple[float, float]]] = {order: [] for order in ORDERS}
    for number in range(ROUNDS + 1):  # the first round warms the system's cache, and imports modules
        for order, (options, _) in ORDERS.items():
            theirs = seconds(lambda: by_arrow(directory), rows)
            ours = seconds(lambda options=options: by_batches(directory, **options), rows)  # type: ignore[misc]
            if number:
                ratios[order].append((ours[0] / theirs[0], ours[1] / theirs[1]))
    are_within = True
    for order, pairs in ratios.items():
        wall, worked = zip(*pairs, strict=True)
        most = ORDERS[order][1]
        is_within = statistics.median(wall) <= most
        are_within &= is_within
        print(
            f"{what}, {order}: {statistics.median(wall):.2f}× the time ({min(wall):.2f} to {max(wall):.2f}), "
            f"{statistics.median(worked):.2f}× the CPU; at most {most:g}×  {'KEPT' if is_within else 'NOT KEPT'}"
        )
    return are_within


def main(groups: int) -> int:
    """Measure and print; return 1 if a bound is exceeded."""
    print(f"{groups:,} row groups of {ROWS} rows; {platform.machine()}, {os.cpu_count()} CPUs")
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for files in (1, 20):
            folder = Path(directory, str(files))
            write_files(folder, files, groups)
            results.append(are_within_bounds(str(folder), f"{files} files", groups * ROWS))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else GROUPS))
