"""Writer of a `materialize_dataset` block, and the commit of the written files."""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from petastore.errors import InvalidArgumentError, SchemaError
from petastore.inventory import Inventory
from petastore.plan.request import known_word, whole_number
from petastore.schema import Unischema
from petastore.schema.document import dump_document
from petastore.spark.dataframe import check_columns
from petastore.spark.writing.tasks import MadeRows, ParquetFiles, parts_of_columns, parts_of_items, parts_of_rdd
from petastore.spark.writing.writable import check_cells, holds_cells
from petastore.spark.writing.write_job import Part, WriteJob
from petastore.storage.files.listing import files_beside, is_called_parquet, list_data_files
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import parquet_among
from petastore.storage.footers.tails import Tails
from petastore.storage.metadata.manifest import Manifest, read_manifest
from petastore.storage.requests.failures import shown_url
from petastore.storage.requests.retries import at_once
from petastore.writers.commit import manifest_of, publish
from petastore.writers.parquet import FileLayout
from petastore.writers.target import Mode, schema_difference

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BlockCommit", "BlockJob", "DatasetWriter"]


@dataclasses.dataclass
class BlockJob:
    """All writes through the writer of one `with materialize_dataset(...)` block.

    They are committed together. Use the object from one thread.
    """

    url: str
    schema: Unischema
    """The schema of the rows."""
    layout: FileLayout
    compression: str
    writer: str
    """Name of the writing program, for display."""
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    filesystem: Any = dataclasses.field(default=None, repr=False)
    _job: WriteJob | None = dataclasses.field(default=None, init=False)
    _parts: list[Part] = dataclasses.field(default_factory=list, init=False)
    has_written: bool = dataclasses.field(default=False, init=False)
    """Whether a write has ended successfully, even without rows."""

    def write(self, mode: Mode, parts_of: Callable[[WriteJob, int], list[Part]]) -> None:
        """Write rows with Spark, and record the written files for the commit.

        Args:
            mode: Effect on existing rows; must be the same for all writes of the block.
            parts_of: Function that writes with Spark. It gets the job and the number of the next part (the files that
                one Spark task writes), and returns the parts.

        Raises:
            InvalidArgumentError: The mode is unknown, or differs from an earlier write of the block.
            DatasetExistsError, SchemaError, StorageError: As `WriteJob.begin`.
        """
        known_word(mode, Mode, name="mode")
        if self._job is None:
            self._job = WriteJob.begin(
                self.url,
                self.schema,
                self.layout,
                compression=self.compression,
                mode=mode,
                writer=self.writer,
                storage_options=self.storage_options,
                filesystem=self.filesystem,
            )
        elif mode != self._job.mode:
            raise InvalidArgumentError(f"mode must be {self._job.mode!r}, as in the block's first write, got {mode!r}")
        self._parts += parts_of(self._job, len(self._parts))
        self.has_written = True

    def commit(self) -> Inventory:
        """Commit the written files, and return the inventory of the dataset.

        The mode decides whether they are added to an existing dataset; see `WriteJob.commit`.
        """
        assert self._job is not None  # noqa: S101 - called only after a write
        return self._job.commit(self._parts)

    def abort(self) -> None:
        """Delete the written files, as `WriteJob.abort` does."""
        if self._job is not None:
            self._job.abort()


