"""Write job: tasks that may be killed, retried or run twice write one dataset.

This module is independent of Spark.

```text
begin    in the driver: determine the schema, list the existing dataset, and write the marker of the job
part     in a task: write files with the token of the task, which readers ignore (also `part_of_cells`)
commit   in the driver: add the files of successful tasks to the dataset, delete all other files of the job
abort    in the driver: delete all files of the job, unless they are already committed
```

The files of a killed task attempt, and those of a second attempt of the same task, are not added to the dataset. Until
the commit, names and a marker hide all files of the job from readers. At their end, commit and abort delete the marker,
list the directory, and delete the job's files that were not committed. A task attempt that begins later does not find
the marker, and writes nothing. An attempt that finishes its files later deletes them itself. If such an attempt is
killed before it deletes its files, they remain, but readers always ignore them.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import pyarrow as pa

from petastore.errors import DatasetChangedError, DatasetExistsError, DatasetNotFoundError
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.spark.dataframe import encode_batches
from petastore.storage.files.listing import files_below
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.whole_files import delete_quietly
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import read_footers
from petastore.storage.metadata.manifest import Manifest, manifest_token
from petastore.writers.commit import publish
from petastore.writers.files import (
    DataFiles,
    begin_write,
    end_write,
    is_being_written,
    lists_write,
    show_files,
)
from petastore.writers.parquet import Compression, FileLayout, row_groups, writer_options
from petastore.writers.target import Mode, Target

__all__ = ["Part", "WriteJob"]

_DIGITS = 16
"""Number of hexadecimal digits in a job's token; a task attempt appends the same number of random digits."""


Part: TypeAlias = tuple[str, ...]
"""Paths of the files that a task wrote, relative to the dataset's directory."""


