"""Where converters keep what Spark wrote: one directory for each plan and way of storing it, and its end.

A directory is written once for all converters of this process that ask for the same rows stored in the same way, and is
removed when the last of them is deleted, at the latest when the process ends. Should the process not get that far, a
later one that uses the same parent removes it: `petastore.spark.caching.leases` says when.
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
from petastore.spark.settings import TIMESTAMP_TYPE, parquet_settings
from petastore.spark.tensor_columns import FloatDtype, observing_shapes, tensor_columns
from petastore.spark.turns import settings_held
from petastore.spark.urls import driver_url, spark_url
from petastore.storage.files.location import Location, open_location
from petastore.storage.requests.failures import answered, answered_once, asking, foreign_text
from petastore.storage.requests.shown import shown_url
from petastore.writers.commit import commit_dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Kept", "Storing", "keep", "register_delete_dir_handler", "release"]

_User = TypeVar("_User")
_MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Storing:
    """How a DataFrame is stored, and where."""

    parent_url: str
    """URL of the directory in which directories are made."""

    row_group_bytes: int
    """Bytes of a row group, about."""

    compression: str
    """Name of Spark's codec."""

    dtype: FloatDtype | None
    """What floats become."""


@dataclasses.dataclass(eq=False)
class Kept:
    """A directory of this process."""

    storing: Storing
    df: Any
    """What was stored, to compare plans with."""
    files: frozenset[str]
    """The files that the plan reads."""
    pid: int
    lock: forks.Lock = dataclasses.field(default_factory=forks.Lock)
    users: weakref.WeakSet[Any] = dataclasses.field(default_factory=weakref.WeakSet)
    """Converters of this process that were not deleted."""
    parent: Location | None = None
    name: str = ""
    dataset: Dataset | None = None
    """What lies there; None before it is written."""
    url: str = ""
    """URL of the directory, for this process."""
    is_over: bool = False
    """Whether it was removed, or could not be made."""


_lock = forks.Lock()
_kept: dict[tuple[Any, ...], list[Kept]] = {}
_leases = Leases()
_handler: Callable[[str], Any] | None = None


def register_delete_dir_handler(handler: Callable[[str], Any] | None) -> None:
    """Say how the directories of converters are removed.

    Args:
        handler: Gets the URL of a directory; None is petastore's own way again, which removes it through the filesystem
            of the URL.
    """
    global _handler
    _handler = handler


def keep(
    df: DataFrame, storing: Storing, use: Callable[[str, Dataset], _User], *, storage_options: Mapping[str, Any] | None
) -> _User:
    """Use the directory with these rows, stored in this way: one that is there already, or a new one.

    Args:
        df: The rows.
        storing: How they are stored.
        use: Makes the user of it from its URL and the dataset that lies there: an object that uses it until `release`,
            or until it is collected.
        storage_options: Of the filesystem through which this process sees the parent.

    Returns:
        What `use` gave.

    Raises:
        InvalidArgumentError: A column cannot be stored, or the URL is none.
        StorageError: The storage refused.
    """
    while True:
        kept = _entry_of(df, storing)
        with kept.lock:
            if kept.is_over:
                continue  # since it was looked up
            if kept.dataset is not None and kept.parent is not None and not _is_at(kept.parent, kept.name):
                _end(kept)  # somebody else removed it
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
    """The entry for this plan, which may have to be filled yet."""
    session = df.sparkSession
    files = frozenset(df.inputFiles())
    key = (
        storing,
        session.conf.get("spark.app.id", None),
        getattr(session, "session_id", None) if "connect" in type(session).__module__ else None,
        df.semanticHash(),
    )
    with _lock:
        entries = _kept.setdefault(key, [])
        for kept in entries:
            # Two reads of one directory have equal plans though its files may have changed in between.
            if kept.pid == os.getpid() and kept.files == files and df.sameSemantics(kept.df):
                return kept
        entries.append(Kept(storing, df, files, os.getpid()))
        return entries[-1]


