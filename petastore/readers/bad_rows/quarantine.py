"""Quarantine: write bad rows to Parquet files, with their location, the error and the stored cells.

File names are computed from the version of the dataset, the columns and the bad rows. All ranks, and readers that
resume, therefore write the same files, and each bad row is in the quarantine once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.codecs.arrow.arrow_to_numpy import plain_layout
from petastore.dataset import Dataset
from petastore.errors import DecodeError, FileMissingError, InvalidArgumentError
from petastore.plan.selection import Selection
from petastore.readers.bad_rows.row_check import RowError
from petastore.schema.field import UnischemaField
from petastore.storage.files.file_systems import full_url, path_in, scheme_and_host
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.whole_files import read_range, replace_whole

__all__ = ["Quarantine", "refuse_quarantine_inside"]

_MOST_BYTES = 128 * 1024 * 1024
"""Size in bytes above which a quarantine file is closed; bad rows of the next row group begin a new file."""


@dataclasses.dataclass(frozen=True)
class Quarantine:
    """A directory of quarantined rows. Each row has these columns:

    ```text
    dataset           URL of the dataset, without credentials
    source_file       path of the file, relative to the dataset
    source_row_group  row group in the file, from 0
    source_row        row in the row group, from 0
    column            column that cannot be decoded; null if the transform raised
    error             class of the error
    message           text of the error
    row               struct of the stored cells, not decoded
    ```
    """

    dataset: Dataset
    """The dataset whose rows are bad."""

    fields: Sequence[UnischemaField]
    """Fields that are read."""

    url: str | os.PathLike[str]
    """URL or path of the directory."""

    def write(self, good: Selection, rows: Iterable[tuple[int, list[int], dict[str, Any], list[RowError]]]) -> None:
        """Write the bad rows, unless they were already written.

        Args:
            good: Selection without the bad rows; the names of the files are computed from it.
            rows: For each row group: its number, the numbers of its bad rows, their cells and their errors.

        Raises:
            StorageError: The directory cannot be written.
        """
        location = self._location()
        identity = [self.dataset.inventory.fingerprint, good.fingerprint, *map(repr, self.fields)]
        name = f"bad-rows-{hashlib.sha256('|'.join(identity).encode()).hexdigest()[:16]}"
        if _exists(location, f"{name}-0.parquet"):
            return
        first = b""
        for number, data in enumerate(self._files(rows)):
            if number:
                replace_whole(location, f"{name}-{number}.parquet", data)
            else:
                first = data
        replace_whole(location, f"{name}-0.parquet", first)  # written last: if this file exists, all files exist

    def _location(self) -> Location:
        """Return the location of the directory; it shares the credentials of a dataset on the same host."""
        text, of_dataset = os.fspath(self.url), self.dataset.location
        if of_dataset.is_local or scheme_and_host(text) != scheme_and_host(of_dataset.url):
            return open_location(text, timeout_s=of_dataset.timeout_s)
        root = path_in(of_dataset.filesystem, text, of_dataset.filesystem)
        return Location(full_url(text), of_dataset.filesystem, root, timeout_s=of_dataset.timeout_s)

    def _files(self, rows: Iterable[tuple[int, list[int], dict[str, Any], list[RowError]]]) -> Iterator[bytes]:
        """Yield the content of each Parquet file, as bytes."""
        buffer, writer = io.BytesIO(), None
        for group, numbers, cells, errors in rows:
            table = self._table(group, numbers, cells, errors)
            if writer is None:
                writer = pq.ParquetWriter(buffer, table.schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
            if buffer.tell() > _MOST_BYTES:
                writer.close()
                yield buffer.getvalue()
                buffer, writer = io.BytesIO(), None
        if writer is not None:
            writer.close()
            yield buffer.getvalue()

    def _table(self, group: int, numbers: list[int], cells: dict[str, Any], errors: list[RowError]) -> pa.Table:
        file, ordinal = self.dataset.inventory.place_of(group)
        stored = [_writable(column) for column in cells.values()]
        columns = [error.column if isinstance(error, DecodeError) else None for error in errors]
        return pa.table(
            {
                "dataset": pa.repeat(self.dataset.url, len(numbers)),
                "source_file": pa.repeat(file.path, len(numbers)),
                "source_row_group": pa.repeat(pa.scalar(ordinal, pa.int32()), len(numbers)),
                "source_row": pa.array(numbers, pa.int64()),
                "column": pa.array(columns, pa.string()),
                "error": pa.array([type(error).__name__ for error in errors], pa.string()),
                "message": pa.array(list(map(str, errors)), pa.string()),
                "row": pa.StructArray.from_arrays(stored, names=list(cells)),
            }
        )


def refuse_quarantine_inside(url: str | os.PathLike[str], datasets: Iterable[Dataset]) -> None:
    """Raise an error if the quarantine is inside a dataset, whose next reader would read its files as data.

    Args:
        url: URL or path of the directory.
        datasets: Datasets that must not contain the directory.

    Raises:
        InvalidArgumentError: The quarantine is the directory of a dataset, or is below it.
    """
    text = os.fspath(url)
    for location in (dataset.location for dataset in datasets):
        if scheme_and_host(text) != scheme_and_host(location.url):
            continue
        paths = [location.root] if location.paths is None else [location.join(path) for path in location.paths]
        path = _real(location, path_in(location.filesystem, text, location.filesystem))
        if any(f"{path}/".startswith(f"{_real(location, root).rstrip('/')}/") for root in paths):
            raise InvalidArgumentError(
                f"quarantine must be outside the dataset, got {text!r}, which is inside {location.url}. Pass another "
                "directory, because the next reader would read the quarantined rows as data"
            )


def _real(location: Location, path: str) -> str:
    """Return a path without symbolic links, if the filesystem is local."""
    return os.path.realpath(path) if location.is_local else path


def _exists(location: Location, relative: str) -> bool:
    try:
        return bool(read_range(location, relative, 0, 4))
    except FileMissingError:
        return False


def _writable(cells: Any) -> Any:
    """Convert cells to a type that Parquet can store in a struct."""
    plain = plain_layout(cells)
    return plain.dictionary_decode() if isinstance(plain, pa.DictionaryArray) else plain
