"""`materialize_dataset`: commit the files of a Spark write as a dataset.

```text
at the call      sizes, schema and URL are checked; no Spark work yet
start            the settings of the Parquet writer are set in the session (petastore.spark.settings)
the block        the user writes with Spark, once or several times, or with the writer, whose tasks write files
end              the old settings are restored; the footers are read and checked, and the files are committed
end by an error  the old settings are restored; nothing is committed, and readers see the old dataset
```
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from petastore.errors import DatasetExistsError, InvalidArgumentError
from petastore.indexers import RowGroupIndexerBase
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.spark.settings import TIMESTAMP_TYPE, batch_settings, parquet_settings, settings_held, spark_url
from petastore.spark.writing.dataset_writer import BlockCommit, BlockJob, DatasetWriter
from petastore.spark.writing.task_progress import Progress, progress_told
from petastore.spark.writing.writable import check_writable, warn_of_another_python
from petastore.storage.files.location import open_location
from petastore.writers.generate import generate_metadata
from petastore.writers.index_builder import build_rowgroup_index, checked_indexers
from petastore.writers.parquet import FileLayout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["generate_petastorm_metadata", "materialize_dataset", "schema_named"]


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
    progress: bool | Progress | None = None,
) -> AbstractContextManager[DatasetWriter]:
    """Write a dataset with Spark in a `with` block.

    At the end of the block, all files are checked and committed.

    Works on classic and Connect sessions with the same code. The block yields a writer: `writer.write(df)` for raw
    columns, `writer.write_rows` for dicts created in Spark's workers, and `writer.write_files` for plain Parquet. Or
    write stored cells as in Petastorm, with `df.write.parquet(dataset_url)`, any mode and `partitionBy`; this is
    slower. The driver reads the footers, so it needs access to the storage.

    Files that Spark appends become part of the dataset. Existing files that are not in the manifest, such as files of a
    failed block, do not become part of it; a warning names these files.

    Args:
        spark: The session that writes.
        dataset_url: Directory of the dataset, as a URL that Spark and fsspec understand, or a local path.
        schema: Schema of the rows. A DataFrame for `df.write.parquet` must have stored cells, from `encode_dataframe`,
            `rows_to_dataframe` or `dict_to_spark_row`.
        row_group_size_mb: Approximate size of a row group in MiB. For `df.write.parquet`, the compressed size in the
            file. For methods of the writer, as in `write_dataset`, with default 32.
        use_summary_metadata: No effect; True gives a warning.
        filesystem_factory: Function that returns the filesystem; a parameter of Petastorm's function.
        rows_per_row_group: Exact number of rows per row group; only the last one of a file has fewer. A row group must
            fit in memory; if Spark's Parquet writer ends row groups early, there is a warning.
        storage_options: Keyword arguments for the fsspec filesystem with which the driver reads the footers.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        session_settings: Whether to set options in `spark.conf` during the block, for every write in it. Blocks in
            several threads with different settings then wait for each other. With False, write with `writer.write`,
            which sets the options for that write only.
        indexers: Row-group indexes to build after the commit, as in `petastore.indexing.build_rowgroup_index`; this
            process reads the indexed columns.
        progress: True shows the progress on standard error. Or a function, called with the numbers of finished Spark
            tasks and of all known Spark tasks when they change (from any thread, one call at a time). Use it in
            notebooks and Connect sessions, which do not show Spark's progress bar.

    Returns:
        A context manager that yields a `DatasetWriter`; its `inventory` is set after the block.

    Raises:
        InvalidArgumentError: At the call: a size is invalid, a URL is not supported, or an indexer names an unknown
            field. At the end of the block: both `df.write.parquet` and the writer's methods were used.
        SchemaError: At the call: Spark cannot store the schema. At the end of the block: a file does not match it.
        DatasetExistsError: At the call: the URL is a file.
        DatasetNotFoundError: At the end of the block: nothing was written.
        StorageError: At the end of the block: a storage operation failed. The old dataset is unchanged.
        MissingExtraError: pyspark is not installed.
    """
    if not isinstance(schema, Unischema):
        raise InvalidArgumentError(f"schema must be a Unischema, got {schema!r}")
    if not hasattr(spark, "conf") or not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(f"spark must be a Spark session, got {spark!r}")
    if use_summary_metadata:
        _warn_of_summary_metadata()
    if filesystem_factory is not None and filesystem is not None:
        raise InvalidArgumentError("filesystem_factory and filesystem must not both be given. Pass one of them")
    settings = parquet_settings(schema, row_group_size_mb=row_group_size_mb, rows_per_row_group=rows_per_row_group)
    check_writable(spark, schema, session_settings=session_settings)
    opened = filesystem_factory() if filesystem_factory is not None else filesystem
    location = open_location(dataset_url, storage_options=storage_options, filesystem=opened)
    if location.paths is not None:
        raise DatasetExistsError(f"dataset_url must be a directory, got the file {location.url}. Choose another URL")
    indexers = checked_indexers(indexers, schema, location.url)
    warn_of_another_python(spark)
    by = f"Spark {spark.version} via materialize_dataset"
    url = spark_url(os.fspath(dataset_url), location)
    layout = FileLayout.of(
        rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=None
    )
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


def _warn_of_summary_metadata() -> None:
    warnings.warn(
        "use_summary_metadata has no effect, because the manifest of the dataset replaces _metadata. Remove this "
        "argument",
        UserWarning,
        stacklevel=3,
    )


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


def generate_petastorm_metadata(
    spark: Any,  # noqa: ARG001 - a parameter of Petastorm
    dataset_url: str | os.PathLike[str],
    unischema_class: str | None = None,
    use_summary_metadata: bool = False,
    hdfs_driver: str | None = None,  # noqa: ARG001 - a parameter of Petastorm; fsspec finds the driver
) -> Inventory:
    """Write a manifest for existing Parquet files.

    The function has the parameters of Petastorm's function.

    Args:
        spark: Ignored; may be None.
        dataset_url: Directory of the dataset.
        unischema_class: Import path of the schema, `"package.module.name"`; None uses the schema stored in the dataset.
        use_summary_metadata: No effect; True gives a warning.
        hdfs_driver: Ignored; a parameter of Petastorm's function.

    Returns:
        The inventory that was written.

    Raises:
        InvalidArgumentError: `unischema_class` is not the import path of a schema.
        SchemaError: A file does not match the schema.
        DatasetNotFoundError: The directory has no data files.
    """
    if use_summary_metadata:
        _warn_of_summary_metadata()
    return generate_metadata(dataset_url, None if unischema_class is None else schema_named(unischema_class))


def schema_named(name: str) -> Unischema:
    """Import a schema by its Python path.

    Args:
        name: `"package.module.name"`, of a `Unischema` in that module.

    Raises:
        InvalidArgumentError: The module cannot be imported, or the name is not a `Unischema`.

    Example:
        >>> schema_named("math.pi")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: unischema_class must name a Unischema, got math.pi, which is
            3.141592653589793
    """
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InvalidArgumentError(
            f"unischema_class must be package.module.name of a schema, got {name!r}: {problem}"
        ) from problem
    if not isinstance(found, Unischema):
        raise InvalidArgumentError(f"unischema_class must name a Unischema, got {name}, which is {found!r:.200}")
    return found
