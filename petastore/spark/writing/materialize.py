"""`materialize_dataset`: what Spark writes inside the block becomes a dataset when the block ends well.

```text
at the call      sizes, schema and URL are checked; no Spark work yet
entering         the session gets the Parquet writer's settings (petastore.spark.turns)
the block        the user writes with Spark, once or often; or through the writer, whose tasks write files themselves
leaving          the session gets its settings back; the footers are read, checked against the schema, and committed
leaving by raise the session gets its settings back; nothing is committed, and readers see the dataset as it was
```
"""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from petastore.errors import DatasetExistsError, InvalidArgumentError
from petastore.indexers import RowGroupIndexerBase
from petastore.schema import Unischema
from petastore.spark.settings import TIMESTAMP_TYPE, batch_settings, parquet_settings
from petastore.spark.turns import settings_held
from petastore.spark.urls import spark_url
from petastore.spark.workers_python import warn_of_another_python
from petastore.spark.writing.additions import BlockCommit
from petastore.spark.writing.block_job import BlockJob
from petastore.spark.writing.dataset_writer import DatasetWriter
from petastore.spark.writing.progress import Progress, progress_told
from petastore.spark.writing.writable import check_writable
from petastore.storage.files.location import open_location
from petastore.writers.layout import Layout
from petastore.writers.row_group_index import build_rowgroup_index, checked_indexers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["materialize_dataset"]


def materialize_dataset(
    spark: SparkSession,
    dataset_url: str | os.PathLike[str],
    schema: Unischema,
    row_group_size_mb: float | None = None,
    use_summary_metadata: bool = False,
    filesystem_factory: Callable[[], Any] | None = None,
    *,
    rows_per_row_group: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    session_settings: bool = True,
    indexers: Sequence[RowGroupIndexerBase] = (),
    progress: Progress | None = None,
) -> AbstractContextManager[DatasetWriter]:
    """A block in which Spark writes a dataset; when it ends well, the files are checked and committed.

    Works on classic and Connect sessions, with the same code. The writer that the block yields is the fast way:
    `writer.write(df)` of raw columns, `writer.write_rows` of dicts that are made in Spark's workers, and
    `writer.write_files` of plain Parquet. Or write stored cells as always, `df.write.parquet(dataset_url)`, with any
    mode and `partitionBy`. The footers are read by this process, so it must reach the storage.

    What Spark appends joins the dataset. Files that were there already and that the manifest does not list (left by a
    block that raised) stay out of it, with a warning.

    Args:
        spark: The session that writes.
        dataset_url: The dataset's directory, as Spark and fsspec know it, or a local path.
        schema: What the rows are. A DataFrame that Spark itself writes holds stored cells: `encode_dataframe`,
            `rows_to_dataframe` and `dict_to_spark_row` make them.
        row_group_size_mb: MiB of a row group, about: as it lies in the file, compressed, where Spark itself writes; as
            in `write_dataset` where the writer's tasks do, which take 32 where no size is given.
        use_summary_metadata: Means nothing any more; True says so in a warning.
        filesystem_factory: A function that returns the filesystem; `filesystem=` takes it directly.
        rows_per_row_group: Rows of each row group, exactly; only the last of a file has fewer. Memory must hold them:
            where Parquet ends row groups early, a warning says so.
        storage_options: Keyword arguments of the fsspec filesystem through which this process reads the footers.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        session_settings: True sets `spark.conf` for the length of the block, so that any write in it has them. One
            session has one configuration: blocks of several threads with other settings take turns. False leaves it
            alone: write through `writer.write`, which gives the settings with the write, and nobody waits.
        indexers: What row-group indexes look for, as `petastore.indexing.build_rowgroup_index` takes them: that is
            called once the rows are committed, by this process.
        progress: Called with the tasks of Spark that are done and all that are known so far, as they change, by any
            thread, though never by two at once: for notebooks and Connect sessions, where Spark's own bar is not seen.

    Returns:
        A context manager that yields a `DatasetWriter`; its `inventory` is there once the block has ended.

    Raises:
        InvalidArgumentError: At the call: sizes that cannot be, a URL that no one understands, or indexers of fields
            that there are not. At the end: Spark itself and the writer's tasks both wrote.
        SchemaError: At the call: Spark cannot write such a schema. At the end: a file does not keep it.
        DatasetExistsError: At the call: the URL is a file.
        DatasetNotFoundError: At the end: nothing was written there.
        StorageError: At the end: the storage refused; the old dataset still stands.
        MissingExtraError: pyspark is not installed.
    """
    if not isinstance(schema, Unischema):
        raise InvalidArgumentError(f"materialize_dataset takes a Unischema, but {schema!r} was given")
    if not hasattr(spark, "conf") or not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(f"materialize_dataset takes a Spark session first, but {spark!r} was given")
    if use_summary_metadata:
        warnings.warn(
            "use_summary_metadata means nothing any more: the dataset's own manifest takes the place of _metadata",
            UserWarning,
            stacklevel=2,
        )
    if filesystem_factory is not None and filesystem is not None:
        raise InvalidArgumentError(
            "filesystem_factory and filesystem both say where the dataset lies; give one of them"
        )
    settings = parquet_settings(schema, row_group_size_mb=row_group_size_mb, rows_per_row_group=rows_per_row_group)
    check_writable(spark, schema, session_settings=session_settings)
    opened = filesystem_factory() if filesystem_factory is not None else filesystem
    location = open_location(dataset_url, storage_options=storage_options, filesystem=opened)
    if location.paths is not None:
        raise DatasetExistsError(f"{location.url} is a file; a dataset is a directory, so choose another URL")
    indexers = checked_indexers(indexers, schema, location.url)
    warn_of_another_python(spark)
    by = f"Spark {spark.version} via materialize_dataset"
    url = spark_url(os.fspath(dataset_url), location)
    layout = Layout.of(rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=None)
    job = BlockJob(url, schema, layout, "auto", by, storage_options, opened)
    writer = DatasetWriter(spark, url, settings, job)
    commit = BlockCommit(location, schema, by, rows_per_row_group)
    during = [progress_told(spark, progress)]
    if session_settings:
        held = {**settings, **batch_settings(spark.conf.getAll), TIMESTAMP_TYPE: "TIMESTAMP_MICROS"}
        during.append(settings_held(spark, held, reason=writer.url))
    index = functools.partial(
        build_rowgroup_index, dataset_url, indexers=indexers, storage_options=storage_options, filesystem=opened
    )
    return _block(writer, job, commit, during, index if indexers else None)


@contextlib.contextmanager
def _block(
    writer: DatasetWriter,
    job: BlockJob,
    commit: BlockCommit,
    during: Sequence[AbstractContextManager[None]],
    afterwards: Callable[[], None] | None,
) -> Iterator[DatasetWriter]:
    commit.begin()
    try:
        with contextlib.ExitStack() as stack:
            for context in during:
                stack.enter_context(context)
            yield writer
        if job.has_written:
            commit.refuse_files()
            writer.inventory = job.commit()
    except BaseException:
        job.abort()
        raise
    if not job.has_written:
        job.abort()
        writer.inventory = commit.finish()
    if afterwards is not None:
        afterwards()
