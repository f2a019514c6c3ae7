"""`copy_dataset`: copy columns and rows of a dataset without decoding them.

Encoded cells are copied with Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from petastore.dataset import Dataset
from petastore.errors import SchemaError
from petastore.inventory import Inventory
from petastore.plan.request import whole_number
from petastore.spark.dataframe import numbered_columns
from petastore.spark.prepared import quoted
from petastore.spark.settings import spark_url
from petastore.spark.writing.materialize import materialize_dataset
from petastore.spark.writing.task_progress import Progress
from petastore.writers.copying import Copy, DeclaredCells

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
    hdfs_driver: str | None = None,  # noqa: ARG001 - a parameter of Petastorm; fsspec finds the driver
    *,
    rows_per_row_group: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | Progress | None = None,
) -> Inventory:
    """Copy a dataset or a part of it, with Spark (classic and Connect sessions).

    Hive partition columns become columns of the files. Row-group indexes are not copied, because row groups change.

    Args:
        spark: The session that copies.
        source_url: A dataset of petastore or Petastorm.
        target_url: The directory of the copy.
        field_regex: Names, or regular expressions over whole names; None means all columns.
        not_null_fields: Names of columns; rows with a null in any of these columns are left out. The columns need
            not be copied.
        overwrite_output: Whether to replace an existing target, which Spark deletes before writing. False raises an
            error if the target has files.
        partitions_count: Maximum number of files of the copy; None means one per partition of the source.
        row_group_size_mb: Approximate size of a row group of the copy in MiB.
        hdfs_driver: Ignored; a parameter of Petastorm's function.
        rows_per_row_group: Exact rows per row group, except the last one of a file.
        storage_options: Keyword arguments of the fsspec filesystem with which this process reads both datasets.
        progress: As in `materialize_dataset`.

    Returns:
        The inventory of the copy.

    Raises:
        InvalidArgumentError: A column is unknown, a number is invalid, or target and source are equal or nested.
        SchemaError: The source is plain Parquet, which Spark can copy by itself.
        DatasetNotFoundError: The source does not exist.
        DatasetExistsError: The target has files, and `overwrite_output` is False.
        StorageError: A storage operation failed.
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
    if not copied.source.has_schema_document:
        raise SchemaError(
            f"the source must have a schema, got plain Parquet in {copied.source.url}. Copy it with `petastore copy` "
            "without Spark options, or with Spark itself"
        )
    schema = copied.schema
    with materialize_dataset(
        spark,
        target_url,
        schema,
        row_group_size_mb,
        rows_per_row_group=rows_per_row_group,
        storage_options=storage_options,
        progress=progress,
    ) as writer:
        rows = _stored_rows(spark, copied.source, os.fspath(source_url))
        for name in copied.not_null:
            rows = rows.where(f"{quoted(name)} is not null")
        rows = rows.select(*(quoted(name) for name in schema.fields))
        rows = rows if partitions_count is None else rows.repartition(partitions_count)
        cells = numbered_columns(rows).mapInArrow(DeclaredCells(schema), schema.as_spark_schema())
        writer.write(cells, "overwrite" if overwrite_output else "error")
    assert writer.inventory is not None  # noqa: S101 - set when the block ends without an error
    return writer.inventory


def _stored_rows(spark: SparkSession, dataset: Dataset, source_url: str) -> DataFrame:
    """Return a DataFrame of the stored cells in the dataset's files.

    Only files of the dataset's inventory are read; hive partition columns are included.
    """
    base = spark_url(source_url, dataset.location).rstrip("/")
    # With a schema, Spark does not infer the types of partition values: "007" in a directory name stays text.
    reader = spark.read.schema(dataset.schema.as_spark_schema())
    if dataset.location.paths is None:
        reader = reader.option("basePath", base)
        return reader.parquet(*(f"{base}/{file.path}" for file in dataset.inventory.files))
    return reader.parquet(base)
