"""Tables that are read as Parquet, committed in the store as users would commit them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench.workloads import Workload
from benchmarks.storage.datasets import workload_of
from benchmarks.storage.far import Bench
from benchmarks.storage.reading import value_of
from petastore.writers.generate import generate_metadata

__all__ = ["committed", "table_of"]

FILES = 8


def table_of(bench: Bench) -> Workload:
    """Writes the table that can be checked, and says what it is; its URL is `s3://tables/table`."""
    workload = workload_of("table", bench.scale)

    def write(folder: Path) -> None:
        groups = np.array_split(np.arange(workload.rows // workload.row_group), FILES)
        for number, part in enumerate(one for one in groups if len(one)):
            ids = np.arange(part[0] * workload.row_group, (part[-1] + 1) * workload.row_group)
            table = pa.table({"id": ids, "value": value_of(ids)})
            path = folder / f"part-{number}.parquet"
            pq.write_table(table, path, row_group_size=workload.row_group, compression="none", use_dictionary=False)
        committed(bench, "tables/table")

    bench.made("tables/table", f"{workload!r}, {FILES} files", write)
    return workload


def committed(bench: Bench, name: str) -> None:
    """Commits files that lie in the store already, over the network."""
    with bench.line() as line:
        generate_metadata(f"s3://{name}", storage_options=line.options)
