"""Making the data source known to a session."""

from __future__ import annotations

from typing import Any

from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.spark.settings import batch_settings

__all__ = ["register_data_source"]


def register_data_source(spark: Any, *, session_settings: bool = True) -> None:
    """Lets a session know the format `petastore`, in `df.write.format` and `spark.read.format`. May be called again.

    Writing encodes raw values where Spark's workers run, writes row groups of just the rows that are asked for, and
    commits in two steps: tasks that are killed, tried again or run twice leave no row too many and none too few, and
    nothing changes for readers before the last step. Reading gives decoded columns, as `dataset_as_dataframe`.

    Spark takes from the session how many rows it reads from Parquet, and hands to Python, at a time. Where rows hold
    arrays, some megabytes take two thirds of the processor time that Spark's own 4,096 and 10,000 rows take.

    Args:
        spark: A classic or Connect session, whose workers have petastore and reach the storage.
        session_settings: True sets `spark.sql.execution.arrow.maxBytesPerBatch` of the session to 4 MiB, and
            `spark.sql.parquet.columnarReaderBatchSize` to 512, unless they were set; False leaves it alone.

    Raises:
        InvalidArgumentError: The session is none, or its Spark has no data sources in Python.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from petastore.spark.source.data_source import PetastoreSource
    except ImportError as problem:
        raise MissingExtraError("register_data_source", package="pyspark", extra="spark") from problem
    if not hasattr(spark, "dataSource"):
        raise InvalidArgumentError(f"register_data_source takes a session of Spark 4 or newer, but {spark!r} was given")
    spark.dataSource.register(PetastoreSource)
    for key, value in batch_settings(spark.conf.getAll).items() if session_settings else ():
        spark.conf.set(key, value)
