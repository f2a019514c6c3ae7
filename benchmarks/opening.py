"""Time and memory to open a large dataset by its manifest: `python -m benchmarks.opening [files]`.

Lays 10,000 files with 100 row groups each, as the manifest says, on the local disk, and opens them in a fresh process:
the processor time, the time by the clock, and the memory of that process at most.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from petastore import Unischema, UnischemaField
from petastore.inventory import DataFile, Inventory
from petastore.schema.document import dump_document
from petastore.storage.files.location import open_location
from petastore.storage.metadata.manifest import Manifest, write_manifest

FILES, GROUPS, ROWS = 10_000, 100, 1000
ROUNDS = 5
OPEN = """
import resource, sys, time
import petastore
cpu, began = time.process_time(), time.perf_counter()
dataset = petastore.open_dataset(sys.argv[1])
taken = time.process_time() - cpu, time.perf_counter() - began
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(f"{dataset.inventory}: {taken[0]:.2f} s of processor time, {taken[1]:.2f} s, {memory:,} MB")
"""


def lay(folder: Path, files: int) -> None:
    """A manifest, and files that are there and have no rows."""
    for number in range(files):
        (folder / f"part-{number:05d}.parquet").write_bytes(b"PAR1")
    numbers = np.arange(files * GROUPS)
    inventory = Inventory(
        tuple(DataFile(f"part-{number:05d}.parquet", 10**8, f"{number:032x}") for number in range(files)),
        (numbers // GROUPS).astype(np.int32),
        (numbers % GROUPS).astype(np.int32),
        np.full(len(numbers), ROWS),
        np.full(len(numbers), 10**6),
        np.full(len(numbers), 10**6),
    )
    schema = Unischema("numbers", [UnischemaField("id", "int64")])
    write_manifest(open_location(folder), Manifest(inventory, dump_document(schema.name, schema), "a benchmark"))


def main(files: int = FILES) -> None:
    """Prints a line a round."""
    with tempfile.TemporaryDirectory() as folder:
        lay(Path(folder), files)
        for _ in range(ROUNDS):
            subprocess.run([sys.executable, "-c", OPEN, folder], check=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
