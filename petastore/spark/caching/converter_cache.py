"""Converter cache: one directory of Parquet files for each cached DataFrame.

All converters of this process with the same query plan and write options (row-group size, compression, dtype) share a
directory, which is written once. The directory is removed when the last of these converters is deleted, at the latest
when the process ends. If the process is killed, a later process with the same parent directory removes the directory;
see `petastore.spark.caching.leases`.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import re
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyarrow import fs

from petastore import forks
from petastore.dataset import Dataset, open_dataset
from petastore.errors import SchemaError, StorageError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.spark.caching.leases import Leases, abandoned_directories, has_lease
from petastore.spark.prepared import FloatDtype, observing_shapes, tensor_columns
from petastore.spark.settings import TIMESTAMP_TYPE, driver_url, parquet_settings, settings_held, spark_url
from petastore.storage.files.location import Location, open_location
from petastore.storage.requests.failures import answered, answered_once, asking, foreign_text, shown_url
from petastore.writers.commit import commit_dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Kept", "Storing", "keep", "register_delete_dir_handler", "release"]

_User = TypeVar("_User")
_MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Storing:
    """Write options of a cached DataFrame, and the parent of its directory."""

    parent_url: str
    """URL of the parent directory, in which each cached DataFrame gets a directory."""

    row_group_bytes: int
    """Approximate bytes of a row group."""

    compression: str
    """Spark's name of the compression codec."""

    dtype: FloatDtype | None
    """Dtype to which floats are converted."""


@dataclasses.dataclass(eq=False)
class Kept:
    """Directory of a cached DataFrame, and the converters that use it."""

    storing: Storing
    df: Any
    """Stored DataFrame; a later DataFrame with the same query plan uses the same directory."""
    key: tuple[Any, ...]
    """Write options, session, query plan and input files.

    Keys are equal for DataFrames that may share the directory.
    """
    pid: int
    lock: forks.Lock = dataclasses.field(default_factory=forks.Lock)
    users: weakref.WeakSet[Any] = dataclasses.field(default_factory=weakref.WeakSet)
    """Converters of this process that use the directory: neither deleted nor garbage-collected."""
    parent: Location | None = None
    name: str = ""
    dataset: Dataset | None = None
    """Stored files; None before they are written."""
    url: str = ""
    """URL of the directory for Python; Spark may need another URL, such as `dbfs:/`."""
    is_over: bool = False
    """Whether the directory was removed, or could not be created."""


_lock = forks.Lock()
_kept: list[Kept] = []
_leases = Leases()
_handler: Callable[[str], Any] | None = None


def register_delete_dir_handler(handler: Callable[[str], Any] | None) -> None:
    """Set the function that deletes the directories of Spark converters.

    Args:
        handler: Function that takes the URL of a directory. None restores the default, which deletes it with fsspec.
    """
    global _handler
    _handler = handler


def keep(
    df: DataFrame, storing: Storing, use: Callable[[str, Dataset], _User], *, storage_options: Mapping[str, Any] | None
) -> _User:
    """Write a DataFrame to a directory, unless the DataFrame is cached already.

    In both cases, call `use` with the directory, and return its result.

    Args:
        df: The rows.
        storing: Write options, and the parent directory.
        use: Function that creates an object, such as a converter, from the URL and the dataset. The object uses the
            directory until `release` is called, or until the object is garbage-collected.
        storage_options: Options of the filesystem with which this process accesses the parent directory.

    Returns:
        Result of `use`.

    Raises:
        InvalidArgumentError: A column cannot be stored, or the URL is invalid.
        StorageError: A storage operation failed.
    """
    while True:
        kept = _entry_of(df, storing)
        with kept.lock:
            if kept.is_over:
                continue  # the directory was removed since the lookup
            if kept.dataset is not None and kept.parent is not None and not _is_at(kept.parent, kept.name):
                _end(kept)  # another process removed the directory
                continue
            if kept.dataset is None:
                try:
                    kept.dataset = _fill(kept, storage_options)
                except BaseException:
                    _forget(kept)
                    raise
            user = use(kept.url, kept.dataset)
            kept.users.add(user)
            return user


def _is_at(parent: Location, name: str) -> bool:
    path = parent.join(name)
    return bool(
        answered(parent, lambda: parent.filesystem.get_file_info(path).type != fs.FileType.NotFound, "look at", name)
    )


def _entry_of(df: DataFrame, storing: Storing) -> Kept:
    """Return the cache entry of a DataFrame; add one, without files, if it is missing."""
    session = df.sparkSession
    key = (
        storing,
        session.conf.get("spark.app.id", None),
        getattr(session, "session_id", None) if "connect" in type(session).__module__ else None,
        df.semanticHash(),
        # The key has the input files, because two reads of a directory have equal plans even if its files have changed.
        frozenset(df.inputFiles()),
    )
    with _lock:
        for kept in _kept:
            if kept.pid == os.getpid() and kept.key == key and df.sameSemantics(kept.df):
                return kept
        kept = Kept(storing, df, key, os.getpid())
        _kept.append(kept)
        return kept


def _of_this_process() -> list[Kept]:
    with _lock:
        return [kept for kept in _kept if kept.pid == os.getpid()]


def _forget(kept: Kept) -> None:
    kept.is_over = True
    with _lock, contextlib.suppress(ValueError):  # another thread may have removed the entry
        _kept.remove(kept)


