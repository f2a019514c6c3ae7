"""Memory and throughput of one huge row group in file order: `python -m benchmarks.huge_row_groups [megabytes]`.

Writes a file of one row group of 2 GB. All of its rows are read by petastore with `memory_budget="256MB"`, and by
`pyarrow.parquet.ParquetFile.iter_batches`, in one process and in turns. Prints the ratio of their rates as the median
of several rounds with its spread, and of CPU time. Another process reads the file once, and prints by how much its
resident memory grew at its peak. Exits with 1 if a bound is exceeded.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from petastore import make_batch_reader

MEGABYTES = 2000
BUDGET = 256 * 10**6
LEAST_RATE = 0.8
"""Least rate as a share of the rate of `iter_batches`."""

ROUNDS = 5
ROWS_AT_ONCE = 200_000
NUMBERS, VECTOR = 8, 32
ROW_BYTES = 16 + 4 * NUMBERS + 4 * VECTOR + 24


def write_row_group(path: Path, megabytes: int) -> int:
    """Write one row group with an id, a label, some numbers, a name and a vector; return its rows."""
    generator = np.random.default_rng(0)
    rows = megabytes * 10**6 // ROW_BYTES
    tables = []
    for first in range(0, rows, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, rows - first)
        ids = np.arange(first, first + count)
        columns: dict[str, Any] = {"id": ids, "label": generator.integers(0, 1000, count)}
        columns |= {f"x{number}": generator.random(count, np.float32) for number in range(NUMBERS)}
        columns["name"] = pa.array([f"row number {row:08d}" for row in ids.tolist()])
        columns["vector"] = pa.FixedSizeListArray.from_arrays(generator.random(count * VECTOR, np.float32), VECTOR)
        tables.append(pa.table(columns))
    pq.write_table(pa.concat_tables(tables), path, row_group_size=rows, use_dictionary=["label"])
    return rows


def by_arrow(folder: str) -> int:
    """Return the number of rows, read by `iter_batches`."""
    return sum(batch.num_rows for batch in pq.ParquetFile(f"{folder}/a.parquet").iter_batches())


def by_batches(folder: str) -> int:
    """Return the number of rows, read in batches of 4,096."""
    with make_batch_reader(folder, shuffle_row_groups=False, memory_budget=BUDGET) as reader:
        return sum(batch.num_rows for batch in reader.iter_batches(4096))


def seconds(read: Callable[[str], int], folder: str, rows: int) -> tuple[float, float]:
    """Return the wall time and the CPU time of reading all rows."""
    began, worked = time.perf_counter(), time.process_time()
    found = read(folder)
    took = time.perf_counter() - began, time.process_time() - worked
    assert found == rows, f"{found:,} of {rows:,} rows were read"
    return took


def resident(field: str) -> int:
    """Return a figure of this process's resident memory in bytes: `VmRSS` now, `VmHWM` at its peak."""
    found = re.search(field + r":\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return 1024 * int(found.group(1))


def print_peak(small: str, folder: str) -> None:
    """Print by how many bytes resident memory grew at its peak, after a small dataset was read."""
    by_batches(small)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak of resident memory
    before = resident("VmRSS")
    by_batches(folder)
    print(resident("VmHWM") - before)


def main(megabytes: int) -> int:
    """Measure and print; return 1 if a bound is exceeded."""
    print(f"a row group of {megabytes:,} MB, in file order; {platform.machine()}, {os.cpu_count()} CPUs")
    with tempfile.TemporaryDirectory() as directory:
        small, folder = Path(directory, "small"), Path(directory, "large")
        small.mkdir()
        folder.mkdir()
        write_row_group(small / "a.parquet", 1)
        rows = write_row_group(folder / "a.parquet", megabytes)
        ratios = []
        for number in range(ROUNDS + 1):  # the first round warms the system's cache, and imports modules
            theirs, ours = (seconds(read, str(folder), rows) for read in (by_arrow, by_batches))
            if number:
                ratios.append((theirs[0] / ours[0], theirs[1] / ours[1], ours[0]))
        program = [sys.executable, "-m", "benchmarks.huge_row_groups", "peak", str(small), str(folder)]
        peak = int(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
    wall, worked, took = zip(*ratios, strict=True)
    are_kept = statistics.median(wall) >= LEAST_RATE, peak <= BUDGET
    said = ["KEPT" if is_kept else "NOT KEPT" for is_kept in are_kept]
    print(
        f"rate: {statistics.median(wall):.2f}× that of iter_batches ({min(wall):.2f} to {max(wall):.2f}), "
        f"{rows / statistics.median(took):,.0f} rows/s, with {1 / statistics.median(worked):.2f}× the CPU; "
        f"at least {LEAST_RATE:g}×  {said[0]}"
    )
    print(f"peak: {peak / 1e6:,.0f} MB of memory_budget={BUDGET / 1e6:,.0f} MB  {said[1]}")
    return 0 if all(are_kept) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["peak"]:
        print_peak(*sys.argv[2:])
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES))
