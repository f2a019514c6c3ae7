"""A dataset written in parts by processes that may be killed, tried again or run twice. Knows no Spark.

```text
begin    in the driver: the schema is settled, and what stands there is noted
part     in a task: files of a token of their own, complete but left out by every reader; `part_of_cells` as well
commit   in the driver: the files of the parts that count become the dataset; all others of the job are deleted
abort    in the driver: all files of the job are deleted, unless they are the dataset already
```

Whatever a task leaves behind that does not count, because it was killed, or another one did the same work, is hidden
from readers by its name and its marker, and is deleted with the commit; what is written later is deleted by its task,
which finds its marker gone. One that is killed just then leaves files that are left out for ever.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from petastore.errors import DatasetChangedError, DatasetExistsError, DatasetNotFoundError
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.spark.columns import encode_batches
from petastore.storage.files.listing import files_below
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.whole_files import delete_quietly
from petastore.storage.footers.footers import Footer, read_footers
from petastore.storage.metadata.manifest import Manifest, manifest_token
from petastore.writers.commit import publish
from petastore.writers.files import DataFiles, lists_write, show_files, token_of
from petastore.writers.layout import Layout, row_groups
from petastore.writers.parquet import Compression, writer_options
from petastore.writers.target import Mode, Target

__all__ = ["Part", "WriteJob"]

_DIGITS = 16
"""Hexadecimal digits of a job; as many more tell the attempts of its tasks from each other."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """What a task wrote."""

    names: tuple[str, ...]
    """Its files, relative to the dataset's directory."""


@dataclasses.dataclass(frozen=True)
class WriteJob:
    """A write that has begun. A value; it goes to tasks by pickle."""

    url: str
    schema: Unischema
    """The schema of the rows."""
    layout: Layout
    compression: str
    mode: Mode
    """What becomes of a dataset that is there already, as in `write_dataset`."""
    writer: str
    """Who writes, for people."""
    first_number: int
    """Number of the first part's first file."""
    since: str
    """What told the version of the manifest that stood there; "" for none."""
    stored: Unischema
    """The schema to write; if rows are appended, that of the dataset."""
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    filesystem: Any = dataclasses.field(default=None, repr=False)
    """A filesystem to use instead of the URL's; it goes to tasks too."""
    job: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex[:_DIGITS])
    """What the names of all its files have, and those of no other write."""

    @classmethod
    def begin(
        cls,
        url: str,
        schema: Unischema,
        layout: Layout,
        *,
        compression: str,
        mode: Mode,
        writer: str,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
    ) -> WriteJob:
        """A write that begins now; nothing is written yet.

        Raises:
            DatasetExistsError: The URL is a file; or something is there, and the mode is `"error"`.
            SchemaError: The dataset to append to has another schema, or a field cannot be stored.
            StorageError: The storage refused.
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
        return job

    def part(self, number: int, batches: Iterable[pa.RecordBatch]) -> Part:
        """Encodes the rows of a task, and writes them to files that readers leave out.

        Args:
            number: Which of the tasks this is.
            batches: Raw values, as `petastore.spark.columns.encode_batch` takes them.

        Raises:
            EncodeError: A value does not fit; field and row of the part are named. The files are deleted.
            DatasetChangedError, StorageError: As `part_of_cells`.
        """
        return self.part_of_cells(number, encode_batches(batches, self.schema))

    def part_of_cells(self, number: int, cells: Iterable[pa.RecordBatch]) -> Part:
        """Writes the rows of a task to files that readers leave out.

        Args:
            number: Which of the tasks this is.
            cells: Stored cells, of `petastore.schema.arrow.storage_schema(schema)`; what they raise is raised.

        Raises:
            DatasetChangedError: The job has ended meanwhile, without these rows. The files are deleted.
            StorageError: The storage refused. The files are deleted.
        """
        files = self._files(self._open(), self.first_number + number)
        try:
            for group in row_groups(cells, self.layout):
                files.write(group)
            names = files.complete(at_least_one=False)
            # After the files are complete: whoever ends the job deletes markers first, and then all files it finds.
            if not files.is_going_on():
                raise DatasetChangedError(
                    f"{self.url}: the write that part {number} belongs to has ended without these rows, so they are "
                    "deleted; another attempt of this task was faster, or the write was given up"
                )
            return Part(tuple(names))
        except BaseException:
            files.undo()
            raise

    def commit(self, parts: Sequence[Part]) -> Inventory:
        """Makes the files of these parts the dataset, or a part of it; deletes what else the job has written.

        Raises:
            DatasetExistsError: Another writer committed meanwhile, and nothing had to be there.
            DatasetChangedError: Another writer committed while the dataset was being overwritten.
            SchemaError: The dataset to append to has another schema meanwhile.
            StorageError: The storage refused.
        """
        location = self._open()
        # "error" was looked at when the job began; by now its own files lie there.
        mode = "append" if self.mode == "error" else self.mode
        target = Target(location, self.schema, mode, writer=self.writer, since=self.since)
        names = [name for part in parts for name in part.names]
        if not names and target.needs_a_file:
            names = self._files(location, self.first_number).complete(at_least_one=True)
        show_files(location, names)
        footers = read_footers(location, names) if names else []
        inventory = publish(location, target.schema, functools.partial(self._next_manifest, location, target, footers))
        self._clear(location, set(names))
        target.delete_replaced(inventory)
        return inventory

    def _next_manifest(self, location: Location, target: Target, footers: list[Footer]) -> Manifest:
        if self.mode == "error" and (manifest_token(location) or "") != self.since:
            raise DatasetExistsError(
                f"{location.url}: another writer committed a dataset there while this one was being written; its rows "
                "are kept and these are not. Write again"
            )
        return target.next_manifest(footers)

    def abort(self) -> None:
        """Deletes what the job has written, unless it is the dataset: then the commit did succeed."""
        location = self._open()
        is_listed = lists_write(location, self.job)
        if is_listed is False:  # where the storage does not say, markers keep the files out
            self._clear(location, ())

    def _open(self) -> Location:
        return open_location(self.url, storage_options=self.storage_options, filesystem=self.filesystem)

    def _options(self) -> Any:
        return writer_options(self.stored, cast("Compression", self.compression))

    def _files(self, location: Location, number: int) -> DataFiles:
        token = self.job + uuid.uuid4().hex[:_DIGITS]
        return DataFiles(location, self.stored, self.layout, self._options(), first_number=number, token=token)

    def _clear(self, location: Location, kept: Collection[str]) -> None:
        attempts = {token_of(path) for path in self._deleted(location, kept)}
        if not attempts <= {token_of(name) for name in kept}:
            # Such an attempt may have completed a file since it was listed. What it completes from now on it deletes.
            self._deleted(location, kept)

    def _deleted(self, location: Location, kept: Collection[str]) -> list[str]:
        """The job's files that were there but for those; they are gone."""
        try:
            found = [path for path in files_below(location) if self.job in path and path not in kept]
        except DatasetNotFoundError:
            return []
        # Markers last: until they are gone, readers leave out what they stand for.
        for path in sorted(found, key=lambda path: path.startswith("_petastore/")):
            delete_quietly(location, path)
        return found
