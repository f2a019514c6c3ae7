"""Data files of one write: created, committed or deleted together.

The name of each file contains the token of its write. While the marker `_petastore/writing-<token>` exists, readers
ignore files with this token. If the storage can rename files cheaply, file names also begin with `_` until all files
are complete, so that other tools ignore them, too.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.arrow import null_cells
from petastore.errors import MetadataError, StorageError
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.schema.document import DOCUMENT_KEY, dump_document
from petastore.storage.files.listing import writing_marker
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import create_directory, delete_quietly, read_whole, rename, write_file
from petastore.storage.metadata.manifest import read_manifest
from petastore.storage.requests.failures import answered_once, asking
from petastore.writers.parquet import FileLayout, WriterOptions, choose_compression, fit_pages, on_page_borders

__all__ = ["DataFiles", "begin_write", "end_write", "hidden_name", "is_being_written", "lists_write", "show_files"]

_MARKED = b"petastore is writing the files with this token in their names\n"


class DataFiles:
    """Writer of row groups to new Parquet files. Not thread-safe.

    Args:
        location: Location of the dataset's directory, which is created.
        schema: Schema of the rows.
        layout: Sizes of files and row groups.
        options: Options of `pyarrow.parquet.ParquetWriter`. A compression `"auto"` is chosen from a sample of the first
            row group, for all files.
        first_number: Number in the name of the first file.
        token: Unique token of 32 hexadecimal digits; None creates one.

    Raises:
        StorageError: A storage operation failed.
    """

    def __init__(
        self,
        location: Location,
        schema: Unischema,
        layout: FileLayout,
        options: WriterOptions,
        *,
        first_number: int = 0,
        token: str | None = None,
    ) -> None:
        self.token = uuid.uuid4().hex if token is None else token
        """Unique token in the names of this write's files."""
        self._location = location
        self._schema = schema
        self._stored = storage_schema(schema)
        self._document = dump_document(schema.name, schema)
        self._layout = layout
        self._options = self._paged = options
        self._next_number = first_number
        self._names: list[str] = []
        self._sink: Any = None
        self._writer: Any = None
        self._rows = 0

    def write(self, group: pa.Table) -> None:
        """Write one row group; close the file when it has the size of the layout.

        Raises:
            StorageError: A storage operation failed.
        """
        # The columns are adapted to the stored schema: appended rows may have another column order, non-nullable
        # columns, or fewer columns.
        if group.schema != self._stored:
            has, rows = set(group.column_names), group.num_rows
            columns = [
                group.column(field.name) if field.name in has else null_cells(rows, field.type)
                for field in self._stored
            ]
            group = pa.Table.from_arrays(columns, schema=self._stored)
        if self._writer is None:
            self._open(group)
        paged = on_page_borders(group, self._paged["write_batch_size"])
        with asking(self._location, "write", self._names[-1]):
            self._writer.write_table(paged, row_group_size=max(1, group.num_rows))
            self._rows += group.num_rows
            is_full = self._is_full()
        if is_full:
            self._close()

    def _is_full(self) -> bool:
        if self._layout.rows_per_file is not None:
            return self._rows >= self._layout.rows_per_file
        return bool(self._sink.tell() >= self._layout.file_bytes)

    def _open(self, first: pa.Table) -> None:
        """Open a new file, whose first row group will be `first`."""
        self._options = choose_compression(self._options, first)
        self._paged = fit_pages(self._options, first)
        if not self._names:
            begin_write(self._location, self.token)
        name = f"part-{self._next_number:05d}-{self.token}.parquet"
        self._names.append(name)
        self._next_number += 1
        path = self._location.join(hidden_name(self._location, name))
        self._sink = answered_once(
            self._location, lambda: self._location.filesystem.open_output_stream(path), "write", name
        )
        with asking(self._location, "write", name):
            self._writer = pq.ParquetWriter(self._sink, self._stored, **self._paged)
        self._rows = 0

    def _close(self) -> None:
        with asking(self._location, "end the file", self._names[-1]):
            self._writer.add_key_value_metadata({DOCUMENT_KEY: self._document})
            self._writer.close()
            self._sink.close()
        self._writer = self._sink = None

    def complete(self, *, at_least_one: bool) -> list[str]:
        """Complete the files; they keep their temporary names.

        Args:
            at_least_one: Whether to write a file without rows if no file was written, so that the dataset has a schema.

        Returns:
            Final paths of all files of the write, relative to the root; see `show_files`.

        Raises:
            StorageError: A storage operation failed.
        """
        if at_least_one and not self._names:
            self._open(self._stored.empty_table())
        if self._writer is not None:
            self._close()
        return list(self._names)

    def finish(self, *, at_least_one: bool) -> list[str]:
        """Complete the files, give them their final names, and return the names.

        Readers ignore the files until `end`.
        """
        names = self.complete(at_least_one=at_least_one)
        show_files(self._location, names)
        return names

    def end(self) -> None:
        """Delete the write's marker, after its files were committed or deleted."""
        end_write(self._location, self.token)

    def undo(self) -> None:
        """Delete the files, unless the manifest lists them because the write succeeded.

        Storage errors are not raised.
        """
        for closable in (self._writer, self._sink):
            # Errors on closing a half-written file do not matter, because the file will be deleted.
            with contextlib.suppress(StorageError), asking(self._location, "end a file that is given up"):
                if closable is not None:
                    closable.close()
        is_listed = lists_write(self._location, self.token)
        if is_listed is None:
            return  # the files stay, and their marker hides them from readers
        for name in () if is_listed else self._names:
            for path in {name, hidden_name(self._location, name)}:
                delete_quietly(self._location, path)
        self.end()


def hidden_name(location: Location, name: str) -> str:
    """Return the temporary name of a file that is being written.

    It is the final name if the storage cannot rename files without a copy.
    """
    return f"_{name}" if location.store.has_cheap_rename else name


def show_files(location: Location, names: Iterable[str]) -> None:
    """Give complete files their final names.

    Raises:
        StorageError: A storage operation failed.
    """
    for name in names:
        hidden = hidden_name(location, name)
        if hidden != name:
            rename(location, hidden, name)


def begin_write(location: Location, token: str) -> None:
    """Write the marker file of a write.

    Readers ignore files with this token in their names until `end_write`.

    Raises:
        StorageError: A storage operation failed.
    """
    create_directory(location, "_petastore")
    write_file(location, writing_marker(token), _MARKED)


def is_being_written(location: Location, token: str) -> bool:
    """Return whether the marker file of a write exists.

    It exists until `end_write` is called.

    Raises:
        StorageError: A storage operation failed.
    """
    return read_whole(location, writing_marker(token), max_bytes=len(_MARKED)) is not None


def end_write(location: Location, token: str) -> None:
    """Delete the marker of a write, after its files were committed or deleted.

    Storage errors are not raised.
    """
    delete_quietly(location, writing_marker(token))


def lists_write(location: Location, token: str) -> bool | None:
    """Return whether the manifest lists a write's files.

    Return None if storage fails.
    """
    try:
        manifest = read_manifest(location)
    except MetadataError:
        return False
    except StorageError:
        return None
    return manifest is not None and any(token in file.path for file in manifest.inventory.files)
