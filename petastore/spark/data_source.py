"""The data source `petastore`, for Spark's Python data source API.

This module runs in Spark's workers, and in the Python process that Spark starts next to its driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from petastore.dataset import open_dataset
from petastore.errors import DatasetNotFoundError, PetastoreError
from petastore.schema import Unischema
from petastore.spark.dataframe import check_columns, inferred_schema
from petastore.spark.decoded import DecodedRowGroups, plain_batches, plain_schema
from petastore.spark.source_options import WriteAsk, indexers_of, read_options
from petastore.spark.writing.write_job import Part, WriteJob
from petastore.writers.index_builder import build_rowgroup_index, checked_indexers

__all__ = ["PetastoreSource"]


class PetastoreSource(DataSource):  # type: ignore[misc]
    """Spark data source with the format name `petastore`."""

    @classmethod
    def name(cls) -> str:
        """Name of the data source in `format(…)`."""
        return "petastore"

    def schema(self) -> Any:
        """Return the Spark schema of a dataset's decoded columns."""
        return plain_schema(_row_groups(self.options).schema).as_spark_schema()

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - Spark passes it
        """Return the reader of the dataset, for the schema that `schema` returned."""
        return _Reader(_row_groups(self.options))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """Check the schema of a DataFrame, begin a write job, and return the writer."""
        ask = WriteAsk.parse(self.options)
        ours = ask.schema or (None if overwrite else _schema_there(ask)) or inferred_schema(schema)
        check_columns(schema, ours)
        checked_indexers(indexers_of(ask.index_fields), ours, "the schema")
        job = WriteJob.begin(
            ask.url,
            ours,
            ask.layout,
            compression=ask.compression,
            mode="overwrite" if overwrite else "append",
            writer=f"Spark {pyspark.__version__} via the data source petastore",
            storage_options=ask.storage_options,
        )
        return _Writer(job, ask.index_fields)


def _row_groups(options: Mapping[str, str]) -> DecodedRowGroups:
    url, columns, storage_options = read_options(options)
    return DecodedRowGroups(open_dataset(url, storage_options=storage_options), columns)


def _schema_there(ask: WriteAsk) -> Unischema | None:
    try:
        return open_dataset(ask.url, storage_options=ask.storage_options).schema
    except DatasetNotFoundError:
        return None


# `pushFilters` is not implemented: Spark 4.3 would use the partitions that one query selects for other queries of the
# same DataFrame, too, and the other queries would lose rows.
class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, groups: DecodedRowGroups) -> None:
        self._groups = groups
        self._plain = plain_schema(groups.schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the Spark partitions, each with a half-open range of row groups."""
        groups, parts = len(self._groups), self._groups.partitions
        return [InputPartition((groups * part // parts, groups * (part + 1) // parts)) for part in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return plain_batches(self._groups, self._plain, range(*partition.value))


class _Written(WriterCommitMessage):  # type: ignore[misc]
    def __init__(self, part: Part) -> None:
        self.part = part


class _Writer(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, job: WriteJob, index_fields: Sequence[str]) -> None:
        self._job = job
        self._index_fields = index_fields

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        return _Written(self._job.part(0 if context is None else context.partitionId(), iterator))

    def commit(self, messages: list[Any]) -> None:
        self._job.commit([message.part for message in messages if message is not None])
        if not self._index_fields:
            return
        indexers = indexers_of(self._index_fields)
        try:
            build_rowgroup_index(self._job.url, indexers=indexers, storage_options=self._job.storage_options)
        except PetastoreError as problem:
            problem.add_note(
                "The rows are committed, each once, and only their row-group index is missing. Do not write them "
                f"again: petastore.indexing.build_rowgroup_index(url, indexers={indexers}) builds it"
            )
            raise

    def abort(self, messages: list[Any]) -> None:  # noqa: ARG002 - not needed: the job lists its files
        self._job.abort()
