"""Datasets back in Spark, decoded: an RDD of named tuples, and a DataFrame of plain columns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from petastore.dataset import open_dataset
from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.values import each_value
from petastore.spark.classic import rdd_of_numbers
from petastore.spark.decoded import DecodedRowGroups, plain_batch, plain_schema

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["dataset_as_dataframe", "dataset_as_rdd"]

_MOST_PARTITIONS = 2000


def dataset_as_rdd(
    dataset_url: str | os.PathLike[str],
    spark_session: SparkSession,
    schema_fields: Iterable[str | UnischemaField] | None = None,
    hdfs_driver: str | None = None,  # noqa: ARG001 - Petastorm's; fsspec finds the driver of HDFS
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> RDD[Any]:
    """The decoded rows of a dataset as an RDD of named tuples, as `make_reader` gives them.

    Spark's workers read and decode, so petastore must be installed there, and the storage be within their reach.

    Args:
        dataset_url: A dataset of petastore or Petastorm, or plain Parquet.
        spark_session: A classic session; Spark Connect has no RDDs.
        schema_fields: Names, regular expressions over whole names, or fields; None is all.
        hdfs_driver: Means nothing any more.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Raises:
        InvalidArgumentError: The session is one of Spark Connect, or columns that were asked for match nothing.
        DatasetNotFoundError: There is no dataset.
    """
    if not hasattr(spark_session, "createDataFrame"):
        raise InvalidArgumentError(
            f"dataset_as_rdd takes the URL first, then a Spark session, but {spark_session!r} was given"
        )
    if ".connect." in type(spark_session).__module__:
        raise InvalidArgumentError(
            "Spark Connect has no RDDs; petastore.spark.dataset_as_dataframe(spark, dataset_url) gives the same rows "
            "as a DataFrame"
        )
    dataset = open_dataset(dataset_url, storage_options=storage_options, filesystem=filesystem)
    groups = DecodedRowGroups(dataset, schema_fields)
    return rdd_of_numbers(spark_session, len(groups), _partitions(groups)).flatMap(_Rows(groups))


def dataset_as_dataframe(
    spark: SparkSession,
    dataset_url: str | os.PathLike[str],
    schema_fields: Iterable[str | UnischemaField] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> DataFrame:
    """The decoded rows of a dataset as a DataFrame, on classic and Connect sessions.

    A scalar has the Spark type that it is stored in. A tensor, whatever its codec, is an array of arrays of the type
    that holds its numbers: a `uint8` picture is `array<array<array<smallint>>>`, since Spark has no unsigned types.

    Args:
        spark: A classic or Connect session, whose workers have petastore and reach the storage.
        dataset_url: A dataset of petastore or Petastorm, or plain Parquet.
        schema_fields: Names, regular expressions over whole names, or fields; None is all.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Returns:
        A DataFrame, computed when it is used. A cell that cannot be decoded then fails the job with a `DecodeError` in
        its message.

    Raises:
        InvalidArgumentError: Columns that were asked for match nothing.
        SchemaError: Spark has no type for a column; leave it out.
        DatasetNotFoundError: There is no dataset.
        MissingExtraError: pyspark is not installed.
    """
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(
            f"dataset_as_dataframe takes a Spark session first, then the URL, but {spark!r} was given"
        )
    dataset = open_dataset(dataset_url, storage_options=storage_options, filesystem=filesystem)
    groups = DecodedRowGroups(dataset, schema_fields)
    plain = plain_schema(groups.schema)
    numbers = spark.range(0, len(groups), 1, _partitions(groups))
    return numbers.mapInArrow(_Batches(groups, plain), plain.as_spark_schema())


def _partitions(groups: DecodedRowGroups) -> int:
    return max(1, min(len(groups), _MOST_PARTITIONS))


@dataclasses.dataclass(frozen=True)
class _Rows:
    """What Spark's workers run for the number of a row group."""

    groups: DecodedRowGroups

    def __call__(self, group: int) -> Iterator[Any]:
        make = self.groups.schema.row_type._make
        for columns in self.groups.parts(group):
            yield from map(make, zip(*map(each_value, columns.values()), strict=True))


@dataclasses.dataclass(frozen=True)
class _Batches:
    """What Spark's workers run over the numbers of row groups."""

    groups: DecodedRowGroups
    plain: Unischema

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for group in batch.column(0).to_pylist():
                for columns in self.groups.parts(group):
                    yield plain_batch(columns, self.plain)
