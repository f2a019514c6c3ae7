"""Spark: write and read datasets in Spark sessions (classic and Connect), and train on DataFrames."""

from __future__ import annotations

from petastore.spark.caching.converter import SparkDatasetConverter, make_spark_converter
from petastore.spark.caching.converter_cache import register_delete_dir_handler
from petastore.spark.dataframe import dict_to_spark_row, encode_dataframe, insert_explicit_nulls, rows_to_dataframe
from petastore.spark.decoded import dataset_as_dataframe, dataset_as_rdd
from petastore.spark.prepared import prepare_dataframe
from petastore.spark.session import connect_session, local_session
from petastore.spark.source import register_data_source, write_options
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
