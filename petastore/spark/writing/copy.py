"""`copy_dataset`: some columns and rows of a dataset to another place, as stored cells: nothing is decoded."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from petastore.dataset import Dataset, open_dataset
from petastore.errors import DatasetExistsError, DatasetNotFoundError, EncodeError, RequestError, SchemaError
from petastore.inventory import Inventory
from petastore.plan.request import whole_number
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.schema.select import select_fields
from petastore.spark.tensor_columns import quoted
from petastore.spark.urls import spark_url
from petastore.spark.writing.materialize import materialize_dataset
from petastore.storage.files.listing import files_below
from petastore.storage.files.location import Location, open_location

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
        RequestError: A column is unknown, a number cannot be, or the target is the source or lies in it.
        SchemaError: The source is plain Parquet, whose rows Spark copies as well by itself.
        DatasetNotFoundError: There is no source.
        DatasetExistsError: There is something in the target, and it is not to be overwritten.
        StorageError: The storage refused.
    """
    if partitions_count is not None:
        whole_number(partitions_count, name="partitions_count", least=1)
    dataset = open_dataset(source_url, storage_options=storage_options)
    target = open_location(target_url, storage_options=storage_options)
    _refuse_overlap(dataset.location, target)
    if not overwrite_output:
        _refuse_files(target)
    if not dataset.has_schema_document:
        raise SchemaError(
            f"{dataset.url} is plain Parquet: no schema says what its columns are. Copy it with Spark, or give it a "
            "schema with petastore.writers.generate.generate_metadata"
        )
    copied = dataset.schema
    if field_regex is not None:
        asked = [field_regex] if isinstance(field_regex, str) else list(field_regex)
        copied = Unischema(copied.name, select_fields(copied, asked, among=dataset.url))
    filled = list(not_null_fields or ())
    for name in filled:
        if name not in dataset.schema:
            known = ", ".join(map(repr, dataset.schema.fields))
            raise RequestError(f"not_null_fields names {name!r}, but {dataset.url} has {known}")
    with materialize_dataset(
        spark,
        target_url,
        copied,
        row_group_size_mb,
        rows_per_row_group=rows_per_row_group,
        storage_options=storage_options,
    ) as writer:
        rows = _stored_rows(spark, dataset, os.fspath(source_url))
        for name in filled:
            rows = rows.where(f"{quoted(name)} is not null")
        rows = rows.select(*(quoted(name) for name in copied.fields))
        rows = rows if partitions_count is None else rows.repartition(partitions_count)
        numbered = rows.toDF(*(f"c{number}" for number in range(len(copied))))
        cells = numbered.mapInArrow(_Declared(copied), copied.as_spark_schema())
        writer.write(cells, "overwrite" if overwrite_output else "error")
    assert writer.inventory is not None  # noqa: S101 - the block has ended well
    return writer.inventory


def _refuse_overlap(source: Location, target: Location) -> None:
    one, other = (f"{place.root.rstrip('/')}/" for place in (source, target))
    if source.filesystem == target.filesystem and (one.startswith(other) or other.startswith(one)):
        raise RequestError(
            f"the copy cannot lie at {target.url}: the source, {source.url}, is or lies there, or around it"
        )


def _refuse_files(target: Location) -> None:
    with contextlib.suppress(DatasetNotFoundError):
        found = files_below(target)
        raise DatasetExistsError(
            f"{target.url} is not empty: {len(found):,} files are there already. Choose another URL, or overwrite them"
        )


def _stored_rows(spark: SparkSession, dataset: Dataset, source_url: str) -> DataFrame:
    """The rows of the dataset's own files, with what their directories say."""
    base = spark_url(source_url, dataset.location).rstrip("/")
    # With a schema, Spark does not guess what "007" in a directory's name is.
    reader = spark.read.schema(dataset.schema.as_spark_schema())
    if dataset.location.paths is None:
        reader = reader.option("basePath", base)
        return reader.parquet(*(f"{base}/{file.path}" for file in dataset.inventory.files))
    return reader.parquet(base)


@dataclasses.dataclass(frozen=True)
class _Declared:
    """What Spark's workers run: cells of exactly the declared types, so that the copy's columns are REQUIRED again."""

    schema: Unischema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stored = storage_schema(self.schema)
        for batch in batches:
            for field, cells in zip(self.schema, batch.columns, strict=True):
                if cells.null_count and not field.nullable:
                    raise EncodeError("the source holds a null, but the field is not nullable", column=field.name)
            columns = [cells.cast(field.type) for cells, field in zip(batch.columns, stored, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=stored)
