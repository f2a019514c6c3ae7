"""What Spark's tasks run for a block: each writes the rows of its partition, and says which files they are.

Rows stay in the Python worker that has them, and never pass through the JVM again: what comes back to the driver is a
list of names for each partition.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from petastore.schema import Unischema
from petastore.spark.columns import encode_batches
from petastore.spark.writing.write_job import Part, WriteJob
from petastore.writers.encode import encode_chunks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["parts_of_columns", "parts_of_items", "parts_of_rdd"]

Encode: TypeAlias = Callable[[Any], Iterator[pa.RecordBatch]]
"""What Spark hands to a task → stored cells."""

_WRITTEN = "number int, names array<string>"


def parts_of_rdd(rows: RDD[Any], job: WriteJob, first: int) -> list[Part]:
    """Writes an RDD of dicts, in one job of Spark's.

    Args:
        rows: As `petastore.writers.encode.encode_chunks` takes them.
        job: What they are written for.
        first: Number of the first partition's part.
    """
    task = _Task(job, functools.partial(encode_chunks, schema=job.schema), first)
    return _in_order(rows.mapPartitionsWithIndex(task.on_rows).collect())


def parts_of_columns(df: DataFrame, job: WriteJob, first: int) -> list[Part]:
    """Writes a DataFrame of raw columns, in one job of Spark's. As `parts_of_rdd`."""
    # mapInArrow looks columns up by name and takes a dot in it for a struct's field; these names it understands.
    numbered = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    task = _Task(job, _Columns(job.schema, tuple(df.columns)), first)
    return _in_order(numbered.mapInArrow(task, _WRITTEN).collect())


def parts_of_items(
    spark: SparkSession, items: int, partitions: int | None, job: WriteJob, first: int, encode: Encode
) -> list[Part]:
    """Writes what is made of numbers in Spark's workers, on classic and Connect sessions alike.

    Args:
        spark: A classic or Connect session.
        items: So many numbers, from 0.
        partitions: So many tasks share them, each a range; None lets Spark decide.
        job: As in `parts_of_rdd`.
        first: As in `parts_of_rdd`.
        encode: Numbers → stored cells, in a task.
    """
    task = _Task(job, _Numbers(encode), first)
    return _in_order(spark.range(0, items, 1, partitions).mapInArrow(task, _WRITTEN).collect())


def _in_order(written: Iterable[Any]) -> list[Part]:
    return [Part(tuple(names)) for _, names in sorted(map(tuple, written))]


@dataclasses.dataclass(frozen=True)
class _Task:
    """Writes a part. A value; it goes to tasks by pickle."""

    job: WriteJob
    encode: Encode
    first: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, names in self.on_rows(0 if context is None else context.partitionId(), batches):
            columns = [pa.array([number], pa.int32()), pa.array([names], pa.list_(pa.string()))]
            yield pa.RecordBatch.from_arrays(columns, ["number", "names"])

    def on_rows(self, partition: int, given: Iterable[Any]) -> Iterator[tuple[int, list[str]]]:
        """For `mapPartitionsWithIndex`."""
        number = self.first + partition
        yield number, list(self.job.part_of_cells(number, self.encode(given)).names)


@dataclasses.dataclass(frozen=True)
class _Columns:
    """Raw columns, by their numbers, to stored cells."""

    schema: Unischema
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (pa.RecordBatch.from_arrays(numbered.columns, self.names) for numbered in batches)
        return encode_batches(named, self.schema)


@dataclasses.dataclass(frozen=True)
class _Numbers:
    """Numbers, as a column of batches, to what is made of them."""

    encode: Encode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.encode(itertools.chain.from_iterable(batch.column(0).to_pylist() for batch in batches))
