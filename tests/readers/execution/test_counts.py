"""Tests of storage counters: they are summed over datasets, and shared counters are counted once."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from petastore import open_dataset
from petastore.readers.execution.execution import counts_of
from petastore.readers.reader import Reader
from petastore.work.pools import Workers
from tests.readers.small import plan_of, written


def test_diagnostics_have_no_storage_counters_for_local_files(tmp_path: Path) -> None:
    assert counts_of([written(tmp_path)]) == {}
    assert counts_of([]) == {}


def test_diagnostics_sum_requests_over_datasets(
    tmp_path: Path,
) -> None:
    memory = fsspec.filesystem("memory")
    datasets = []
    for name in ("one", "other"):
        with memory.open(f"counted/{name}/part.parquet", "wb") as file:
            pq.write_table(pa.table({"id": range(100)}), file)
        datasets.append(open_dataset(f"memory://counted/{name}"))
        with Reader(datasets[-1], plan_of(datasets[-1]), workers=Workers("dummy")) as reader:
            assert sum(1 for _ in reader) == 100
    each = [counts_of([dataset]) for dataset in datasets]
    assert all(name.startswith("storage_") for name in each[0])
    assert each[0]["storage_requests"] > 0
    assert counts_of(datasets) == {name: each[0][name] + each[1][name] for name in each[0]}
    assert counts_of([datasets[0], datasets[0].with_decode(None)]) == each[0]
    for dataset in datasets:
        dataset.kept.close()
    memory.rm("counted", recursive=True)
