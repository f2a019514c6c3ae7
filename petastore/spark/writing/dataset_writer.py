"""What a `materialize_dataset` block yields: it writes rows, columns, files and cells, each in its fastest way."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.request import whole_number
from petastore.spark.dataframe import check_columns
from petastore.spark.writing.block_job import BlockJob
from petastore.spark.writing.kinds import check_cells, holds_cells
from petastore.spark.writing.made_rows import MadeRows
from petastore.spark.writing.parquet_files import ParquetFiles
from petastore.spark.writing.tasks import parts_of_columns, parts_of_items, parts_of_rdd
from petastore.storage.requests.shown import shown_url
from petastore.writers.target import Mode

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DatasetWriter"]


class DatasetWriter:
    """Writes to the dataset of its block. Made by `materialize_dataset`; for one thread.

    What `write_rows`, `write_columns` and `write_files` write lies in hidden files until the block ends well, and is
    then committed in one step: of tasks that are killed, tried again or run twice each row is there once. `mode` says
    what becomes of what was there before the block: `"error"` refuses, `"append"` adds to it, `"overwrite"` replaces
    it. Several writes of one block add up, and have the same mode.
    """

    def __init__(self, spark: SparkSession, url: str, settings: Mapping[str, str], job: BlockJob) -> None:
        self.url = url
        """The URL for Spark; a local path has become a `file` URL."""
        self.settings = dict(settings)
        """The Parquet writer's settings, key to value."""
        self.inventory: Inventory | None = None
        """What was committed; None until the block has ended well."""
        self._spark = spark
        self._job = job

    def write(self, df: DataFrame, mode: Mode = "error", *, partition_by: Sequence[str] = ()) -> None:
        """Write a DataFrame to the dataset: stored cells, or raw columns, which are encoded on the way.

        Raw columns go as by `write_columns`. They are known by their types: arrays where cells of arrays are bytes.
        Stored cells go to Spark's own writer, with the settings given as options of this write alone.

        Args:
            df: Stored cells, as `encode_dataframe` makes them, or raw columns, as it takes them.
            mode: `"error"`, `"append"` or `"overwrite"`; of stored cells, Spark's.
            partition_by: Columns of stored cells that become hive directories.

        Raises:
            InvalidArgumentError: Columns are neither cells of the schema nor its raw values, or could be both; cells
                are nullable where the schema's fields are not; or the block wrote otherwise before, and Spark's own
                writer takes no part in that.
            DatasetExistsError: Something is there, and the mode is `"error"`; of raw columns.
        """
        if not partition_by and not holds_cells(df.schema, self._job.schema):
            self.write_columns(df, mode)
            return
        if self._job.has_written:
            raise InvalidArgumentError(
                "stored cells are written by Spark's own writer, and what this block wrote before is committed "
                "otherwise; give the cells a block of their own, or write their raw values with write_columns"
            )
        check_cells(df.schema, self._job.schema)
        df.write.options(**self.settings).mode(mode).partitionBy(*partition_by).parquet(self.url)

    def write_rows(
        self,
        rows: RDD[Any] | Callable[[Any], Any],
        items: Iterable[Any] | None = None,
        *,
        partitions: int | None = None,
        mode: Mode = "error",
    ) -> None:
        """Write rows where Spark's workers make them: they are encoded there, and never pass through Java.

        Args:
            rows: An RDD of dicts or named tuples, of which a nullable field may be left out or None. Or a function,
                which also works on Spark Connect, where there are no RDDs: it is called in Spark's workers with each of
                the `items`, and gives a row, or an iterable of rows, such as those of a file.
            items: What the function is called with: numbers, names of files, whatever can be pickled. They travel with
                the function, so let them be small; a `range` always is.
            partitions: So many tasks share the items, each those that lie together; None lets Spark decide. Each writes
                files of its own.
            mode: `"error"`, `"append"` or `"overwrite"`.

        Raises:
            InvalidArgumentError: There are no rows, or no items, or too many arguments for an RDD.
            DatasetExistsError: Something is there, and the mode is `"error"`.
            SchemaError: The dataset to append to has another schema.
            StorageError: The storage refused.
        """
        if hasattr(rows, "mapPartitionsWithIndex"):
            if items is not None or partitions is not None:
                raise InvalidArgumentError(
                    "items= and partitions= go with a function, and an RDD was given, which has its own partitions; "
                    "leave them out"
                )
            self._job.write(mode, functools.partial(parts_of_rdd, rows))
            return
        if not callable(rows):
            raise InvalidArgumentError(
                f"write_rows takes an RDD of dicts, or a function and what it is called with, but a "
                f"{type(rows).__name__} was given; rows of this process are written with rows_to_dataframe, or without "
                "Spark with petastore.write_dataset"
            )
        if not isinstance(items, Iterable):
            raise InvalidArgumentError(
                f"the function of rows is called with each of items, but items={items!r:.100} was given; "
                "range(n) is n numbers"
            )
        known = items if isinstance(items, Sequence) else list(items)
        self._write_items(MadeRows(rows, known, self._job.schema), len(known), partitions, mode)

    def write_columns(self, df: DataFrame, mode: Mode = "error") -> None:
        """Write a DataFrame of raw columns: Spark hands them to Python, where they are encoded and written.

        Args:
            df: As `encode_dataframe` takes it.
            mode: `"error"`, `"append"` or `"overwrite"`.

        Raises:
            InvalidArgumentError: A column is missing, unknown, or of a type that cannot be that field's.
            DatasetExistsError, SchemaError, StorageError: As `write_rows`.
        """
        check_columns(df.schema, self._job.schema)
        self._job.write(mode, functools.partial(parts_of_columns, df))

    def write_files(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        partitions: int | None = None,
        mode: Mode = "error",
    ) -> None:
        """Write what plain Parquet files hold: Spark's workers read and encode them whole, and Java sees none of it.

        The fastest way for columns that lie in Parquet already. The files have the columns that `write_columns` takes.
        A column of Parquet that is no Spark type, such as unsigned numbers, is taken as well.

        Args:
            paths: A directory, a file, or a list of files, as `df.inputFiles()` gives them. They are read with the
                block's `storage_options=` and `filesystem=`.
            partitions: So many tasks share the files, each those that lie together; None is one for each file. Each
                writes files of its own.
            mode: `"error"`, `"append"` or `"overwrite"`.

        Raises:
            InvalidArgumentError: A column of the first file is missing or unknown; or columns lie in the names of
                directories.
            DatasetNotFoundError: There are no files.
            DatasetExistsError, SchemaError, StorageError: As `write_rows`.
        """
        job = self._job
        files = ParquetFiles.found_at(paths, job.schema, storage_options=job.storage_options, filesystem=job.filesystem)
        self._write_items(files, len(files.urls), len(files.urls) if partitions is None else partitions, mode)

    def _write_items(self, encode: Any, items: int, partitions: int | None, mode: Mode) -> None:
        tasks = None if partitions is None else whole_number(partitions, name="partitions", least=1)
        parts_of = functools.partial(parts_of_items, self._spark, items, tasks, encode=encode)
        self._job.write(mode, parts_of)

    def __repr__(self) -> str:
        return f"DatasetWriter({shown_url(self.url)!r}, {self.settings!r})"
