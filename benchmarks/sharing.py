"""Cost of a thread-safe reader for a single thread: `python -m benchmarks.sharing`. Makes its own dataset.

A reader's rows and batches are taken by one thread in turns from the reader as it is and from one that threads may not
share: it gives its rows by `itertools.chain`, which crashes where two threads enter it, and its batches by a generator.
A round gives the ratio of their CPU times. Prints the median with its spread beside the bound that it has to keep, and
exits with 1 if one is not kept; then the rates of several threads that share one reader, for comparison.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from petastore import open_dataset
from petastore.readers import Reader, Workers

ROUNDS = 15
ROWS = 400_000
BOUND = 1.01
"""A thread that shares its reader with nobody may take this many times as long as one that could not."""


class Alone(Reader):
    """A reader for one thread."""

    def __next__(self) -> Any:
        """The next row, without a thought of other threads."""
        if self.stopped:
            raise RuntimeError("this reader was stopped")
        rows = self.__dict__.get("rows_of_one")
        if rows is None:
            rows = self.__dict__["rows_of_one"] = itertools.chain.from_iterable(
                self._pass.handouts(1, self._execution.hand_out)
            )
        return next(rows)

    def iter_batches(self, batch_size: int) -> Iterator[Any]:
        """A generator of them."""
        for batches in self._pass.batches(batch_size):
            yield from batches


def reader_of(kind: type[Reader], url: str) -> Reader:
    """A fresh reader over all rows, in file order."""
    dataset = open_dataset(url)
    plan = dataset.plan(shuffle_row_groups=False)
    return kind(dataset, plan, workers=Workers("thread", 2))


def of_rows(reader: Reader) -> int:
    """Takes all rows."""
    return sum(1 for _ in reader)


def of_batches(reader: Reader) -> int:
    """Takes all rows in batches of 64."""
    return sum(batch.num_rows for batch in reader.iter_batches(64))


def seconds(kind: type[Reader], url: str, take: Callable[[Reader], int]) -> float:
    """CPU seconds of the thread that takes everything; what it waits for others does not count."""
    with reader_of(kind, url) as reader:
        began = time.thread_time()
        rows = take(reader)
        took = time.thread_time() - began
    assert rows == ROWS
    return took


def shared_rate(url: str, threads: int) -> float:
    """Rows a second of some threads that take them all together."""
    with reader_of(Reader, url) as reader:
        begin = threading.Barrier(threads + 1)
        counts: list[int] = []

        def consume() -> None:
            begin.wait()
            counts.append(sum(1 for _ in reader))

        running = [threading.Thread(target=consume) for _ in range(threads)]
        for thread in running:
            thread.start()
        begin.wait()
        began = time.perf_counter()
        for thread in running:
            thread.join()
    assert sum(counts) == ROWS
    return ROWS / (time.perf_counter() - began)


def main() -> int:
    """Runs all rounds, prints the table, and gives the exit status."""
    all_kept = True
    with tempfile.TemporaryDirectory() as url:
        columns = {f"column_{number}": np.arange(ROWS, dtype=np.int64) + number for number in range(5)}
        pq.write_table(pa.table(columns), f"{url}/rows.parquet", row_group_size=50_000)
        print(f"{ROWS:,} rows of five numbers, {ROUNDS} rounds; CPU time of the thread that takes them")
        for what, take in (("rows", of_rows), ("batches of 64", of_batches)):
            found = [seconds(Reader, url, take) / seconds(Alone, url, take) for _ in range(ROUNDS)]
            ratio = statistics.median(found)
            kept = ratio <= BOUND
            all_kept &= kept
            print(
                f"  {what:<14} {ratio:.3f} of a reader for one thread ({min(found):.3f} to {max(found):.3f}); "
                f"at most {BOUND}: {'kept' if kept else 'NOT KEPT'}"
            )
        for threads in (1, 2, 8):
            rates = sorted(shared_rate(url, threads) for _ in range(5))
            print(f"  {threads} thread{'s' if threads > 1 else ' '} together: {rates[2]:,.0f} rows/s")
    print("all bounds are kept" if all_kept else "a bound is NOT KEPT")
    return 0 if all_kept else 1


if __name__ == "__main__":
    sys.exit(main())