def _fill(kept: Kept, storage_options: Mapping[str, Any] | None) -> Dataset:
    """Write the rows to a new directory, and return the dataset.

    If writing fails, delete the directory.
    """
    storing, session = kept.storing, kept.df.sparkSession
    parent = open_location(driver_url(storing.parent_url), storage_options=storage_options)
    base = spark_url(storing.parent_url, parent).rstrip("/")
    _remove_abandoned(parent, driver_url(base))
    application = re.sub(r"[^A-Za-z0-9_.-]", "_", session.conf.get("spark.app.id", None) or "unknown")[:200]
    name = f"{time.strftime('%Y%m%d%H%M%S')}-appid-{application}-{uuid.uuid4()}"
    kept.parent, kept.name = parent, name
    kept.url = url = f"{driver_url(base)}/{name}"
    try:
        _leases.take(parent, name)
        shapes = _write(kept.df, storing, f"{base}/{name}")
        return _committed(url, shapes, storage_options, writer=f"Spark {session.version} via a converter")
    except BaseException:
        with contextlib.suppress(StorageError):  # the lease lets a later process delete the directory
            _remove(parent, name, url)
        raise


def _write(df: DataFrame, storing: Storing, target: str) -> dict[str, tuple[int | None, ...]]:
    """Write the rows with Spark; return the shapes of array columns, by name.

    Args:
        df: The rows.
        storing: Write options.
        target: URL of the new directory.
    """
    observed, shapes = observing_shapes(tensor_columns(df, storing.dtype))
    settings = parquet_settings(Unischema("rows", []), row_group_size_mb=storing.row_group_bytes / _MIB)
    writer = observed.write.options(**settings, compression=storing.compression)
    # INT96, Spark's default, is read as nanoseconds by other tools, and overflows outside of 1677 to 2262.
    with settings_held(df.sparkSession, {TIMESTAMP_TYPE: "TIMESTAMP_MICROS"}, reason=target):
        writer.parquet(target)
    return shapes()


def _committed(
    url: str, shapes: Mapping[str, tuple[int | None, ...]], storage_options: Mapping[str, Any] | None, *, writer: str
) -> Dataset:
    """Commit the files that Spark wrote, and return the dataset.

    The committed schema has the shapes of arrays, so arrays become one tensor per batch. If petastore cannot store the
    type of a column (such as a map), nothing is committed, and the dataset stays plain Parquet.
    """
    found = open_dataset(url, storage_options=storage_options)
    schema = _declared(found, shapes)
    if schema is None:
        return found
    commit_dataset(found.location, schema, writer=writer)
    return open_dataset(url, storage_options=storage_options)


def _declared(found: Dataset, shapes: Mapping[str, tuple[int | None, ...]]) -> Unischema | None:
    """Return the dataset's schema with the observed shapes of arrays.

    Return None if petastore cannot store the type of a column, such as a map.
    """
    from petastore.codecs import ScalarCodec

    fields = []
    for field in found.schema:
        stored = found.arrow_schema.field(field.name).type
        codec = ScalarCodec(stored) if field.is_scalar and "decimal" in str(stored) else None
        shape = shapes.get(field.name, field.shape)
        fields.append(UnischemaField(field.name, field.numpy_dtype, shape, codec, field.nullable))
    try:
        storage_schema(fields)
    except SchemaError:
        return None
    return Unischema("converted", fields)


def release(url: str, user: Any, *, storage_options: Mapping[str, Any] | None) -> None:
    """End a converter's use of a directory; after the last use, remove the directory.

    Directories that no converter created, such as directories of the user, are not removed.

    Args:
        url: URL of the directory. The converter may come from another process.
        user: Object that `keep` returned.
        storage_options: Options of the filesystem of the URL.

    Raises:
        StorageError: A storage operation failed.
    """
    mine = [kept for kept in _of_this_process() if kept.url == url]
    for kept in mine:
        with kept.lock:
            kept.users.discard(user)
            if not kept.users:
                _end(kept)
    if not mine:
        parent_url, _, name = url.rstrip("/").rpartition("/")
        parent = open_location(parent_url or "/", storage_options=storage_options)
        if has_lease(parent, name):
            _remove(parent, name, url)


def _end(kept: Kept) -> None:
    """Remove a directory of this process from the cache and from disk.

    The caller must hold `kept.lock`, except when the process ends.
    """
    _forget(kept)
    if kept.parent is not None:
        _remove(kept.parent, kept.name, kept.url)


def _remove(parent: Location, name: str, url: str) -> None:
    """Delete a directory, then its lease file.

    In this order, a later cleanup still finds the lease after an interruption.
    """
    handler = _handler
    if handler is not None:
        with asking(parent, "have the registered handler remove", name):
            handler(url)
    elif _is_at(parent, name):
        answered_once(parent, lambda: parent.filesystem.delete_dir(parent.join(name)), "remove the directory", name)
    _leases.give_back(parent, name)


def _remove_abandoned(parent: Location, base: str) -> None:
    """Remove the directories in `parent` whose processes have ended.

    A storage error only causes a warning.
    """
    try:
        for name in abandoned_directories(parent):
            _remove(parent, name, f"{base}/{name}")
    except StorageError as problem:
        warnings.warn(
            f"converter directories of ended processes cannot be deleted: {problem}. Delete them by hand",
            UserWarning,
            stacklevel=2,
        )


@atexit.register
def _remove_all() -> None:
    """Remove the directories of this process when it ends.

    A forked child does not remove the directories of its parent.
    """
    for kept in _of_this_process():
        try:
            _end(kept)
        except Exception as problem:  # noqa: BLE001 - the other directories must still be removed
            said = foreign_text(problem)
            warnings.warn(
                f"the converter directory {shown_url(kept.url)} cannot be deleted: {said}. Delete it by hand",
                UserWarning,
                stacklevel=1,
            )
