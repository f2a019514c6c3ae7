"""`write_dataset`: write rows or columns as a dataset in this process.

Spark is not needed.

After an interrupted write:

* Before the manifest is renamed, readers see the old dataset, or none. If the write raises an error, the files written
  so far are deleted. If the process is killed, these files stay, but are hidden: on filesystems their names begin with
  `_` until all files are complete, and the marker `_petastore/writing-<token>` makes readers ignore every file with
  this token.
* Afterwards readers see the new dataset. Old files of an overwritten dataset may stay; the manifest does not list them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import pyarrow as pa

from petastore.errors import InvalidArgumentError
from petastore.indexers import RowGroupIndexerBase
from petastore.inventory import Inventory
from petastore.monitoring.progress import progress_shown
from petastore.plan.request import known_word, whole_number
from petastore.schema import Unischema
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footers import read_footers
from petastore.work import InlinePool, Pool, ThreadPool
from petastore.work.pools import available_cpus
from petastore.writers.commit import publish
from petastore.writers.encode import check_rows, encode_chunks
from petastore.writers.files import DataFiles
from petastore.writers.index_builder import build_rowgroup_index, checked_indexers
from petastore.writers.input_columns import KINDS, InputColumns, Tabular, columns_of, encode_columns
from petastore.writers.parquet import Compression, FileLayout, row_groups, writer_options
from petastore.writers.target import Mode, Target, schema_there

__all__ = ["write_cells", "write_dataset"]

_MOST_THREADS = 8
"""Default maximum number of encoding threads.

