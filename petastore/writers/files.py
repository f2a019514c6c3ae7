"""The data files of one write: from the first byte until they are part of the dataset, or gone.

Files carry the token of their write in their names. While the marker `_petastore/writing-<token>` exists, petastore
leaves them out; where a rename is cheap they also carry a leading `_` until all are complete, so that other tools
leave them out too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import MetadataError, StorageError
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.schema.document import DOCUMENT_KEY, dump_document
from petastore.storage.files.listing import writing_marker
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import create_directory, delete_quietly, read_whole, rename, write_file
from petastore.storage.metadata.manifest import read_manifest
from petastore.storage.requests.failures import answered_once, asking
from petastore.writers.compression_choice import choose_compression
from petastore.writers.layout import Layout
from petastore.writers.page_borders import on_page_borders
from petastore.writers.parquet import WriterOptions

__all__ = ["DataFiles", "end_write", "hidden_name", "lists_write", "show_files", "token_of"]

_MARKED = b"petastore is writing the files with this token in their names\n"


class DataFiles:
    """Writes row groups to new files; not thread-safe, but threads may write files `beside` each other.

    Args:
        location: The dataset's directory; it is made.
        schema: What the rows are.
        layout: Where files end.
        options: Of `pyarrow.parquet.ParquetWriter`. The first row group settles them for all files.
        first_number: Number in the name of the first file.
        token: 32 hexadecimal digits that no other write has; None makes some.
        names: Takes the names of the files of the write, by their numbers; other files took some before, and made the
            marker. None is a dict of its own.

    Raises:
        StorageError: The storage refused.
    """

    def __init__(
        self,
        location: Location,
        schema: Unischema,
        layout: Layout,
        options: WriterOptions,
        *,
        first_number: int = 0,
        token: str | None = None,
        names: dict[int, str] | None = None,
    ) -> None:
        self.token = uuid.uuid4().hex if token is None else token
        """What the names of the files have, and those of no other write."""
        self._location = location
        self._schema = schema
        self._stored = storage_schema(schema)
        self._document = dump_document(schema.name, schema)
        self._layout = layout
        self._options = options
        self._next_number = first_number
        self._names = {} if names is None else names
        self._name = ""
        self._sink: Any = None
        self._writer: Any = None
        self._rows = 0
        if names is None:
            self._begin()

    def _begin(self) -> None:
        """Has the files left out until `end`. Tasks of one write on several hosts each say so, and it is the same."""
        create_directory(self._location, "_petastore")
        write_file(self._location, writing_marker(self.token), _MARKED)

    @property
    def options(self) -> WriterOptions:
        """Of the Parquet writer; complete once a row group is written."""
        return self._options

    def end_after(self, rows: int) -> None:
        """Let files end after so many rows and not by their bytes; also the one that is being written."""
        self._layout = dataclasses.replace(self._layout, rows_per_file=rows)

    def beside(self, number: int) -> DataFiles:
        """More files of this write, with the same options, which another thread may write meanwhile.

        Whoever writes them completes them, or gives them up; they are shown, undone and ended with these.

        Args:
            number: How many files come between them and the next one of these.
        """
        return DataFiles(
            self._location,
            self._schema,
            self._layout,
            self._options,
            first_number=self._next_number + number,
            token=self.token,
            names=self._names,
        )

    def write(self, group: pa.Table) -> None:
        """Write one row group, and end the file where the layout says so.

        Raises:
            StorageError: The storage refused.
        """
        if group.schema != self._stored:  # rows that are appended may come in another order, or be all there
            columns = [group.column(name) for name in self._stored.names]
            group = pa.Table.from_arrays(columns, schema=self._stored)
        if self._writer is None:
            self._options = choose_compression(self._options, group)
            self._open()
        paged = on_page_borders(group, self._options["write_batch_size"])
        with asking(self._location, "write", self._name):
            self._writer.write_table(paged, row_group_size=max(1, group.num_rows))
            self._rows += group.num_rows
            is_full = self._is_full()
        if is_full:
            self._close()

    def _is_full(self) -> bool:
        if self._layout.rows_per_file is not None:
            return self._rows >= self._layout.rows_per_file
        return bool(self._sink.tell() >= self._layout.file_bytes)

    def _open(self) -> None:
        name = self._name = f"part-{self._next_number:05d}-{self.token}.parquet"
        self._names[self._next_number] = name
        self._next_number += 1
        path = self._location.join(hidden_name(self._location, name))
        self._sink = answered_once(
            self._location, lambda: self._location.filesystem.open_output_stream(path), "write", name
        )
        with asking(self._location, "write", name):
            self._writer = pq.ParquetWriter(self._sink, self._stored, **self._options)
        self._rows = 0

    def _close(self) -> None:
        with asking(self._location, "end the file", self._name):
            self._writer.add_key_value_metadata({DOCUMENT_KEY: self._document})
            self._writer.close()
            self._sink.close()
        self._writer = self._sink = None

    def complete(self, *, at_least_one: bool) -> list[str]:
        """Complete the files, under the names that they have while they are written.

        Args:
            at_least_one: Write a file without rows if there is none yet, so that the dataset has a schema.

        Returns:
            Paths of all files of the write, relative to the root, as `show_files` makes them.

        Raises:
            StorageError: The storage refused.
        """
        if at_least_one and not self._names:
            self._options = choose_compression(self._options, self._stored.empty_table())
            self._open()
        if self._writer is not None:
            self._close()
        return [self._names[number] for number in sorted(self._names)]

    def finish(self, *, at_least_one: bool) -> list[str]:
        """Complete the files and give them their final names; they stay left out until `end`. As `complete`."""
        names = self.complete(at_least_one=at_least_one)
        show_files(self._location, names)
        return names

    def is_going_on(self) -> bool:
        """Whether nobody has ended the write so far, which others may who know its token.

        Raises:
            StorageError: The storage refused.
        """
        return read_whole(self._location, writing_marker(self.token), max_bytes=len(_MARKED)) is not None

    def end(self) -> None:
        """Say that the write has ended: the files are part of the dataset, or are gone."""
        end_write(self._location, self.token)

    def undo(self) -> None:
        """Delete the files, unless the manifest lists them: then the write did succeed. Raises nothing of storage's."""
        self.give_up()
        is_listed = lists_write(self._location, self.token)
        if is_listed is None:
            return  # left out by their marker, until somebody can tell
        for name in () if is_listed else self._names.values():
            for path in {name, hidden_name(self._location, name)}:
                delete_quietly(self._location, path)
        self.end()

    def give_up(self) -> None:
        """Write no more to the file that is being written. Raises nothing of storage's."""
        for closable in (self._writer, self._sink):
            # A half-written file is about to be deleted; why it cannot be closed does not matter any more.
            with contextlib.suppress(StorageError), asking(self._location, "end a file that is given up"):
                if closable is not None:
                    closable.close()


def hidden_name(location: Location, name: str) -> str:
    """What a file is called until all files of its write are complete; its own name where a rename is a copy."""
    return f"_{name}" if location.has_cheap_rename else name


def show_files(location: Location, names: Iterable[str]) -> None:
    """Give complete files their final names.

    Raises:
        StorageError: The storage refused.
    """
    for name in names:
        hidden = hidden_name(location, name)
        if hidden != name:
            rename(location, hidden, name)


def end_write(location: Location, token: str) -> None:
    """Say that a write has ended: its files are part of the dataset, or are gone. Raises nothing of storage's."""
    delete_quietly(location, writing_marker(token))


def token_of(path: str) -> str:
    """The token of the write that a file is of, by the name of a data file or a marker."""
    return PurePosixPath(path).stem.rpartition("-")[2]


def lists_write(location: Location, token: str) -> bool | None:
    """Whether the manifest lists files with these digits in their names; None where the storage does not say."""
    try:
        manifest = read_manifest(location)
    except MetadataError:
        return False
    except StorageError:
        return None
    return manifest is not None and any(token in file.path for file in manifest.inventory.files)