@dataclasses.dataclass(frozen=True)
class WriteJob:
    """Write of a dataset by several tasks. Immutable; can be pickled.

    The driver begins and commits the job, and tasks write the files.
    """

    url: str
    schema: Unischema
    """The schema of the rows."""
    layout: FileLayout
    compression: str
    mode: Mode
    """Treatment of an existing dataset, as in `write_dataset`."""
    writer: str
    """Name of the writing program, for display."""
    first_number: int
    """Number in the name of the first file that this job writes."""
    since: str
    """Version token of the manifest when the write began; "" if there was no manifest."""
    stored: Unischema
    """The schema to write; if rows are appended, the schema of the existing dataset."""
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    filesystem: Any = dataclasses.field(default=None, repr=False)
    """A filesystem to use instead of the URL's, also in tasks."""
    job: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex[:_DIGITS])
    """Unique token in the names of all files of this job."""

    @classmethod
    def begin(
        cls,
        url: str,
        schema: Unischema,
        layout: FileLayout,
        *,
        compression: str,
        mode: Mode,
        writer: str,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
    ) -> WriteJob:
        """Begin a write: check the target, and write the marker of the job.

        The marker exists before any data file.

        Args:
            url: Directory of the dataset, as a URL or local path.
            schema: Schema of the rows.
            layout: Sizes of row groups and files.
            compression: As in `write_dataset`.
            mode: Treatment of an existing dataset, as in `write_dataset`.
            writer: Name of the writing program, for display.
            storage_options: Keyword arguments of the fsspec filesystem of the URL.
            filesystem: A pyarrow or fsspec filesystem to use instead.

        Raises:
            DatasetExistsError: The URL is a file; or a dataset exists, and the mode is `"error"`.
            SchemaError: The dataset to append to has another schema, or a field cannot be stored.
            StorageError: A storage operation failed.
        """
        location = open_location(url, storage_options=storage_options, filesystem=filesystem)
        target = Target(location, schema, mode, writer=writer)
        token = manifest_token(location) or ""
        job = cls(
            url,
            schema,
            layout,
            compression,
            mode,
            writer,
            target.first_number,
            token,
            target.schema,
            storage_options,
            filesystem,
        )
        job._options()
        begin_write(location, job._marked)
        return job

    def part(self, number: int, batches: Iterable[pa.RecordBatch]) -> Part:
        """Encode the rows of a task, and write them to files.

        The files are hidden until the commit.

        Args:
            number: Number of the task.
            batches: Raw values, as for `petastore.spark.dataframe.encode_batch`.

        Raises:
            EncodeError: A value does not fit; the message names the field and the row of the part. The files are
                deleted.
            DatasetChangedError, StorageError: As `part_of_cells`.
        """
        return self.part_of_cells(number, encode_batches(batches, self.schema))

    def part_of_cells(self, number: int, cells: Iterable[pa.RecordBatch]) -> Part:
        """Write the encoded rows of a task to files, and return their paths.

        The files are hidden until the commit.

        Args:
            number: Number of the task.
            cells: Iterator of stored cells, with the schema `petastore.schema.arrow.storage_schema(schema)`; its errors
                are raised.

        Raises:
            DatasetChangedError: The job ended before or while this task wrote. The files are deleted.
            StorageError: A storage operation failed. The files are deleted.
        """
        location = self._open()
        self._check_is_going_on(location, number)
        files = self._files(location, self.first_number + number)
        try:
            for group in row_groups(cells, self.layout):
                files.write(group)
            names = files.complete(at_least_one=False)
            # The marker is checked again after the last write: commit and abort delete the marker before they list the
            # files to delete, so either this check fails, or they see these files.
            self._check_is_going_on(location, number)
            return tuple(names)
        except BaseException:
            files.undo()
            raise

    def commit(self, parts: Sequence[Part]) -> Inventory:
        """Make the files of these tasks visible, and delete the job's other files.

        Args:
            parts: Paths of the files that each successful task wrote.

        Raises:
            DatasetExistsError: The mode is `"error"`, and another writer has committed a dataset in the meantime.
            DatasetChangedError: Another writer committed while the dataset was being overwritten.
            SchemaError: The schema of the dataset to append to has changed in the meantime.
            StorageError: A storage operation failed.
        """
        location = self._open()
        # `begin` has checked mode "error"; a check now would fail, because the job's own files exist.
        mode = "append" if self.mode == "error" else self.mode
        target = Target(location, self.schema, mode, writer=self.writer, since=self.since)
        names = [name for part in parts for name in part]
        if not names and target.needs_a_file:
            names = self._files(location, self.first_number).complete(at_least_one=True)
        show_files(location, names)
        footers = read_footers(location, names) if names else []
        inventory = publish(location, target.schema, functools.partial(self._next_manifest, location, target, footers))
        end_write(location, self._marked)
        self._clear(location, set(names))
        target.delete_replaced(inventory)
        return inventory

    def _next_manifest(self, location: Location, target: Target, footers: list[Footer]) -> Manifest:
        if self.mode == "error" and (manifest_token(location) or "") != self.since:
            raise DatasetExistsError(
                f"{location.url}: another writer committed a dataset during this write. The other writer's rows are "
                "kept, and this write is discarded. Write again"
            )
        return target.next_manifest(footers)

    def abort(self) -> None:
        """Delete the files of the job, unless its commit succeeded."""
        location = self._open()
        end_write(location, self._marked)
        is_listed = lists_write(location, self.job)
        if is_listed is False:  # None means that storage failed; then markers still hide the files
            self._clear(location, ())

    def _open(self) -> Location:
        return open_location(self.url, storage_options=self.storage_options, filesystem=self.filesystem)

    def _options(self) -> Any:
        return writer_options(self.stored, cast("Compression", self.compression))

    def _files(self, location: Location, number: int) -> DataFiles:
        token = self.job + uuid.uuid4().hex[:_DIGITS]
        return DataFiles(location, self.stored, self.layout, self._options(), first_number=number, token=token)

    @property
    def _marked(self) -> str:
        """Token of the marker file: the job's token, padded with zeros.

        Files of tasks have random digits instead of the zeros, so no name of such a file contains this token.
        """
        return self.job.ljust(2 * _DIGITS, "0")

    def _check_is_going_on(self, location: Location, number: int) -> None:
        if not is_being_written(location, self._marked):
            raise DatasetChangedError(
                f"{self.url}: the write of part {number} ended before this task attempt finished, so its rows are "
                "deleted. Either another attempt of the task was faster, or the write was aborted"
            )

    def _clear(self, location: Location, kept: Collection[str]) -> None:
        """Delete all files that tasks of this job have written, except those in `kept`."""
        try:
            found = [path for path in files_below(location) if self.job in path and path not in kept]
        except DatasetNotFoundError:
            return
        # Markers are deleted last: while a marker exists, readers ignore its files.
        for path in sorted(found, key=lambda path: path.startswith("_petastore/")):
            delete_quietly(location, path)
