"""Spark: write and read datasets in Spark sessions, and train on DataFrames.

Classic and Connect sessions are supported.
"""

from __future__ import annotations

from typing import Any

from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.spark.caching.converter import SparkDatasetConverter, make_spark_converter
from petastore.spark.caching.converter_cache import register_delete_dir_handler
from petastore.spark.dataframe import dict_to_spark_row, encode_dataframe, insert_explicit_nulls, rows_to_dataframe
from petastore.spark.decoded import dataset_as_dataframe, dataset_as_rdd
from petastore.spark.prepared import prepare_dataframe
from petastore.spark.session import connect_session, local_session
from petastore.spark.settings import batch_settings
from petastore.spark.source_options import write_options
from petastore.spark.training import LocalRows, run_on_dataframe
from petastore.spark.writing.copy import copy_dataset
from petastore.spark.writing.dataset_writer import DatasetWriter
from petastore.spark.writing.materialize import materialize_dataset

__all__ = [
    "DatasetWriter",
    "LocalRows",
    "SparkDatasetConverter",
    "connect_session",
    "copy_dataset",
    "dataset_as_dataframe",
    "dataset_as_rdd",
    "dict_to_spark_row",
    "encode_dataframe",
    "insert_explicit_nulls",
    "local_session",
    "make_spark_converter",
    "materialize_dataset",
    "prepare_dataframe",
    "register_data_source",
    "register_delete_dir_handler",
    "rows_to_dataframe",
    "run_on_dataframe",
    "write_options",
]


def register_data_source(spark: Any, *, session_settings: bool = True) -> None:
    """Register the Spark data source `petastore`.

    `df.write.format("petastore")` and `spark.read.format("petastore")` then work. May be called repeatedly. Writing
    encodes raw values in Spark's workers, with the requested number of rows per row group, and uses a two-phase commit.
    Therefore killed, retried or speculative tasks do not lose or duplicate rows, and readers see the new data only
    after the commit. Reading returns decoded columns, as `dataset_as_dataframe` does.

    Session settings limit how many rows Spark reads from Parquet, and passes to Python, at a time. For rows with
    arrays, batches of a few megabytes take two thirds of the CPU time of Spark's defaults (4,096 and 10,000 rows).

    Args:
        spark: A classic or Connect session; its workers need petastore and access to the storage.
        session_settings: Whether to set the session's `spark.sql.execution.arrow.maxBytesPerBatch` to 4 MiB and
            `spark.sql.parquet.columnarReaderBatchSize` to 512, unless they are set.

    Raises:
        InvalidArgumentError: `spark` is not a session, or its Spark version lacks Python data sources.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from petastore.spark.data_source import PetastoreSource
    except ImportError as problem:
        raise MissingExtraError("register_data_source", package="pyspark", extra="spark") from problem
    if not hasattr(spark, "dataSource"):
        raise InvalidArgumentError(f"spark must be a session of Spark 4 or newer, got {spark!r}")
    spark.dataSource.register(PetastoreSource)
    for key, value in batch_settings(spark.conf.getAll).items() if session_settings else ():
        spark.conf.set(key, value)
