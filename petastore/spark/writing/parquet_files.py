"""Parquet files of raw columns, read and encoded in Spark's workers."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema
from petastore.spark.dataframe import encode_batches
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer import INT96_UNIT
from petastore.storage.requests.failures import asking

__all__ = ["ParquetFiles"]

_BATCH_BYTES = 16 * 1024 * 1024
_FREE_VALUE_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class ParquetFiles:
    """Function from file numbers to the stored cells of their rows. Immutable; sent to tasks as a pickle.

    Example:
        >>> import pyarrow.parquet as pq, tempfile
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("point", [UnischemaField("at", "float32", (2,))])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(pa.table({"at": [[1.0, 2.0]]}), f"{folder}/0.parquet")
        ...     files = ParquetFiles.found_at(folder, schema)
        ...     len(files.urls), [cells.to_pydict() for cells in files([0])]
        (1, [{'at': [[1.0, 2.0]]}])
    """

    urls: tuple[str, ...]
    """URLs of the files, in order."""

    schema: Unischema
    """The schema of the rows."""

    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    filesystem: Any = dataclasses.field(default=None, repr=False)

    @classmethod
    def found_at(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        schema: Unischema,
        *,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
    ) -> ParquetFiles:
        """Return the files of a directory, or the listed files; the columns of the first file are checked.

        Raises:
            InvalidArgumentError: A list contains directories, the files have hive partition columns, or the columns of
                the first file do not fit the schema.
            DatasetNotFoundError: No files were found.
            StorageError: A storage operation failed.
        """
        single = isinstance(paths, (str, os.PathLike))
        location = open_location(paths, storage_options=storage_options, filesystem=filesystem)
        listed = list_data_files(location)
        given = [os.fspath(path) for path in ((paths,) if isinstance(paths, (str, os.PathLike)) else paths)]
        if single and location.paths is None:
            _refuse_partitions(location, listed)
            urls = [f"{given[0].rstrip('/')}/{path}" for path in listed]
        elif len(listed) != len(given):
            raise InvalidArgumentError(
                f"paths must name each file once, or one directory, got {len(given):,} paths for {len(listed):,} "
                f"files of {location.url}"
            )
        else:
            urls = given
        # Paths must be absolute, because Spark's workers have other working directories.
        absolute = [os.path.abspath(url) if _is_relative(url, filesystem) else url for url in urls]  # noqa: PTH100
        files = cls(tuple(absolute), schema, storage_options, filesystem)
        with files._open(0):
            return files

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Encode the files of these numbers, in a Spark task."""
        return encode_batches(itertools.chain.from_iterable(map(self._batches, numbers)), self.schema)

    def _batches(self, number: int) -> Iterator[pa.RecordBatch]:
        with self._open(number) as (location, file):
            rows = max(1, _BATCH_BYTES // max(1, sum(_size(field.decoded_bytes) for field in self.schema)))
            batches = file.iter_batches(batch_size=rows)
            while True:
                with asking(location, "read", self._name(location)):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

    @contextlib.contextmanager
    def _open(self, number: int) -> Iterator[tuple[Location, pq.ParquetFile]]:
        location = open_location(self.urls[number], storage_options=self.storage_options, filesystem=self.filesystem)
        name = self._name(location)
        with asking(location, "open", name):
            source = location.filesystem.open_input_file(location.join(name))
        with source:
            with asking(location, "read", name):
                file = pq.ParquetFile(source, coerce_int96_timestamp_unit=INT96_UNIT)
            self._check_columns(location, file.schema_arrow.names)
            yield location, file

    @staticmethod
    def _name(location: Location) -> str:
        if location.paths is None:
            raise InvalidArgumentError(
                f"another program deleted {location.url} during the write. Keep source files until the write has "
                "finished"
            )
        return location.paths[0]

    def _check_columns(self, location: Location, columns: Sequence[str]) -> None:
        missing = [field.name for field in self.schema if field.name not in columns and not field.nullable]
        unknown = [column for column in columns if column not in self.schema]
        if missing or unknown:
            raise InvalidArgumentError(
                f"{location.url} must have exactly the fields of schema {self.schema.name!r}, got "
                f"{', '.join(map(repr, columns))}: {missing} missing, {unknown} unknown. Write a DataFrame that "
                "selects the fields of the schema"
            )


def _refuse_partitions(location: Location, listed: Sequence[str]) -> None:
    for path in listed:
        if "=" in os.path.dirname(path):  # noqa: PTH120 - a path in any storage
            raise InvalidArgumentError(
                f"paths must have no columns in directory names, got {path} of {location.url}. Write the DataFrame "
                "that Spark reads from there"
            )


def _is_relative(url: str, filesystem: Any) -> bool:
    return filesystem is None and "://" not in url and not url.startswith(("/", "file:", "~"))


def _size(decoded_bytes: int | None) -> int:
    return _FREE_VALUE_BYTES if decoded_bytes is None else decoded_bytes
