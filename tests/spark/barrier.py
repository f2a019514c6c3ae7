"""Ranks of Spark's barrier tasks; `test_barrier.py` checks the facts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import petastore
from petastore.distributed import all_gather, current_shard, from_barrier

ROWS = 53


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Read a dataset in the barrier tasks of an RDD and of a DataFrame, and request the rank in another task."""
    url = str(folder / "numbers")
    petastore.write_dataset(url, {"id": range(ROWS)}, rows_per_row_group=10)

    def task(_: Any) -> Iterator[str]:
        import pyspark

        shard = from_barrier()
        assert shard == current_shard() == from_barrier(pyspark.BarrierTaskContext.get())
        with petastore.make_reader(url, cur_shard="auto") as reader:
            reader.plan.assert_agreed(all_gather)
            ids = [int(row.id) for row in reader]
        yield json.dumps([shard.index, shard.count, ids])

    def arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"said": list(task(None))})

    def alone(_: Any) -> Iterator[str]:
        import pyspark

        for ask in (current_shard, from_barrier, lambda: from_barrier(pyspark.TaskContext.get())):
            try:
                yield str(ask())
            except petastore.PetastoreError as problem:
                yield str(problem)

    context = spark.sparkContext
    ranks = context.parallelize(range(2), 2).barrier().mapPartitions(task).collect()
    rows = spark.range(8, numPartitions=2).mapInArrow(arrow, "said string", barrier=True).collect()
    refused = context.parallelize(range(1), 1).mapPartitions(alone).collect()
    return {
        "rdd": [json.loads(text) for text in ranks],
        "frame": [json.loads(row.said) for row in rows],
        "refused": refused,
    }
