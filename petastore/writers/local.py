"""`write_dataset`: a dataset from rows or columns in this process, without Spark.

What a write leaves behind when it is interrupted:

* Before the manifest is renamed into place, readers see the old dataset, or none. A raised exception also deletes the
  files written so far. After a killed process they stay, but are hidden: on filesystems they carry a leading `_` until
  all are complete, and the file `_petastore/writing-<token>` tells petastore to leave out every file with that token.
* Afterwards readers see the new dataset. Old files of an overwritten dataset may stay; the manifest does not list them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import pyarrow as pa

from petastore.errors import InvalidArgumentError
from petastore.indexers import RowGroupIndexerBase
from petastore.inventory import Inventory
from petastore.plan.request import whole_number
from petastore.schema import Unischema
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footers import read_footers
from petastore.work import InlinePool, Pool, ThreadPool
from petastore.work.thread import available_cpus
from petastore.writers.columns import KINDS, Columns, Tabular, columns_of, encode_columns
from petastore.writers.commit import publish
from petastore.writers.encode import check_rows, encode_chunks
from petastore.writers.files import DataFiles
from petastore.writers.layout import Layout, row_groups
from petastore.writers.parquet import Compression, writer_options
from petastore.writers.row_group_index import build_rowgroup_index, checked_indexers
from petastore.writers.side_by_side import has_even_cells, write_side_by_side
from petastore.writers.target import Mode, Target, schema_there

__all__ = ["write_cells", "write_dataset"]

_MOST_THREADS = 8
"""Unless asked otherwise: more of them mostly wait for the thread that writes, each with a chunk in its hands."""


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
    progress: Callable[[int], object] | None = None,
    workers_count: int | None = None,
    indexers: Sequence[RowGroupIndexerBase] = (),
) -> Inventory:
    """Write rows or columns as a dataset, in one process and without Spark.

    They are encoded in chunks of some megabytes, by some threads, while row groups are written one after the other:
    memory holds a chunk for each thread, one more, and a row group twice, not the data. Columns of numbers, and of
    arrays of one shape, that do not shrink are written to several files at a time, where they fill several; each thread
    then holds a row group twice. Files are the same, however many threads there are. Nothing changes for readers before
    the last step. `write_dataset(url, data)` writes a frame, a table or a dict of columns under the schema that
    `infer_schema` gives it; `write_dataset(url, schema, data)` under one of your own.

    Args:
        url: The dataset's directory: a URL of any fsspec scheme or a local path. It is made where it does not exist.
        schema: What the rows are; None, or left out, infers it from columns.
        rows: Dicts or named tuples, from any iterable, where a nullable field may be left out or None. Or columns: a
            pandas DataFrame, whose index is left out; an Arrow table, batch or `RecordBatchReader`; a
            `datasets.Dataset` of Hugging Face; whatever else has `__arrow_c_stream__`, such as frames of Polars; a dict
            of arrays of shape (rows, ...) or lists. Images are arrays, or the bytes of PNG and JPEG files, which are
            stored as they are.
        mode: What to do where something is there already: `"error"` refuses; `"overwrite"` replaces the dataset when
            all is written and then deletes the old files; `"append"` adds to a dataset. Without `schema`, columns are
            written under the dataset's own; one of yours must have the same fields, in any order, of which fewer may be
            nullable. Writers that append at the same time all add their rows.
        rows_per_row_group: Rows of each row group; only the last of a file has fewer.
        row_group_size_mb: MiB of encoded columns of a row group, about, as they lie in memory before Parquet's own
            encoding and compression; 32 where neither this nor `rows_per_row_group` is given.
        rows_per_file: Rows of each file; only the last has fewer. Without it a file ends near 256 MiB.
        compression: `"auto"`, which is snappy, but none for cells and floating-point numbers of which a sample of the
            first row group does not shrink; or `"snappy"`, `"lz4"`, `"zstd"`, `"gzip"`, `"brotli"` or `"none"`. Cells
            that a codec has compressed are stored as they are.
        storage_options: Keyword arguments of the fsspec filesystem.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        progress: Called with the number of rows written so far, after each row group; by any of the threads that
            write, though never by two at once.
        workers_count: Threads that encode, or write files, beside the caller's, which takes the rows and writes; None
            is one for each CPU that the process may use, and at most 8; 0 is none: the caller's thread does it all.
        indexers: What row-group indexes look for, as `petastore.indexing.build_rowgroup_index` takes them: that is
            called once the rows are committed, and reads the columns that they look at.

    Returns:
        The inventory of the whole dataset.

    Raises:
        InvalidArgumentError: The parameters contradict each other, nothing tells the schema, or indexers look at fields
            that there are not.
        DatasetExistsError: Something is there, and the mode is `"error"`.
        SchemaError: A field cannot be stored, or the rows do not fit the schema of the dataset to append to.
        EncodeError: A row does not fit the schema; field and row are named. Nothing is changed.
        DatasetChangedError: Another writer committed while the dataset was being overwritten. Nothing is changed.
        StorageError: The storage refused. Nothing is changed.

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
    layout = Layout.of(
        rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=rows_per_file
    )
    asked: dict[str, Any] = {"mode": mode, "compression": compression, "writer": _writer(), "progress": progress}
    with _encoders(workers_count) as pool:
        if columns is not None and columns.between is not None and has_even_cells(schema):
            write = functools.partial(write_side_by_side, columns=columns, schema=schema, layout=layout, pool=pool)
            inventory = _write(location, schema, write, layout, **asked)
        else:
            given: Any = rows
            cells = encode_chunks(given, schema, pool) if columns is None else encode_columns(columns, schema, pool)
            inventory = write_cells(location, schema, cells, layout, **asked)
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
    layout: Layout,
    *,
    mode: Mode,
    writer: str,
    compression: Compression | None = "auto",
    progress: Callable[[int], object] | None = None,
) -> Inventory:
    """Write cells that are encoded already, as `write_dataset` does those that it has encoded.

    Args:
        location: The dataset's directory.
        schema: What the rows are.
        batches: Stored cells, of `petastore.schema.arrow.storage_schema(schema)`.
        layout: Where row groups and files end.
        mode: As in `write_dataset`.
        writer: Who writes, for people.
        compression: As in `write_dataset`.
        progress: As in `write_dataset`.

    Raises:
        DatasetExistsError, SchemaError, DatasetChangedError, StorageError: As `write_dataset`.
    """

    def write(files: DataFiles, told: Callable[[int], object]) -> None:
        for group in row_groups(batches, layout):
            files.write(group)
            told(group.num_rows)

    return _write(location, schema, write, layout, mode=mode, writer=writer, compression=compression, progress=progress)


