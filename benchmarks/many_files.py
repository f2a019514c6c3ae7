"""Cost of many small files compared with pyarrow.dataset: `python -m benchmarks.many_files [files]`.

Writes 10,000 files of 100 rows to a temporary folder. All rows are read by petastore and by `pyarrow.dataset`, in one
process and in turns, from listing the directory on; nothing but the system's cache is warm. Then a manifest is written,
and petastore reads by it. Prints each figure as the median of several rounds with its spread, and the bound that it has
to keep. Exits with 1 if one is not kept.
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
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from petastore import make_batch_reader
from petastore.writers.generate import generate_metadata

FILES = 10_000
ROWS = 100
ROUNDS = 7
MOST_TIMES = 2.5
"""Multiple of `pyarrow.dataset` that reading may take without a manifest: each footer is parsed when it is opened."""

MOST_TIMES_BY_MANIFEST = 1.5
MOST_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Bound:
    """A figure, and what it may be at most."""

    what: str
    values: list[float]
    most: float
    unit: str

    @property
    def is_kept(self) -> bool:
        """Whether the median is within the bound."""
        return statistics.median(self.values) <= self.most

    def __str__(self) -> str:
        kept = "KEPT" if self.is_kept else "NOT KEPT"
        return f"{self.what:<52} {_spread(self.values)} {self.unit:<2} at most {self.most:g}  {kept}"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f}  ({min(values):.2f} to {max(values):.2f})"


def write_files(directory: Path, files: int) -> None:
    """Files of a number, a measurement, a label and a name."""
    generator = np.random.default_rng(0)
    for number in range(files):
        table = pa.table(
            {
                "id": np.arange(number * ROWS, (number + 1) * ROWS),
                "x": generator.random(ROWS),
                "label": generator.integers(0, 10, ROWS).astype(np.int32),
                "name": [f"row {row}" for row in range(ROWS)],
            }
        )
        pq.write_table(table, directory / f"part-{number:05d}.parquet")


def by_arrow_as_table(directory: str) -> int:
    """Rows, read by `pyarrow.dataset` into one table."""
    return int(pyarrow.dataset.dataset(directory).to_table().num_rows)


def by_arrow_in_batches(directory: str) -> int:
    """Rows, read by `pyarrow.dataset` batch by batch."""
    return sum(batch.num_rows for batch in pyarrow.dataset.dataset(directory).to_batches())


def by_iteration(directory: str) -> int:
    """Rows, read by iterating a reader."""
    with make_batch_reader(directory) as reader:
        return sum(len(batch.id) for batch in reader)


def by_batches(directory: str) -> int:
    """Rows, read in batches of 1,000."""
    with make_batch_reader(directory) as reader:
        return sum(len(batch["id"]) for batch in reader.iter_batches(1000))


def first_batch(directory: str) -> int:
    """Rows of the first batch."""
    with make_batch_reader(directory) as reader:
        return len(next(reader).id)


def seconds(read: Callable[[str], int], directory: str, rows: int) -> float:
    """How long a way of reading takes; it has to give so many rows."""
    began = time.perf_counter()
    found = read(directory)
    took = time.perf_counter() - began
    assert found == rows, f"{read.__name__} gave {found:,} of {rows:,} rows"
    return took


def compared(directory: str, files: int, what: str, most: float) -> list[Bound]:
    """Multiples of the time of `pyarrow.dataset`; prints the times."""
    ways = (by_arrow_as_table, by_arrow_in_batches, by_iteration, by_batches)
    took: dict[str, list[float]] = {way.__name__: [] for way in ways}
    for number in range(ROUNDS + 1):  # the first one warms the system's cache, and what is imported late
        for way in ways:
            duration = seconds(way, directory, files * ROWS)
            if number:
                took[way.__name__].append(duration)
    for name, values in took.items():
        print(f"{f'{name}, {what}':<52} {_spread(values)} s")
    return [
        Bound(
            f"{ours} / {theirs}, {what}",
            [one / other for one, other in zip(took[ours], took[theirs], strict=True)],
            most,
            "×",
        )
        for ours in ("by_iteration", "by_batches")
        for theirs in ("by_arrow_as_table", "by_arrow_in_batches")
    ]


def measured(directory: str, files: int) -> list[Bound]:
    """All figures; prints those without a bound."""
    bounds = compared(directory, files, "no manifest", MOST_TIMES)
    generate_metadata(directory)
    bounds += compared(directory, files, "manifest", MOST_TIMES_BY_MANIFEST)
    first = [seconds(first_batch, directory, ROWS) for _ in range(ROUNDS)]
    return [*bounds, Bound("first batch, manifest", first, MOST_SECONDS, "s")]


def main(files: int) -> int:
    """Measures and prints; 1 where a bound is not kept."""
    print(f"{files:,} files of {ROWS} rows; {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as directory:
        write_files(Path(directory), files)
        bounds = measured(directory, files)
    print(*bounds, sep="\n")
    return 0 if all(bound.is_kept for bound in bounds) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else FILES))
