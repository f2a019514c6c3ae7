"""Program that opens a dataset and prints time and memory as JSON: `python -m benchmarks.storage.opened FOLDER`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import petastore

__all__ = ["main"]


def main(folder: str) -> None:
    """Opens a dataset with its plan, and reads a batch."""
    with tempfile.TemporaryDirectory() as other:  # open another dataset first, so that all modules are imported
        pq.write_table(pa.table({"id": [1]}), f"{other}/one.parquet")
        with petastore.make_batch_reader(other) as reader:
            next(reader)
    imported = _peak_megabytes()
    began, cpu = time.perf_counter(), time.process_time()
    with petastore.make_batch_reader(folder) as reader:
        told = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "rows": reader.num_rows}
        told |= {"imported": imported, "opened": _peak_megabytes()}
        next(reader)
        told |= {"first_batch": time.perf_counter() - began, "megabytes": _peak_megabytes()}
    print(json.dumps(told))


def _peak_megabytes() -> float:
    # Peak memory of this program only: getrusage would include the memory of the process that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024 / 1e6


if __name__ == "__main__":
    main(sys.argv[1])