def _write(
    location: Location,
    schema: Unischema,
    write: Callable[[DataFiles, Callable[[int], object]], None],
    layout: Layout,
    *,
    mode: Mode,
    writer: str,
    compression: Compression | None,
    progress: Callable[[int], object] | None,
) -> Inventory:
    """Commits what `write` writes to data files; it tells the rows of each row group that it has written."""
    target = Target(location, schema, mode, writer=writer)
    options = writer_options(target.schema, compression)
    files = DataFiles(location, target.schema, layout, options, first_number=target.first_number)
    try:
        write(files, _Told(progress))
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


class _Told:
    """Counts the rows of row groups that threads write, and tells who wants to know; never two at a time."""

    def __init__(self, progress: Callable[[int], object] | None) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._done = 0

    def __call__(self, rows: int) -> None:
        with self._lock:
            self._done += rows
            if self._progress is not None:
                self._progress(self._done)


def _check_url_and_mode(url: Any, mode: Any) -> None:
    if not isinstance(url, (str, os.PathLike)):
        raise InvalidArgumentError(f"write_dataset takes one URL or path, but a {type(url).__name__} was given")
    if mode not in get_args(Mode):
        raise InvalidArgumentError(f"mode={mode!r} is not known; choose one of {', '.join(map(repr, get_args(Mode)))}")


def _schema_and_columns(schema: Any, rows: Any) -> tuple[Unischema, Columns | None]:
    """The schema that is written, and the columns that are; None of rows."""
    columns = columns_of(rows)
    if schema is None and columns is not None:
        schema = Unischema("inferred", columns.fields())
    if not isinstance(schema, Unischema) or not len(schema):
        raise InvalidArgumentError(
            f"write_dataset takes a Unischema with at least one field, but {schema!r} was given. Without one it writes "
            f"columns: {KINDS}; see petastore.infer_schema"
        )
    if columns is None:
        check_rows(rows)
    return schema, columns


def _writer() -> str:
    try:
        return f"petastore {importlib.metadata.version('petastore')} write_dataset"
    except importlib.metadata.PackageNotFoundError:
        return "petastore write_dataset"
