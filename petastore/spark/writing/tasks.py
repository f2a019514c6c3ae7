"""Functions that Spark tasks run for a write: write the rows of a partition, and return the file names.

Rows stay in their Python worker and are never sent back to the JVM; each partition returns only a list of file names to
the driver.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from petastore.errors import EncodeError
from petastore.schema import Unischema
from petastore.spark.dataframe import encode_batches
from petastore.spark.writing.write_job import Part, WriteJob
from petastore.writers.encode import encode_chunks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MadeRows", "parts_of_columns", "parts_of_items", "parts_of_rdd"]


@dataclasses.dataclass(frozen=True)
class MadeRows:
    """Function from item numbers to the stored cells of a function's rows. Immutable; sent to tasks as a pickle.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> made = MadeRows(lambda item: {"id": len(item)}, ["a", "bb", "ccc"], schema)
        >>> [cells.to_pydict() for cells in made([0, 2])]
        [{'id': [1, 3]}]
    """

    function: Callable[[Any], Any]
    """Function of an item that returns a row or an iterable of rows."""

    items: Sequence[Any]
    """Arguments of the function."""

    schema: Unischema
    """The schema of the rows."""

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Encode the rows of these numbers, in a Spark task."""
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
    """Write an RDD of dicts in one Spark job.

    Args:
        rows: Rows, as for `petastore.writers.encode.encode_chunks`.
        job: Write job.
        first: Number of the first partition's part.
    """
    task = _Task(job, functools.partial(encode_chunks, schema=job.schema), first)
    return _in_order(rows.mapPartitionsWithIndex(task.on_rows).collect())


def parts_of_columns(df: DataFrame, job: WriteJob, first: int) -> list[Part]:
    """Write a DataFrame of raw columns in one Spark job, as in `parts_of_rdd`."""
    # mapInArrow resolves columns by name and takes a dot for a struct field; these names are safe.
    numbered = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    task = _Task(job, _Columns(job.schema, tuple(df.columns)), first)
    return _in_order(numbered.mapInArrow(task, _WRITTEN).collect())


def parts_of_items(
    spark: SparkSession, items: int, partitions: int | None, job: WriteJob, first: int, encode: Encode
) -> list[Part]:
    """Write rows that Spark's workers create from item numbers, on classic and Connect sessions.

    Args:
        spark: A classic or Connect session.
        items: Number of items; the numbers begin with 0.
        partitions: Number of tasks, each with a range of numbers; None lets Spark decide.
        job: As in `parts_of_rdd`.
        first: As in `parts_of_rdd`.
        encode: Function from numbers to stored cells, which runs in a task.
    """
    task = _Task(job, _Numbers(encode), first)
    return _in_order(spark.range(0, items, 1, partitions).mapInArrow(task, _WRITTEN).collect())


def _in_order(written: Iterable[Any]) -> list[Part]:
    return [Part(tuple(names)) for _, names in sorted(map(tuple, written))]


@dataclasses.dataclass(frozen=True)
class _Task:
    """Task that writes a part. Immutable; sent to tasks as a pickle."""

    job: WriteJob
    encode: Encode
    first: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a partition's batches; the function for `mapInArrow`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, names in self.on_rows(0 if context is None else context.partitionId(), batches):
            columns = [pa.array([number], pa.int32()), pa.array([names], pa.list_(pa.string()))]
            yield pa.RecordBatch.from_arrays(columns, ["number", "names"])

    def on_rows(self, partition: int, given: Iterable[Any]) -> Iterator[tuple[int, list[str]]]:
        """Write a partition's rows; the function for `mapPartitionsWithIndex`."""
        number = self.first + partition
        yield number, list(self.job.part_of_cells(number, self.encode(given)).names)


@dataclasses.dataclass(frozen=True)
class _Columns:
    """Encoder of numbered raw columns to stored cells."""

    schema: Unischema
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (pa.RecordBatch.from_arrays(numbered.columns, self.names) for numbered in batches)
        return encode_batches(named, self.schema)


@dataclasses.dataclass(frozen=True)
class _Numbers:
    """Function from a column of numbers to rows."""

    encode: Encode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.encode(itertools.chain.from_iterable(batch.column(0).to_pylist() for batch in batches))
