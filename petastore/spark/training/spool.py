"""Rows of one rank on the local disk: its part of a distributed dataset.

Each rank has a directory with its own files, and a manifest that lists the files of all ranks. Every rank therefore
computes the same order of the whole dataset, but reads only its own files (`petastore.plan.order.parts`).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import InvalidArgumentError
from petastore.front import make_reader
from petastore.inventory import DataFile, Inventory
from petastore.plan.request import LastBatch, Shard
from petastore.readers.reader import Reader
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.schema.document import dump_document
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footers import encoded_footers, read_footers
from petastore.storage.metadata.manifest import Manifest
from petastore.writers.commit import publish
from petastore.writers.files import DataFiles
from petastore.writers.parquet import FileLayout, row_groups, writer_options

if TYPE_CHECKING:
    from petastore.readers.options import PassedKwargs

__all__ = ["LocalRows", "Spool"]


_ROWS_AT_ONCE = 1024
_DIGITS = 32
"""Number of hexadecimal digits in the name of a file."""


class Spool:
    """A rank's rows as Parquet files in a local directory, the spool.

    Methods append rows to the spool, and remove its last rows.

    Not thread-safe.

    Args:
        folder: An empty directory on the host's disk.
        schema: Schema of the rows.
        layout: Sizes of row groups and files.
        rank: Rank of the rows.

    Raises:
        StorageError: A disk operation failed.
    """

    def __init__(self, folder: str, schema: Unischema, layout: FileLayout, rank: int) -> None:
        self.folder = folder
        self.num_rows = 0
        """Number of rows in the directory."""
        self._schema, self._layout, self._rank = schema, layout, rank
        self._stored = storage_schema(schema)
        self._options = writer_options(schema, "auto")
        self._location: Location = open_location(folder)
        # Files with equal content must get equal names in a retried job, because saved states refer to these names.
        self._names: list[str] = []
        self._started = 0

    def append(self, cells: Iterable[pa.RecordBatch]) -> None:
        """Append encoded rows to the spool, for example rows from another rank.

        Raises:
            StorageError: A disk operation failed; nothing is stored.
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
        """Yield the last `rows` rows in order, and remove them from the spool.

        Files are deleted during the iteration; iterate to the end.

        Args:
            rows: At most `num_rows`.

        Raises:
            StorageError: A disk operation failed.
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

    def stored(self) -> dict[str, Any]:
        """Rename the files by a hash of their content, and describe them for other ranks.

        When Spark recomputes the rows, their order may differ, and a saved state is then invalid. The names show such a
        difference; footers do not, because files with the same rows in another order can have equal footers.

        Returns:
            JSON values: path, size, digest and row groups of each file, and the footer of the first file in base64,
            from which other ranks read the columns.

        Raises:
            OSError: A disk operation failed.
        """
        self._names = [self._named_by_content(name) for name in self._names]
        footers = read_footers(self._location, self._names)
        files = [
            {
                "file": (footer.file.path, footer.file.size, footer.file.digest),
                "groups": {name: [int(count) for count in counts] for name, counts in footer.groups.items()},
            }
            for footer in footers
        ]
        first = encoded_footers(footers[:1]).get(footers[0].file.path, b"")
        return {"files": files, "first_footer": base64.b64encode(first).decode()}

    def publish(self, parts: Sequence[Mapping[str, Any]], writer: str) -> None:
        """Commit the directory as a dataset whose manifest lists the files of all ranks.

        Only this rank's files are in the directory.

        Args:
            parts: Result of `stored` of each rank.
            writer: Name of the writing program, for display.

        Raises:
            StorageError: A disk operation failed.
        """
        listed = [(DataFile(*each["file"]), each["groups"]) for part in parts for each in part["files"]]
        inventory = Inventory.concatenate(listed)
        footers = {part["files"][0]["file"][0]: base64.b64decode(part["first_footer"]) for part in parts}
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
        """Yield the rows of a file from row `kept` on, and delete the file.

        Before, the first `kept` rows are moved to a new file of the spool.
        """
        path = self._path(name)
        self.num_rows -= kept  # `append` will count these rows again
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


_SETTLED: Final = {
    "dataset_url": "the rows are those of the DataFrame",
    "cur_shard": "each rank already has its rows",
    "shard_count": "each rank already has its rows",
    "interleave": "the distribution of rows over hosts determines it",
    "rowgroup_selector": "ranks would keep different numbers of rows; filter the DataFrame",
    "predicate": "ranks would keep different numbers of rows; filter the DataFrame",
    "filters": "ranks would keep different numbers of rows; filter the DataFrame",
}
"""Parameters of `make_reader` that `LocalRows.make_reader` rejects: dict from name to reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalRows:
    """The rows of this rank in `run_on_dataframe`, on the local disk. Picklable.

    Together, the rows of all ranks are the rows of the DataFrame.

    Example:
        >>> LocalRows("/tmp/petastore-x1", Shard(1, 2), num_rows=1003, lanes=12)
        LocalRows(rank 1 of 2, 1,003 rows in all, at /tmp/petastore-x1)
    """

    url: str
    """URL of a dataset on the local disk with this rank's files only. It is deleted when `train_fn` ends."""

    shard: Shard
    """This rank, and the number of ranks."""

    num_rows: int
    """Number of rows of all ranks."""

    lanes: int
    """Number of lanes (equal parts of all rows) from which each batch takes rows.

    See `petastore.plan.order.parts`.
    """

    restarts: int = 0
    """Number of times that training was restarted."""

    def __repr__(self) -> str:
        return f"LocalRows(rank {self.shard.index} of {self.shard.count}, {self.num_rows:,} rows in all, at {self.url})"

    def make_reader(self, **options: Unpack[PassedKwargs]) -> Reader:
        """Open a reader of this rank's rows.

        All ranks have the same number of batches. Each row is read by one rank, once per epoch, and by the same rank in
        all epochs. `shuffle_rows=True` shuffles them in a new order each epoch. Batch sizes of two ranks differ by at
        most one row.

        Args:
            **options: Options of `petastore.make_reader`, except those that select rows. `shuffle_row_groups` must be
                False, and `last_batch` `"even"` or `"drop"`.

        Raises:
            InvalidArgumentError: An option is invalid; the message has the reason.
        """
        for name, value in options.items():
            if name in _SETTLED:
                raise InvalidArgumentError(
                    f"{name} must be left out for a reader of LocalRows, got {value!r}: {_SETTLED[name]}"
                )
        if options.get("shuffle_row_groups"):
            raise InvalidArgumentError(
                "shuffle_row_groups must be False for a reader of LocalRows, because row groups stay on their "
                "hosts. shuffle_rows=True shuffles the rows of each rank"
            )
        last_batch = LastBatch.parse(options.get("last_batch", "even"))
        if last_batch not in (LastBatch.EVEN, LastBatch.DROP):
            raise InvalidArgumentError(
                f"last_batch must be 'even' or 'drop' for a reader of LocalRows, got {last_batch.value!r}, which would "
                "need rows of other ranks"
            )
        settled: PassedKwargs = {"shuffle_row_groups": False, "interleave": self.lanes, "cur_shard": self.shard}
        return make_reader(self.url, **(options | settled))
