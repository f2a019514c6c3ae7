"""Commit of a write: check the data files, then replace the manifest.

The columns of the files are compared with the schema.

`write_dataset` and `materialize_dataset` both use this commit. Readers see the old dataset until the manifest is
renamed, and the new dataset afterwards. One writer at a time replaces the manifest. On a local filesystem the lock is
`flock` on `_petastore/.lock`. It also excludes other processes of the host (over NFS 4, also of other hosts), and is
released when its process ends. On other storage the lock excludes only threads of this process, so
writers compare the manifest before they replace it.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from petastore import forks
from petastore.codecs.arrow.arrow_types import map_leaves
from petastore.errors import DatasetChangedError, FileMissingError, SchemaError
from petastore.inventory import Inventory
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import is_bytes, is_text, storage_schema, storage_type
from petastore.schema.document import dump_document
from petastore.storage.files.listing import list_data_files, partition_value, unfinished_writes, writing_marker
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import delete_file
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import differing_schemas, encoded_footers, inventory_of, read_footers, schemas_of
from petastore.storage.metadata.manifest import (
    Manifest,
    manifest_token,
    read_manifest,
    write_common_metadata,
    write_manifest,
)
from petastore.storage.requests.failures import asking

__all__ = ["LOCK", "check_stored", "commit_dataset", "committing", "manifest_of", "publish"]

_ATTEMPTS = 5

LOCK = "_petastore/.lock"
"""Path of the empty lock file, relative to the root."""

_guard = forks.Lock()
_in_process: dict[tuple[str, str], forks.Lock] = collections.defaultdict(forks.Lock)


def commit_dataset(
    location: Location, schema: Unischema, *, files: Sequence[str] | None = None, writer: str
) -> Inventory:
    """Commit data files as the dataset, with a schema.

    Reads the footers, checks them against the schema, and writes `_common_metadata` and then the manifest. Afterwards
    the dataset consists of exactly these files. If another writer commits in the meantime, the commit is retried.

    Args:
        location: Location of the dataset.
        schema: Schema of the rows. It may have hive partition columns, which are not in the files.
        files: Data files, relative to the root; None means all files in the directory.
        writer: Name of the writing program, for display.

    Returns:
        The written inventory.

    Raises:
        DatasetNotFoundError: The directory has no data files.
        SchemaError: A file has a missing or additional column, stores a column as another type, or stores a field that
            is not nullable as OPTIONAL.
        MetadataError: A file is not Parquet, or is damaged.
        StorageError: A storage operation failed; the old dataset is unchanged.
        DatasetChangedError: Other writers committed during every attempt.

    Example:
        >>> import pyarrow.parquet as pq, tempfile
        >>> from petastore.storage.files.location import open_location
        >>> schema = Unischema("point", [UnischemaField("x", "float32")])
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     table = pa.table({"x": pa.array([1, 2, 3], pa.float32())}, storage_schema(schema))
        ...     pq.write_table(table, f"{directory}/part-0.parquet")
        ...     commit_dataset(open_location(directory), schema, writer="an example")
        Inventory(1 file, 1 row group, 3 rows)
    """

    def change() -> Manifest:
        _forget_ended_writes(location)
        return manifest_of(location, list_data_files(location) if files is None else files, schema, writer=writer)

    return publish(location, schema, change)


def manifest_of(location: Location, files: Sequence[str], schema: Unischema, *, writer: str) -> Manifest:
    """Return the manifest of data files, after checking each against the schema.

    Raises:
        SchemaError, MetadataError, StorageError: As `commit_dataset`.
    """
    footers = read_footers(location, files)
    for footer in footers:
        check_stored(footer, schema)
    _check_stored_somewhere(footers, schema)
    if any(footer.file.partitions for footer in footers):
        schemas_of(footers).check_key_directories([footer.file for footer in footers])
    document, schemas = dump_document(schema.name, schema), differing_schemas(footers)
    return Manifest(inventory_of(footers), document, writer, schemas, footers=encoded_footers(footers))


def _forget_ended_writes(location: Location) -> None:
    """Delete the markers of writes that were killed after their commit.

    The manifest lists the files of such writes.
    """
    tokens = unfinished_writes(location)
    manifest = read_manifest(location) if tokens else None
    for file in manifest.inventory.files if manifest is not None else ():
        for token in tokens:
            if token in file.path:
                with contextlib.suppress(FileMissingError):  # another writer has removed it in the meantime
                    delete_file(location, writing_marker(token))


def publish(location: Location, schema: Unischema, change: Callable[[], Manifest]) -> Inventory:
    """Replace the manifest without losing the commit of another writer.

    Return the new inventory.

    Args:
        location: Location of the dataset.
        schema: Schema of the rows, for `_common_metadata`.
        change: Function that reads the current manifest and returns the next one. Called again if another writer
            committed meanwhile, which is possible only without a lock between processes (see `committing`).

    Raises:
        DatasetChangedError: Other writers committed during every attempt.
    """
    with committing(location):
        for _ in range(_ATTEMPTS):
            before = manifest_token(location)
            manifest = change()
            if manifest_token(location) == before:
                inside = {key for file in manifest.inventory.files[:1] for key, _ in file.partitions}
                stored = storage_schema(field for field in schema if field.name not in inside)
                write_common_metadata(location, stored, dump_document(schema.name, schema))
                write_manifest(location, manifest)
                return manifest.inventory
    raise DatasetChangedError(
        f"{location.url}: other writers committed during all {_ATTEMPTS} attempts to commit. Wait for them, and "
        "commit again"
    )


@contextlib.contextmanager
def committing(location: Location) -> Iterator[None]:
    """Hold the commit lock of a dataset in a `with` block.

    Before, wait while another writer holds the lock.

    Example:
        >>> from petastore.storage.files.location import open_location
        >>> with committing(open_location("memory://bucket/frames")):
        ...     pass
    """
    with _guard:
        mine = _in_process[(location.url, location.root)]
    with mine, _file_lock(location):
        yield


@contextlib.contextmanager
def _file_lock(location: Location) -> Iterator[None]:
    if not isinstance(location.filesystem, fs.LocalFileSystem):
        yield
        return
    path = Path(location.join(LOCK))
    with asking(location, "make the lock", LOCK):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with asking(location, "take the lock", LOCK):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_stored(footer: Footer, schema: Unischema) -> None:
    """Raise an error for a file whose columns differ from the schema.

    Differences in time units, time zones, large and view layouts, kinds of list and INT96 timestamps are accepted,
    because such columns are read as the same values.

    Raises:
        SchemaError: A column differs; the message has the file, the column and advice.
    """
    path = footer.file.path
    partitions = dict(footer.file.partitions)
    stored = {field.name: field for field in footer.arrow_schema}
    extra = [name for name in stored if name not in schema]
    if extra:
        raise SchemaError(
            f"{path} must have only columns of schema {schema.name!r}, got {', '.join(map(repr, extra))}. Add them "
            "to the schema, or write the file without them"
        )
    for field in schema:
        if field.name in stored:
            _check_column(field, stored[field.name], path)
        else:
            _check_partition(field, partitions, stored, path)


def _check_partition(
    field: UnischemaField, partitions: Mapping[str, str | None], stored: Mapping[str, pa.Field], path: str
) -> None:
    if field.name not in partitions:
        if field.nullable:
            return
        raise SchemaError(
            f"{path} must have the column {field.name!r}, which the schema declares, got "
            f"{', '.join(map(repr, stored))}. Write the column, declare it "
            "nullable=True, or remove it from the schema"
        )
    if partition_value(partitions[field.name], field) is None and not field.nullable:
        raise SchemaError(
            f"{path} must not be in a null partition of {field.name!r}, because the schema says nullable=False. "
            "Declare the field nullable=True"
        )


def _check_stored_somewhere(footers: Sequence[Footer], schema: Unischema) -> None:
    known = {name for footer in footers for name in [*footer.arrow_schema.names, *dict(footer.file.partitions)]}
    for field in schema:
        if footers and field.name not in known:
            raise SchemaError(
                f"at least one file must have the column {field.name!r}, which the schema declares, got "
                f"{', '.join(map(repr, footers[0].arrow_schema.names))} in {footers[0].file.path}. Write the column, "
                "or remove it from the schema"
            )


def _check_column(field: UnischemaField, found: pa.Field, path: str) -> None:
    expected = storage_type(field)
    if map_leaves(found.type, _comparable) != map_leaves(expected, _comparable):
        raise SchemaError(
            f"{path} must store column {field.name!r} as {expected}, like {field!r}, got {found.type}. Encode the "
            "values with the schema before writing them, or correct the schema"
        )
    if found.nullable and not field.nullable:
        raise SchemaError(
            f"{path} must store column {field.name!r} as REQUIRED, because the schema says nullable=False, got "
            "OPTIONAL. Write the file with a schema whose column is not nullable (Unischema.as_spark_schema gives "
            "one), or declare nullable=True"
        )


def _comparable(leaf: pa.DataType) -> pa.DataType:
    """Return the type to compare: one type for all types whose values are read alike.

    For example, all layouts of text become `string`, and all timestamps get microseconds.
    """
    if is_text(leaf):
        return pa.string()
    if is_bytes(leaf):
        return pa.binary()
    if pa.types.is_timestamp(leaf):
        return pa.timestamp("us")
    return pa.decimal256(leaf.precision, leaf.scale) if pa.types.is_decimal(leaf) else leaf
