"""Daemon of pyspark's Python workers that imports packages before it forks workers: `spark.python.daemon.module`.

A worker that imports pyarrow, pandas and petastore itself takes a second of CPU, and tests kill or fail hundreds.
"""

from __future__ import annotations

import gc
import importlib

from pyspark.daemon import manager

_USED_BY_TASKS = (
    "pandas",
    "pyarrow.parquet",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    "petastore",
    "petastore.codecs",
    "petastore.indexing",
    "petastore.spark.dataframe",
    "petastore.spark.data_source",
    "petastore.spark.writing.tasks",
)

if __name__ == "__main__":
    for module in _USED_BY_TASKS:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # without this, the garbage collector writes to shared pages, and each worker copies them
    manager()
