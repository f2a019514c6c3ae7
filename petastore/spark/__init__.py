"""Spark: write datasets from Spark sessions, classic and Connect. Importing this loads no pyspark."""

from __future__ import annotations

from petastore.spark.dataframe import encode_dataframe, rows_to_dataframe
from petastore.spark.materialize import materialize_dataset
from petastore.spark.rows import dict_to_spark_row, insert_explicit_nulls
from petastore.spark.session import connect_session, local_session

__all__ = [
    "connect_session",
    "dict_to_spark_row",
    "encode_dataframe",
    "insert_explicit_nulls",
    "local_session",
    "materialize_dataset",
    "rows_to_dataframe",
]