def _of_this_process() -> list[Kept]:
    with _lock:
        return [kept for entries in _kept.values() for kept in entries if kept.pid == os.getpid()]


def _forget(kept: Kept) -> None:
    kept.is_over = True
    with _lock:
        for key, entries in list(_kept.items()):
            entries[:] = [other for other in entries if other is not kept]
            if not entries:
                del _kept[key]


def _fill(kept: Kept, storage_options: Mapping[str, Any] | None) -> Dataset:
    """Write the rows to a new directory; what was written of it is removed again where that fails."""
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
        with contextlib.suppress(StorageError):  # what stays has a lease, by which others find it abandoned
            _remove(parent, name, url)
        raise


def _write(df: DataFrame, storing: Storing, target: str) -> dict[str, tuple[int | None, ...]]:
    """Let Spark write the rows; returns the shapes of columns of arrays."""
    observed, shapes = observing_shapes(tensor_columns(df, storing.dtype))
    settings = parquet_settings(Unischema("rows", []), row_group_size_mb=storing.row_group_bytes / _MIB)
    writer = observed.write.options(**settings, compression=storing.compression)
    # INT96, Spark's default, is taken for nanoseconds elsewhere, and overflows outside of the years 1677 to 2262.
    with settings_held(df.sparkSession, {TIMESTAMP_TYPE: "TIMESTAMP_MICROS"}, reason=target):
        writer.parquet(target)
    return shapes()


def _committed(
    url: str, shapes: Mapping[str, tuple[int | None, ...]], storage_options: Mapping[str, Any] | None, *, writer: str
) -> Dataset:
    """The dataset that Spark wrote, with a schema that knows the shapes, so that arrays become one tensor a batch."""
    found = open_dataset(url, storage_options=storage_options)
    schema = _declared(found, shapes)
    if schema is None:
        return found
    commit_dataset(found.location, schema, writer=writer)
    return open_dataset(url, storage_options=storage_options)


def _declared(found: Dataset, shapes: Mapping[str, tuple[int | None, ...]]) -> Unischema | None:
    """The schema to declare; None where none can say what a column is, such as a map: then it stays plain Parquet."""
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
    """`user` needs the directory no more: it is removed unless others of this process use it.

    What no converter made, such as a directory of the user's, is left alone.

    Args:
        url: As `keep` returned it, here or in another process.
        user: What `keep` returned, or anything else.
        storage_options: Of the filesystem of the URL.

    Raises:
        StorageError: The storage refused.
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
    """Remove a directory of this process; its lock is held."""
    _forget(kept)
    if kept.parent is not None:
        _remove(kept.parent, kept.name, kept.url)


def _remove(parent: Location, name: str, url: str) -> None:
    """Remove a directory, then its lease: should this end in between, the next one still finds the lease."""
    handler = _handler
    if handler is not None:
        with asking(parent, "have the registered handler remove", name):
            handler(url)
    elif _is_at(parent, name):
        answered_once(parent, lambda: parent.filesystem.delete_dir(parent.join(name)), "remove the directory", name)
    _leases.give_back(parent, name)


def _remove_abandoned(parent: Location, base: str) -> None:
    """Remove what processes that are gone left in `parent`; nothing of that stops who is here for something else."""
    try:
        for name in abandoned_directories(parent):
            _remove(parent, name, f"{base}/{name}")
    except StorageError as problem:
        warnings.warn(f"what others left behind cannot be removed: {problem}", UserWarning, stacklevel=2)


@atexit.register
def _remove_all() -> None:
    """Remove the directories of this process; a forked child leaves those of its parent alone."""
    for kept in _of_this_process():
        try:
            _end(kept)
        except Exception as problem:  # noqa: BLE001 - the next directory is to be removed, whatever happened to this one
            said = foreign_text(problem)
            warnings.warn(f"{shown_url(kept.url)} could not be removed: {said}", UserWarning, stacklevel=1)
