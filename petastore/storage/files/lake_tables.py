"""Detect Delta, Iceberg and Hudi tables, in order to reject them.

Only the table's metadata lists the current files of such a table. Its directory also has files with removed rows, files
of older versions, and delete files. Reading all of its Parquet files returns wrong rows, so petastore raises an error
for the directory. Users can pass the list of files that the table's own API returns.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NoReturn

from pyarrow import fs

from petastore.errors import InvalidArgumentError, StorageError
from petastore.storage.files.location import Location
from petastore.storage.requests.failure_kinds import attribute
from petastore.storage.requests.failures import answered
from petastore.storage.requests.retries import at_once

__all__ = ["reject_lake_tables_above", "reject_lake_tables_among"]

_MARKERS = {"_delta_log": "a Delta", ".hoodie": "a Hudi", "metadata": "an Iceberg"}
"""Dict from the name of a metadata directory to the table format it identifies.

A directory `metadata` identifies an Iceberg table only if it contains a file `*.metadata.json`.
"""

_METADATA_FILE = re.compile(r".+\.metadata\.json(?:\.gz)?")
_CURRENT_FILES = {
    "a Delta": "deltalake.DeltaTable({table!r}).file_uris()",
    "an Iceberg": "[task.file.file_path for task in table.scan().plan_files()] with pyiceberg's table for {table!r}",
    "a Hudi": 'spark.read.format("hudi").load({table!r}).inputFiles()',
}
"""Dict from table format to the call that lists the current files, for messages."""


def reject_lake_tables_among(location: Location, paths: Iterable[str], data_files: Collection[str]) -> None:
    """Raise an error if data files are in a Delta, Iceberg or Hudi table.

    The table is detected by its metadata files among the listed paths.

    Args:
        location: Location of the listed folder.
        paths: All listed paths, relative to the root, including directories.
        data_files: Paths of the files to read, relative to the root.

    Raises:
        InvalidArgumentError: A data file is in a Delta, Iceberg or Hudi table.
    """
    tables = dict(filter(None, map(_marked_table, paths)))
    if not tables:
        return
    for path in data_files:
        for directory in _directories_above(path):
            if directory in tables:
                _reject(tables[directory], _url_of(location, location.join(directory) if directory else location.root))


def reject_lake_tables_above(location: Location, listed: Collection[str], directories: Collection[str]) -> None:
    """Raise an error if directories are inside a Delta, Iceberg or Hudi table.

    All parent directories are searched for table metadata. A directory without read permission is ignored.

    Args:
        location: Location of the dataset.
        listed: Directories that were listed completely, as paths in the filesystem.
        directories: Directories of single files, as paths in the filesystem.

    Raises:
        InvalidArgumentError: A directory is in a Delta, Iceberg or Hudi table.
    """
    asked = {above for path in listed for above in _parents(path)}
    asked.update(above for path in directories for above in (path, *_parents(path)))
    if isinstance(location.filesystem, fs.LocalFileSystem):
        real = [os.path.realpath(path or "/") for path in (*listed, *directories)]
        asked.update(above for path in real for above in (path, *_parents(path)))
        asked.difference_update(listed)
    places = [(above, name) for above in sorted(asked, key=len, reverse=True) for name in _MARKERS]

    def look(place: tuple[str, str]) -> bool:
        with contextlib.suppress(StorageError):
            return answered(location, lambda: _has_marker(location.filesystem, *place), "look for a lake table")
        return False

    has_marker = map(look, places) if location.is_local else at_once(look, places)
    for (directory, name), is_there in zip(places, has_marker, strict=True):
        if is_there:
            _reject(_MARKERS[name], _url_of(location, directory))


def _reject(table_format: str, table: str) -> NoReturn:
    raise InvalidArgumentError(
        f"the dataset URL must be a folder of plain Parquet files, got a folder of {table_format} table, {table}, "
        "which also holds files of removed rows and older versions. Pass the list of its current files instead: "
        f"{_CURRENT_FILES[table_format].format(table=table)}"
    )


def _marked_table(path: str) -> tuple[str, str] | None:
    """Return the directory and format of the table to which a metadata path belongs.

    Return None for any other path.
    """
    parts = path.split("/")
    for depth, name in enumerate(parts):
        if name == "_delta_log":
            return "/".join(parts[:depth]), "a Delta"
        if name.startswith(".hoodie"):  # not `==`, because partitions have a file .hoodie_partition_metadata
            return "/".join(parts[:depth]), "a Hudi"
        if name == "metadata" and depth + 2 == len(parts) and _METADATA_FILE.fullmatch(parts[-1]):
            return "/".join(parts[:depth]), "an Iceberg"
    return None


def _directories_above(path: str) -> Iterator[str]:
    while path:
        path = posixpath.dirname(path)
        yield path


def _parents(path: str) -> Iterator[str]:
    """Yield the parent directories of a path in a filesystem, nearest first."""
    scheme, _, path = path.rpartition("://")  # scheme of a web address
    while "/" in (path := path.rstrip("/")):
        path = path.rpartition("/")[0]
        if path:
            yield f"{scheme}://{path}" if scheme else path


def _has_marker(filesystem: Any, directory: str, name: str) -> bool:
    path = f"{directory.rstrip('/')}/{name}"
    has_directory = attribute(filesystem, "has_directory")
    if not (has_directory(path) if has_directory else filesystem.get_file_info(path).type == fs.FileType.Directory):
        return False
    infos = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)) if name == "metadata" else []
    return name != "metadata" or any(_METADATA_FILE.fullmatch(info.base_name) for info in infos)


def _url_of(location: Location, directory: str) -> str:
    start = location.url.find(directory)
    return location.url[: start + len(directory)] if start >= 0 else directory
