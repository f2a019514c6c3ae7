"""What lies in a dataset's directory: data files, and the marks of writes that have not ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyarrow import fs

from petastore.errors import DatasetNotFoundError, MetadataError
from petastore.storage.failures import answered, asking
from petastore.storage.location import Location

__all__ = ["files_below", "is_data_file", "list_data_files", "unfinished_writes", "writing_marker"]

_SUFFIXES = (".parquet", ".parq", ".pq")
_MARKER = re.compile(r"_petastore/writing-([0-9a-f]{32})")


def writing_marker(token: str) -> str:
    """Path of the file that says: files with this token in their names belong to a write that has not ended.

    Args:
        token: 32 hexadecimal digits.
    """
    return f"_petastore/writing-{token}"


def unfinished_writes(location: Location) -> set[str]:
    """Tokens of writes that have not ended, or were killed."""
    selector = fs.FileSelector(location.join("_petastore"), allow_not_found=True)
    found = answered(location, lambda: location.filesystem.get_file_info(selector), "list the directory _petastore")
    return {match[1] for info in found if (match := _MARKER.fullmatch(f"_petastore/{info.base_name}"))}


def is_data_file(path: str) -> bool:
    """Whether a path relative to the root is that of a data file by its names alone."""
    return not _is_hidden(path) and path.endswith(_SUFFIXES)


def list_data_files(location: Location) -> list[str]:
    """Paths of the data files, relative to the root and sorted.

    Data files end in `.parquet`, `.parq` or `.pq`, or, where there is none such, have no suffix at all, as Hive writes
    them. Names beginning with `_` or `.` are left out at every level (but `_key=value` is a partition), and so are the
    files of a `write_dataset` that has not ended. Where `location.paths` names files or directories, only those are
    listed, and a file that is named is taken whatever it is called.

    Raises:
        DatasetNotFoundError: Nothing is there, or nothing that is a data file.
        MetadataError: A `.parquet` file has no bytes.
        StorageError: The storage refused.
    """
    found = files_below(location)
    unfinished = {match[1] for path in found if (match := _MARKER.fullmatch(path))}
    named = set(location.paths or ())
    data = {path: info for path, info in found.items() if path in named or not _is_hidden(path)}
    written = {path: info for path, info in data.items() if not any(token in path for token in unfinished)}
    files = {path: info for path, info in written.items() if path in named or path.endswith(_SUFFIXES)}
    files = files or {path: info for path, info in written.items() if info.size and "." not in info.base_name}
    for path, info in files.items():
        if info.size == 0:
            raise MetadataError(
                f"{location.url}: {path} has no bytes, so it is no Parquet; delete it or write it again"
            )
    if not files:
        raise DatasetNotFoundError(_nothing_found(location, found, unfinished=len(data) > len(written)))
    return sorted(files)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.split("/"))


def _nothing_found(location: Location, found: Mapping[str, Any], *, unfinished: bool) -> str:
    if unfinished:
        return (
            f"{location.url} holds only files of a write that has not ended or was interrupted; "
            'write it again with mode="overwrite"'
        )
    if not found:
        return f"{location.url} is an empty directory; there is no Parquet file in it"
    shown = ", ".join(sorted(found)[:5]) + (", …" if len(found) > 5 else "")
    return f"{location.url} has no Parquet file in it; found only {shown}"


def files_below(location: Location) -> dict[str, Any]:
    """Of each file below the root, hidden ones too, or of those that `location.paths` names: its `pyarrow.fs.FileInfo`.

    Raises:
        DatasetNotFoundError: Nothing is at the root, or at one of the paths.
        StorageError: The storage refused.
    """
    found: dict[str, Any] = {}
    handler = getattr(location.filesystem, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        handler.fs.invalidate_cache()  # fsspec remembers listings, and others write too
    for relative in (None,) if location.paths is None else location.paths:
        start = location.root if relative is None else location.join(relative)
        with asking(location, f"list {relative or 'the directory'}"):
            info = location.filesystem.get_file_info(start)
            listed = [info] if info.is_file else _below(location.filesystem, info, start)
        if listed is None:
            raise DatasetNotFoundError(f"{location.url}: there is nothing at {relative or 'that path'}")
        if info.is_file and relative is not None:
            found[relative] = info
        else:
            found.update({_relative(location, item.path): item for item in listed if item.is_file})
    return found


def _below(filesystem: Any, info: Any, start: str) -> list[Any] | None:
    # An object store has no directories: asking for one that holds objects may find nothing.
    listed = list(filesystem.get_file_info(fs.FileSelector(start, recursive=True, allow_not_found=True)))
    return None if not listed and info.type == fs.FileType.NotFound else listed


def _relative(location: Location, path: str) -> str:
    root = location.root.strip("/")
    path = path.lstrip("/")
    return path[len(root) :].lstrip("/") if root and path.startswith(root) else path
