"""`copy_dataset`: some columns and rows of a dataset to another place, as stored cells: nothing is decoded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from petastore.dataset import Dataset
from petastore.inventory import Inventory
from petastore.plan.request import whole_number
from petastore.spark.tensor_columns import quoted
from petastore.spark.urls import spark_url
from petastore.spark.writing.materialize import materialize_dataset
from petastore.writers.copying.cells import DeclaredCells
from petastore.writers.copying.requested import Copy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["copy_dataset"]


def copy_dataset(
    spark: SparkSession,
    source_url: str | os.PathLike[str],
    target_url: str | os.PathLike[str],
    field_regex: Iterable[str] | None = None,
    not_null_fields: Iterable[str] | None = None,
    overwrite_output: bool = False,
    partitions_count: int | None = None,
    row_group_size_mb: float | None = None,
    hdfs_driver: str | None = None,  # noqa: ARG001 - Petastorm's; fsspec finds the driver of HDFS
    *,
    rows_per_row_group: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Inventory:
    """Copy a dataset, or a part of it; on classic and Connect sessions alike.

    What hive directories say becomes columns of the files. Row-group indexes are not copied: rows lie elsewhere then.

    Args:
        spark: The session that copies.
        source_url: A dataset of petastore or Petastorm.
        target_url: The directory of the copy.
        field_regex: Names, or regular expressions over whole names; None is all columns.
        not_null_fields: Leave out rows in which one of these columns is null; they need not be copied themselves.
        overwrite_output: Replace what is in the target; else that is an error. Spark deletes it before it writes.
        partitions_count: Files of the copy, at most; None is as many as Spark reads the source in.
        row_group_size_mb: MiB of a row group of the copy, about.
        hdfs_driver: Means nothing any more.
        rows_per_row_group: Rows of each row group, exactly, but the last of a file.
        storage_options: Keyword arguments of the fsspec filesystem through which this process sees both.

    Returns:
        The files and row groups of the copy.

    Raises:
        InvalidArgumentError: A column is unknown, a number cannot be, or the target is the source or lies in it.
        SchemaError: The source is plain Parquet, whose rows Spark copies as well by itself.
        DatasetNotFoundError: There is no source.
        DatasetExistsError: There is something in the target, and it is not to be overwritten.
        StorageError: The storage refused.
    """
    if partitions_count is not None:
        whole_number(partitions_count, name="partitions_count", least=1)
    copied = Copy.of(
        source_url,
        target_url,
        field_regex,
        not_null_fields,
        overwrite_output=overwrite_output,
        storage_options=storage_options,
    )
    schema = copied.schema
    with materialize_dataset(
        spark,
        target_url,
        schema,
        row_group_size_mb,
        rows_per_row_group=rows_per_row_group,
        storage_options=storage_options,
    ) as writer:
        rows = _stored_rows(spark, copied.source, os.fspath(source_url))
        for name in copied.not_null:
            rows = rows.where(f"{quoted(name)} is not null")
        rows = rows.select(*(quoted(name) for name in schema.fields))
        rows = rows if partitions_count is None else rows.repartition(partitions_count)
        numbered = rows.toDF(*(f"c{number}" for number in range(len(schema))))
        cells = numbered.mapInArrow(DeclaredCells(schema), schema.as_spark_schema())
        writer.write(cells, "overwrite" if overwrite_output else "error")
    assert writer.inventory is not None  # noqa: S101 - the block has ended well
    return writer.inventory


def _stored_rows(spark: SparkSession, dataset: Dataset, source_url: str) -> DataFrame:
    """The rows of the dataset's own files, with what their directories say."""
    base = spark_url(source_url, dataset.location).rstrip("/")
    # With a schema, Spark does not guess what "007" in a directory's name is.
    reader = spark.read.schema(dataset.schema.as_spark_schema())
    if dataset.location.paths is None:
        reader = reader.option("basePath", base)
        return reader.parquet(*(f"{base}/{file.path}" for file in dataset.inventory.files))
    return reader.parquet(base)