class DatasetWriter:
    """The writer that a `materialize_dataset` block yields. Use it from one thread.

    `write_rows`, `write_columns` and `write_files` write to hidden files, which are committed together when the block
    ends without an exception. Therefore each row is written once, also with killed, retried or speculative tasks.
    `mode` decides what happens to an existing dataset: `"error"` raises, `"append"` adds rows, `"overwrite"` replaces
    it. Several writes in one block are combined, and must have the same mode.
    """

    def __init__(self, spark: SparkSession, url: str, settings: Mapping[str, str], job: BlockJob) -> None:
        self.url = url
        """URL for Spark; a local path becomes a `file` URL."""
        self.settings = dict(settings)
        """Options of Spark's Parquet writer for this dataset."""
        self.inventory: Inventory | None = None
        """Inventory of the committed dataset; None until the block has ended without an exception."""
        self._spark = spark
        self._job = job

    def write(self, df: DataFrame, mode: Mode = "error", *, partition_by: Sequence[str] = ()) -> None:
        """Write a DataFrame of raw columns or of stored cells.

        Raw columns are encoded; `encode_dataframe` returns stored cells. The two are distinguished by column types: a
        tensor is an array in raw columns, and bytes in stored cells. Raw columns are written by `write_columns`. Stored
        cells are written by Spark's Parquet writer, with the block's settings for this write only.

        Args:
            df: Raw columns, as `encode_dataframe` takes them, or stored cells, as it returns them.
            mode: `"error"`, `"append"` or `"overwrite"`; for stored cells, Spark's mode.
            partition_by: Names of columns for hive partitioning; for stored cells only.

        Raises:
            InvalidArgumentError: Column types match neither stored cells nor raw values of the schema, or match both;
                cells are nullable but the field is not; or the block already wrote in another way.
            DatasetExistsError: Raw columns were given, a dataset exists, and `mode` is `"error"`.
        """
        if not partition_by and not holds_cells(df.schema, self._job.schema):
            self.write_columns(df, mode)
            return
        if self._job.has_written:
            raise InvalidArgumentError(
                "df must have raw values in a block that wrote rows or columns before, got stored cells. Write the "
                "cells in a separate block, or their raw values with write_columns"
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
        """Write rows that Python code creates in Spark's workers.

        The rows are encoded there, and do not pass through Java.

        Args:
            rows: An RDD of dicts or named tuples (a nullable field may be missing or None). Or a function that returns
                a row or an iterable of rows; Spark's workers call it with each of the `items`. A function also works on
                Spark Connect, which has no RDDs.
            items: Arguments for the function, one per call: numbers, file names, or other picklable values. They are
                sent with the function, so keep them small; a `range` is always small.
            partitions: Number of Spark tasks; each gets consecutive items and writes its own files. None lets Spark
                decide.
            mode: `"error"`, `"append"` or `"overwrite"`.

        Raises:
            InvalidArgumentError: `rows` is missing, a function was given without `items`, or an RDD with `items`.
            DatasetExistsError: A dataset exists, and `mode` is `"error"`.
            SchemaError: The existing dataset has another schema.
            StorageError: A storage operation failed.
        """
        if hasattr(rows, "mapPartitionsWithIndex"):
            if items is not None or partitions is not None:
                raise InvalidArgumentError(
                    "items and partitions must be left out with an RDD, which has its own partitions"
                )
            self._job.write(mode, functools.partial(parts_of_rdd, rows))
            return
        if not callable(rows):
            raise InvalidArgumentError(
                f"rows must be an RDD of dicts, or a function with its items, got {type(rows).__name__}. Write "
                "rows of this process with rows_to_dataframe, or without Spark with petastore.write_dataset"
            )
        if not isinstance(items, Iterable):
            raise InvalidArgumentError(
                f"items must be the arguments of the function, such as range(n), got {items!r:.100}"
            )
        known = items if isinstance(items, Sequence) else list(items)
        self._write_items(MadeRows(rows, known, self._job.schema), len(known), partitions, mode)

    def write_columns(self, df: DataFrame, mode: Mode = "error") -> None:
        """Write a DataFrame of raw columns; Spark's Python workers encode and write them.

        Args:
            df: Raw columns, as for `encode_dataframe`.
            mode: `"error"`, `"append"` or `"overwrite"`.

        Raises:
            InvalidArgumentError: A column is missing or unknown, or has a type that does not fit its field.
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
        """Write the rows of plain Parquet files.

        Spark's Python workers read, encode and write the rows, without Java. This is the fastest way if raw columns are
        already in Parquet. The files must have the same columns as a DataFrame for `write_columns`. Types that Spark
        lacks, such as unsigned integers, are supported too.

        Args:
            paths: A directory, a file, or a list of files, such as `df.inputFiles()`. They are read with the
                `storage_options` and `filesystem` of the block.
            partitions: Number of Spark tasks; each gets consecutive files and writes its own files. None means one per
                file.
            mode: `"error"`, `"append"` or `"overwrite"`.

        Raises:
            InvalidArgumentError: A column of the first file is missing or unknown, or the files have hive partition
                columns.
            DatasetNotFoundError: No files were found.
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


class BlockCommit:
    """Commit of the files that Spark itself wrote in a `materialize_dataset` block.

    The writer's methods commit their own files, see `BlockJob`. `begin` records the dataset's files before the block,
    and `finish` commits the added files.

    Args:
        location: The dataset's directory; it need not exist.
        schema: Schema of its rows.
        writer: Name of the writing program, for display.
        rows_per_row_group: Requested rows per row group, to compare with the written ones.
    """

    def __init__(self, location: Location, schema: Unischema, writer: str, rows_per_row_group: int | None) -> None:
        self._location = location
        self._schema = schema
        self._document = dump_document(schema.name, schema)
        self._writer = writer
        self._rows = rows_per_row_group
        self._before: set[str] = set()
        self._left_out: list[str] = []

    def begin(self) -> None:
        """Record which files exist when the block begins.

        Raises:
            StorageError: A storage operation failed.
        """
        self._before = set(files_beside(self._location, ()))

    def refuse_files(self) -> None:
        """Raise an error if Spark wrote files in a block that also used the writer.

        The writer's methods commit their own files.

        Raises:
            InvalidArgumentError: The block added files.
            StorageError: A storage operation failed.
        """
        manifest = read_manifest(self._location)
        # Files of the manifest are excluded, because other writers may append at the same time.
        listed = () if manifest is None else [file.path for file in manifest.inventory.files]
        added = sorted(set(files_beside(self._location, listed)) - self._before)
        if added:
            raise InvalidArgumentError(
                f"{self._location.url}: a materialize_dataset block must write either with its writer's methods or "
                f"with Spark, got {len(added):,} more files by Spark ({added[0]}, …). Nothing was committed. Use "
                "separate blocks"
            )

    def finish(self) -> Inventory:
        """Check the files, replace the manifest, and return the inventory.

        The columns of the files must match the schema.

        Raises:
            DatasetNotFoundError: There are no data files.
            SchemaError: A file does not match the schema, or the existing dataset has another schema.
            StorageError: A storage operation failed; the old dataset is unchanged.
        """
        list_data_files(self._location)  # checks that data files exist, before anything is created
        inventory = publish(self._location, self._schema, self._next_manifest)
        if self._left_out:
            warnings.warn(
                f"{self._location.url}: {len(self._left_out):,} existing files are not listed in a manifest "
                f"({self._left_out[0]}, …), and do not become part of the dataset. A failed write left them: delete "
                "them, or add all files with `petastore generate-metadata`",
                UserWarning,
                stacklevel=4,
            )
        self._compare_rows(inventory)
        return inventory

    def _next_manifest(self) -> Manifest:
        return manifest_of(self._location, self._files(), self._schema, writer=self._writer)

    def _files(self) -> list[str]:
        """Return the paths of the files to commit, sorted.

        These are existing files of the manifest, and files that the `with` block added. Without a manifest, they are
        all Parquet files of the directory. `_left_out` is set to the other files that existed before the block.
        """
        found = files_beside(self._location, ())
        manifest = read_manifest(self._location)
        if manifest is None:
            older = [path for path in found if path in self._before and not is_called_parquet(path)]
            with Tails(self._location) as tails:
                are_parquet = list(at_once(tails.is_parquet, older))
            self._left_out = [path for path, is_one in zip(older, are_parquet, strict=True) if not is_one]
            return sorted(set(found) - set(self._left_out))
        listed = {file.path for file in manifest.inventory.files}
        if not listed.isdisjoint(found):
            self._refuse_other_schema(manifest)
        older = sorted(self._before.intersection(found) - listed)
        self._left_out = parquet_among(self._location, older)
        return sorted(set(found) - set(older))

    def _refuse_other_schema(self, manifest: Manifest) -> None:
        if manifest.schema_document not in (None, self._document):
            raise SchemaError(
                f"the rows must have the schema of {self._location.url}, got a difference: "
                f"{schema_difference(manifest.schema_document or '', self._document)}. Nothing was committed. Append "
                'with the same schema, or write with mode "overwrite"; `petastore generate-metadata` with '
                "--unischema-class gives all files there a new schema"
            )

    def _compare_rows(self, inventory: Inventory) -> None:
        """Warn if a row group of this block has another number of rows than requested.

        Only the last row group of a file may have fewer rows.
        """
        if self._rows is None:
            return
        for group, rows in enumerate(inventory.rows.tolist()):
            file = inventory.file[group]
            path = inventory.files[file].path
            is_last = group + 1 == inventory.num_row_groups or inventory.file[group + 1] != file
            as_asked = rows == self._rows or (is_last and rows < self._rows)
            if path not in self._before and not as_asked:
                warnings.warn(
                    f"{self._location.url}: row group {inventory.ordinal[group]} of {path} has {rows:,} rows, but "
                    f"rows_per_row_group={self._rows:,} was requested. Either the file was written with other "
                    "settings, or the rows did not fit into the memory of Spark's executor. Request fewer rows, or "
                    "give the executor more memory",
                    UserWarning,
                    stacklevel=4,
                )
                return
