"""What a hit of the local disk cache costs by column: chunks as they are stored, and decoded as Arrow keeps them.

    python -m benchmarks.cached_columns

Processor time of one thread from the file of an entry to an Arrow array, checksums included, the median of turns; the
files lie in the page cache.
"""

from __future__ import annotations

import io
import mmap
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from petastore.cache.checksum import checksum

ROWS, TURNS = 100_000, 21


def columns() -> dict[str, Any]:
    """Columns of tables, by what they hold."""
    random = np.random.default_rng(0)
    floats = random.random(16 * ROWS, np.float32)
    return {
        "float64, random": pa.array(random.random(ROWS)),
        "float32, random": pa.array(floats[:ROWS]),
        "float32, a tenth missing": pa.array(floats[:ROWS], mask=random.random(ROWS) < 0.1),
        "int64, ascending": pa.array(np.arange(ROWS)),
        "int64, 100 values": pa.array(random.integers(0, 100, ROWS)),
        "bool": pa.array(random.random(ROWS) < 0.5),
        "timestamp": pa.array(np.arange(ROWS) * 1000, pa.timestamp("us")),
        "16 float32": pa.FixedSizeListArray.from_arrays(pa.array(floats), 16),
        "text of 12": pa.array([f"{number:012}" for number in range(ROWS)]),
    }


def mapped(path: Path) -> Any:
    """The bytes of an entry, looked at as a hit looks at them."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0), mmap.PROT_READ)
    checksum(b"", memoryview(data))
    return pa.py_buffer(data)


def decoded(path: Path) -> pa.Table:
    """A column of a Parquet file."""
    reader = pq.ParquetReader()
    reader.open(pa.BufferReader(mapped(path)), page_checksum_verification=True)
    return reader.read_row_group(0, column_indices=[0], use_threads=False)


def viewed(path: Path) -> pa.Table:
    """A column as Arrow keeps it."""
    with pa.ipc.open_stream(mapped(path)) as stream:
        return stream.read_all()


def cpu_ms(reads: list[tuple[Callable[[Path], pa.Table], Path]]) -> list[float]:
    """Processor time of each, in turns."""
    taken: list[list[float]] = [[] for _ in reads]
    for _ in range(TURNS):
        for (read, path), of_one in zip(reads, taken, strict=True):
            began = time.thread_time()
            read(path)
            of_one.append(1000 * (time.thread_time() - began))
    return [statistics.median(of_one) for of_one in taken]


def main() -> None:
    """Prints a table."""
    print("| column | compression | stored MB | Arrow MB | decoding ms | mapping ms | times |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        stored, arrow = Path(folder, "stored"), Path(folder, "arrow")
        for name, column in columns().items():
            table, stream = pa.table({"x": column}), io.BytesIO()
            with pa.ipc.new_stream(stream, table.schema) as writer:
                writer.write_table(table)
            arrow.write_bytes(stream.getvalue())
            for compression in ("none", "snappy", "zstd"):
                pq.write_table(table, stored, row_group_size=ROWS, compression=compression)
                decoding, mapping = cpu_ms([(decoded, stored), (viewed, arrow)])
                sizes = " | ".join(f"{path.stat().st_size / 1e6:.2f}" for path in (stored, arrow))
                times = decoding / mapping
                print(
                    f"| {name} | {compression} | {sizes} | {decoding:.2f} | {mapping:.2f} | {times:.1f} |", flush=True
                )


if __name__ == "__main__":
    main()
