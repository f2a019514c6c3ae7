"""The rows of one rank on the disk of its host, and what makes them a part of a dataset that lies on many hosts.

Each rank has a directory with its own files, and a manifest that names the files of all ranks: so it plans the whole
dataset, as every rank does alike, and the plan takes nothing from files that it has not got (`petastore.plan.order.
parts`).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.inventory import DataFile, Inventory
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.schema.document import dump_document
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footers import Footer, encoded_footers, read_footers
from petastore.storage.metadata.manifest import Manifest
from petastore.writers.commit import publish
from petastore.writers.files import DataFiles
from petastore.writers.layout import Layout, row_groups
from petastore.writers.parquet import writer_options

__all__ = ["Spool", "StoredPart"]

_ROWS_AT_ONCE = 1024
_DIGITS = 32
"""Hexadecimal digits in the name of a file."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredPart:
    """The files of a rank, as other ranks hear of them: JSON."""

    files: list[dict[str, Any]]
    """Of each file its path, size, footer's digest, and rows and bytes of its row groups."""

    first_footer: str
    """The first file's footer in base64: what all files have in common."""

    def facts(self) -> dict[str, Any]:
        """The same as a dict of JSON values."""
        return {"files": self.files, "first_footer": self.first_footer}

    @classmethod
    def of(cls, footers: Sequence[Footer]) -> Self:
        """What the footers say."""
        files = [
            {
                "path": footer.file.path,
                "size": footer.file.size,
                "digest": footer.file.digest,
                "groups": {name: [int(count) for count in counts] for name, counts in footer.groups.items()},
            }
            for footer in footers
        ]
        first = encoded_footers(footers[:1]).get(footers[0].file.path, b"")
        return cls(files, base64.b64encode(first).decode())


class Spool:
    """Writes a rank's rows to a local directory, gives some away and takes others in. Not thread-safe.

    Args:
        folder: An empty directory on the host's disk.
        schema: What the rows are.
        layout: Where row groups and files end.
        rank: Whose rows these are.

    Raises:
        StorageError: The disk refused.
    """

    def __init__(self, folder: str, schema: Unischema, layout: Layout, rank: int) -> None:
        self.folder = folder
        self.num_rows = 0
        """Rows that it holds."""
        self._schema, self._layout, self._rank = schema, layout, rank
        self._stored = storage_schema(schema)
        self._options = writer_options(schema, "auto")
        self._location: Location = open_location(folder)
        # When all is done again files have the same names, if they hold the same: a state that was saved names them.
        self._names: list[str] = []
        self._started = 0

    def append(self, cells: Iterable[pa.RecordBatch]) -> None:
        """Takes rows in, encoded, after those that are there.

        Raises:
            StorageError: The disk refused; nothing of these is kept.
        """
        files = DataFiles(
            self._location_of_files(), self._schema, self._layout, self._options,
            first_number=self._started, token=f"{self._rank:0{_DIGITS}x}",
        )  # fmt: skip
        rows = 0
        try:
            for group in row_groups(cells, self._layout):
                files.write(group)
                rows += group.num_rows
            written = files.finish(at_least_one=False)
        except BaseException:
            files.undo()
            raise
        files.end()
        self._started += len(written)
        self._names += [f"{self._own}/{name}" for name in written]
        self.num_rows += rows

    def take_last(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Hands the last rows over, in order: they are no longer here once the iterator has come to its end.

        Args:
            rows: At most `num_rows`.

        Raises:
            StorageError: The disk refused.
        """
        self.num_rows -= rows
        whole: list[str] = []
        while rows:
            name = self._names.pop()
            size = pq.read_metadata(self._path(name)).num_rows
            if size > rows:
                yield from self._split(name, size - rows)
                rows = 0
            else:
                whole.append(name)
                rows -= size
        for name in reversed(whole):
            yield from self._batches(name)
            self._path(name).unlink()

    def stored(self) -> StoredPart:
        """What lies there now, at least one row: in files whose names say what they hold.

        A state that was saved belongs to rows in one order. Spark may give them in another when it computes them anew,
        and footers do not tell: those of files with the same rows in another order can be equal.

        Raises:
            OSError: The disk refused.
        """
        self._names = [self._named_by_content(name) for name in self._names]
        return StoredPart.of(read_footers(self._location, self._names))

    def publish(self, parts: Sequence[StoredPart], writer: str) -> None:
        """Makes the directory a dataset of all ranks' files, of which it has this rank's.

        Args:
            parts: Of each rank what it stored.
            writer: Who wrote it, for people.

        Raises:
            StorageError: The disk refused.
        """
        listed = [
            (DataFile(str(file["path"]), int(file["size"]), str(file["digest"])), file["groups"])
            for part in parts
            for file in part.files
        ]
        inventory = Inventory.concatenate(listed)
        footers = {str(part.files[0]["path"]): base64.b64decode(part.first_footer) for part in parts}
        document = dump_document(self._schema.name, self._schema)
        publish(self._location, self._schema, lambda: Manifest(inventory, document, writer, footers=footers))

    @property
    def _own(self) -> str:
        return f"rank-{self._rank:05d}"

    def _location_of_files(self) -> Location:
        return open_location(str(self._path(self._own)))

    def _path(self, name: str) -> Path:
        return Path(self.folder, name)

    def _named_by_content(self, name: str) -> str:
        path = self._path(name)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        numbered, _, _ = path.stem.rpartition("-")
        return f"{self._own}/{path.rename(path.with_stem(f'{numbered}-{digest[:_DIGITS]}')).name}"

    def _split(self, name: str, kept: int) -> Iterator[pa.RecordBatch]:
        """The rows of a file from a place on; those before it are written anew."""
        path = self._path(name)
        self.num_rows -= kept  # `append` counts them again
        self.append(_first_rows(self._batches(name), kept))
        yield from _rows_from(self._batches(name), kept)
        path.unlink()

    def _batches(self, name: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._path(name)) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self._stored)


def _first_rows(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return


def _rows_from(batches: Iterable[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows > first:
            yield batch.slice(max(first, 0))
        first -= batch.num_rows
