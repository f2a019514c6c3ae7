"""Functions that Spark tasks run for a write: create, encode and write the rows.

Rows stay in their Python worker and are never sent back to the JVM; each partition returns only a list of file names to
the driver.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import EncodeError, InvalidArgumentError
from petastore.schema import Unischema
from petastore.spark.dataframe import check_names, encode_batches, encode_numbered, numbered_columns
from petastore.spark.writing.write_job import Part, WriteJob
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer import INT96_UNIT
from petastore.storage.requests.failures import asking
from petastore.writers.encode import encode_chunks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MadeRows", "ParquetFiles", "parts_of_columns", "parts_of_items", "parts_of_rdd"]


@dataclasses.dataclass(frozen=True)
class MadeRows:
    """Picklable function for Spark tasks: create rows from items, and encode them.

    It is called with indices in `items`, and yields record batches of stored cells. Immutable.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> made = MadeRows(lambda item: {"id": len(item)}, ["a", "bb", "ccc"], schema)
        >>> [cells.to_pydict() for cells in made([0, 2])]
        [{'id': [1, 3]}]
    """

    function: Callable[[Any], Any]
    """The user's function of an item, which returns a row or an iterable of rows."""

    items: Sequence[Any]
    """Arguments of the function."""

    schema: Unischema
    """The schema of the rows."""

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Create and encode the rows of the items with these indices, in a Spark task."""
        return encode_chunks(itertools.chain.from_iterable(map(self._rows, numbers)), self.schema)

    def _rows(self, number: int) -> Iterable[Any]:
        item = self.items[number]
        found = self.function(item)
        if isinstance(found, Mapping) or hasattr(found, "_asdict"):
            return (found,)
        if not isinstance(found, Iterable) or isinstance(found, (str, bytes)):
            raise EncodeError(
                "the function of rows must return a dict, a named tuple or an iterable of rows, got "
                f"{type(found).__name__} for the item {item!r:.100}"
            )
        return found


Encode: TypeAlias = Callable[[Any], Iterator[pa.RecordBatch]]
"""Function from the data that Spark passes to a task to batches of stored cells."""

_WRITTEN = "number int, names array<string>"


def parts_of_rdd(rows: RDD[Any], job: WriteJob, first: int) -> list[Part]:
    """Encode and write an RDD of dicts in one Spark job.

    Return the parts (paths of the files that each task wrote), in the order of partitions.

    Args:
        rows: Rows, as for `petastore.writers.encode.encode_chunks`.
        job: Write job.
        first: Number of the first partition's part, which determines the numbers in file names.
    """
    task = _Task(job, functools.partial(encode_chunks, schema=job.schema), first)
    return _in_order(rows.mapPartitionsWithIndex(task.on_rows).collect())


def parts_of_columns(df: DataFrame, job: WriteJob, first: int) -> list[Part]:
    """Encode and write a DataFrame of raw columns in one Spark job.

    Return the parts, as `parts_of_rdd` does.
    """
    task = _Task(job, functools.partial(encode_numbered, schema=job.schema, names=tuple(df.columns)), first)
    return _in_order(numbered_columns(df).mapInArrow(task, _WRITTEN).collect())


def parts_of_items(
    spark: SparkSession, items: int, partitions: int | None, job: WriteJob, first: int, encode: Encode
) -> list[Part]:
    """Write rows that Spark tasks create from item numbers (0, 1, …).

    Works on classic and Connect sessions. Return the parts, as `parts_of_rdd` does.

    Args:
        spark: A classic or Connect session.
        items: Number of items; the numbers begin with 0.
        partitions: Number of tasks, each with a range of numbers; None lets Spark decide.
        job: As in `parts_of_rdd`.
        first: As in `parts_of_rdd`.
        encode: Function from numbers to stored cells, which runs in a task.
    """
    task = _Task(job, functools.partial(_encode_items, encode), first)
    return _in_order(spark.range(0, items, 1, partitions).mapInArrow(task, _WRITTEN).collect())


def _in_order(written: Iterable[Any]) -> list[Part]:
    return [tuple(names) for _, names in sorted(map(tuple, written))]


@dataclasses.dataclass(frozen=True)
class _Task:
    """Spark task that writes a part: the files of one partition.

    It is immutable, and is sent to tasks as a pickle.
    """

    job: WriteJob
    encode: Encode
    first: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a partition's batches, as the function for `mapInArrow`.

        Yield one record batch with the number of the part and the names of its files.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, names in self.on_rows(0 if context is None else context.partitionId(), batches):
            columns = [pa.array([number], pa.int32()), pa.array([names], pa.list_(pa.string()))]
            yield pa.RecordBatch.from_arrays(columns, ["number", "names"])

    def on_rows(self, partition: int, given: Iterable[Any]) -> Iterator[tuple[int, list[str]]]:
        """Write a partition's rows, as the function for `mapPartitionsWithIndex`.

        Yield the number of the part and the names of its files.
        """
        number = self.first + partition
        yield number, list(self.job.part_of_cells(number, self.encode(given)))


def _encode_items(encode: Encode, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return encode(itertools.chain.from_iterable(batch.column(0).to_pylist() for batch in batches))


_BATCH_BYTES = 16 * 1024 * 1024
_FREE_VALUE_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class ParquetFiles:
    """Picklable function for Spark tasks: read and encode plain Parquet files.

    It is called with indices in `urls`, and yields record batches of stored cells. Immutable.

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
        """Return the files of a directory, or the listed files.

        The columns of the first file are checked.

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
        """Read and encode the rows of the files with these indices, in a Spark task."""
        return encode_batches(itertools.chain.from_iterable(map(self._batches, numbers)), self.schema)

    def _batches(self, number: int) -> Iterator[pa.RecordBatch]:
        with self._open(number) as (location, file):
            sizes = (field.decoded_bytes for field in self.schema)
            row_bytes = sum(_FREE_VALUE_BYTES if size is None else size for size in sizes)
            batches = file.iter_batches(batch_size=max(1, _BATCH_BYTES // max(1, row_bytes)))
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
            check_names(
                file.schema_arrow.names,
                self.schema,
                of=location.url,
                advice="Write a DataFrame that selects the fields of the schema",
            )
            yield location, file

    @staticmethod
    def _name(location: Location) -> str:
        if location.paths is None:
            raise InvalidArgumentError(
                f"another program deleted {location.url} during the write. Keep source files until the write has "
                "finished"
            )
        return location.paths[0]


def _refuse_partitions(location: Location, listed: Sequence[str]) -> None:
    for path in listed:
        if "=" in os.path.dirname(path):  # noqa: PTH120 - a path in any storage
            raise InvalidArgumentError(
                f"paths must have no columns in directory names, got {path} of {location.url}. Write the DataFrame "
                "that Spark reads from there"
            )


def _is_relative(url: str, filesystem: Any) -> bool:
    return filesystem is None and "://" not in url and not url.startswith(("/", "file:", "~"))