More threads would mostly wait for the writing thread, each with a chunk in memory.
"""


def write_dataset(
    url: str | os.PathLike[str],
    schema: Unischema | Tabular | None = None,
    rows: Iterable[Any] | Tabular | None = None,
    *,
    mode: Mode = "error",
    rows_per_row_group: int | None = None,
    row_group_size_mb: float | None = None,
    rows_per_file: int | None = None,
    compression: Compression | None = "auto",
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    progress: bool | Callable[[int], object] | None = None,
    workers_count: int | None = None,
    indexers: Sequence[RowGroupIndexerBase] = (),
) -> Inventory:
    """Write rows or columns as a dataset, in one process and without Spark.

    `write_dataset(url, data)` writes a DataFrame, a table or a dict of columns with the schema from `infer_schema`;
    `write_dataset(url, schema, data)` uses your own schema. Readers see the new data only after the final commit.

    Threads encode chunks of a few megabytes, and row groups are written one after another. Peak memory is one chunk per
    thread, one more chunk, and two copies of a row group; the data is never all in memory. The files do not depend on
    the number of threads.

    Args:
        url: Directory of the dataset: a local path, or a URL that fsspec supports. It is created if it does not exist.
        schema: Schema of the rows; None infers it from columns.
        rows: The data. Rows: an iterable of dicts or named tuples; a nullable field may be missing or None. Columns: a
            pandas DataFrame (without its index); an Arrow table, batch or `RecordBatchReader`; a Hugging Face
            `datasets.Dataset`; any object with `__arrow_c_stream__`, such as a Polars DataFrame; a dict of arrays of
            shape (rows, ...) or lists. Images are arrays, or the bytes of PNG and JPEG files, which are stored
            unchanged.
        mode: What to do if a dataset exists. `"error"` raises. `"overwrite"` writes all rows, replaces the dataset and
            then deletes the old files. `"append"` adds rows; without `schema`, it uses the dataset's schema. A schema
            for `"append"` must have the dataset's fields, in any order, and may make nullable fields non-nullable. It
            may leave out nullable fields, or add some, which are null in existing rows. Several processes may append
            at the same time, and no rows are lost.
        rows_per_row_group: Rows per row group; only the last one of a file has fewer.
        row_group_size_mb: Approximate size of a row group in MiB of encoded columns in memory, before Parquet's
            encoding and compression; 32 if neither this nor `rows_per_row_group` is given.
        rows_per_file: Rows per file; only the last one has fewer. None ends a file at about 256 MiB.
        compression: Parquet compression: `"snappy"`, `"lz4"`, `"zstd"`, `"gzip"`, `"brotli"` or `"none"`. `"auto"` is
            snappy, except for encoded cells and floats that do not shrink in a sample of the first row group. Cells
            that their codec compresses (PNG, JPEG, `.npz`) are not compressed again.
        storage_options: Keyword arguments for the fsspec filesystem that the URL selects.
        filesystem: A pyarrow or fsspec filesystem, used instead of the one that the URL selects.
        progress: True shows rows per second on standard error: a bar on a terminal, if rich is installed (extra `cli`);
            otherwise a line every 10 seconds. Or a function called with the number of rows written so far, after each
            row group.
        workers_count: Number of encoding threads, in addition to the calling thread, which iterates over the rows and
            writes files. None means one per CPU that the process may use, at most 8; 0 encodes in the calling thread.
        indexers: Row-group indexes to build after the commit, as in `petastore.indexing.build_rowgroup_index`; this
            reads the indexed columns.

    Returns:
        The inventory (files and row groups) of the whole dataset.

    Raises:
        InvalidArgumentError: Arguments cannot be combined, rows were given without a schema, or an indexer names an
            unknown field.
        DatasetExistsError: A dataset exists, and `mode` is `"error"`.
        SchemaError: A field cannot be stored, or the schema differs from that of the existing dataset.
        EncodeError: A row does not match the schema; the message names the field and row. The dataset is unchanged.
        DatasetChangedError: Another writer committed during an overwrite. The dataset is unchanged.
        StorageError: A storage operation failed. The dataset is unchanged.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("squares", [UnischemaField("n", "int64"), UnischemaField("square", "int64")])
        >>> rows = ({"n": n, "square": n * n} for n in range(10))
        >>> write_dataset("memory://squares", schema, rows, rows_per_row_group=4, mode="overwrite")
        Inventory(1 file, 3 row groups, 10 rows)
        >>> write_dataset("memory://words", {"id": [1, 2, 3], "word": ["a", None, "b"]}, mode="overwrite")
        Inventory(1 file, 1 row group, 3 rows)
    """
    if rows is None and not isinstance(schema, Unischema):
        schema, rows = None, schema
    _check_url_and_mode(url, mode)
    location = open_location(url, storage_options=storage_options, filesystem=filesystem)
    if schema is None and mode == "append":
        schema = schema_there(location)
    schema, columns = _schema_and_columns(schema, rows)
    indexers = checked_indexers(indexers, schema, os.fspath(url))
    layout = FileLayout.of(
        rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=rows_per_file
    )
    given: Any = rows
    total = columns.num_rows if columns is not None else len(given) if isinstance(given, Sized) else None
    with _encoders(workers_count) as pool, progress_shown(progress, "writing", "rows", total) as show:
        cells = encode_chunks(given, schema, pool) if columns is None else encode_columns(columns, schema, pool)
        inventory = write_cells(
            location, schema, cells, layout, mode=mode, compression=compression, writer=_writer(), progress=show
        )
    if indexers:
        build_rowgroup_index(
            url,
            indexers=indexers,
            workers_count=workers_count or None,
            storage_options=storage_options,
            filesystem=filesystem,
        )
    return inventory


@contextlib.contextmanager
def _encoders(workers_count: int | None) -> Iterator[Pool]:
    threads = min(available_cpus(), _MOST_THREADS)
    if workers_count is not None:
        threads = whole_number(workers_count, name="workers_count", least=0)
    pool: Pool = ThreadPool(threads) if threads else InlinePool()
    try:
        yield pool
    finally:
        pool.close()
        pool.join()


def write_cells(
    location: Location,
    schema: Unischema,
    batches: Iterable[pa.RecordBatch],
    layout: FileLayout,
    *,
    mode: Mode,
    writer: str,
    compression: Compression | None = "auto",
    progress: Callable[[int], object] | None = None,
) -> Inventory:
    """Write encoded cells as a dataset, and return its inventory.

    This is the second half of `write_dataset`.

    Args:
        location: The dataset's directory.
        schema: Schema of the rows.
        batches: Stored cells, of `petastore.schema.arrow.storage_schema(schema)`.
        layout: Sizes of row groups and files.
        mode: As in `write_dataset`.
        writer: Name of the writing program, for display.
        compression: As in `write_dataset`.
        progress: As in `write_dataset`.

    Raises:
        DatasetExistsError, SchemaError, DatasetChangedError, StorageError: As `write_dataset`.
    """
    target = Target(location, schema, mode, writer=writer)
    options = writer_options(target.schema, compression)
    files = DataFiles(location, target.schema, layout, options, first_number=target.first_number)
    rows = 0
    try:
        for group in row_groups(batches, layout):
            files.write(group)
            rows += group.num_rows
            if progress is not None:
                progress(rows)
        names = files.finish(at_least_one=target.needs_a_file)
        inventory = publish(
            location, target.schema, functools.partial(target.next_manifest, read_footers(location, names))
        )
    except BaseException:
        files.undo()
        raise
    files.end()
    target.delete_replaced(inventory)
    return inventory


def _check_url_and_mode(url: Any, mode: Any) -> None:
    if not isinstance(url, (str, os.PathLike)):
        raise InvalidArgumentError(f"url must be one URL or path, got {type(url).__name__}")
    known_word(mode, Mode, name="mode")


def _schema_and_columns(schema: Any, rows: Any) -> tuple[Unischema, InputColumns | None]:
    """Return the schema, and the columns to write; None as columns if `rows` are rows.

    Without a schema, it is inferred from the columns.

    Raises:
        InvalidArgumentError: The schema is missing for rows, is empty, or is not a `Unischema`.
    """
    columns = columns_of(rows)
    if schema is None and columns is not None:
        schema = Unischema("inferred", columns.fields())
    if schema is None:
        raise InvalidArgumentError(
            f"data must be {KINDS}, got {type(rows).__name__}. To write rows, pass their schema first: "
            "write_dataset(url, schema, rows)"
        )
    if not isinstance(schema, Unischema) or not len(schema):
        raise InvalidArgumentError(
            f"schema must be a Unischema with at least one field, got {schema!r}. Without a schema, pass {KINDS}; "
            "see petastore.infer_schema"
        )
    if columns is None:
        check_rows(rows)
    return schema, columns


def _writer() -> str:
    try:
        return f"petastore {importlib.metadata.version('petastore')} write_dataset"
    except importlib.metadata.PackageNotFoundError:
        return "petastore write_dataset"
