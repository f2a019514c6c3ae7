"""Listing of a dataset's directory: data files and Hive partition values.

Every directory of the form `key=value` below the root is a partition column. Values are percent-decoded;
`__HIVE_DEFAULT_PARTITION__` is null. A column is `int64` if each of its values is a 64-bit integer in canonical form
(`7`, not `07` or `+7`). It is a date if each value is `YYYY-MM-DD`, boolean if each is `true` or `false`, and text
otherwise. The text of the directory name can therefore always be restored. pyarrow infers integers only; Spark, DuckDB
and Polars infer dates, too.

Parquet files are identified by their first and last bytes, which `petastore.storage.footers.footers` checks, and never
by name. Every file is a data file, except files and directories whose names begin with `.` or `_` (but `_key=value` is
a partition). Names that end in `.crc`, empty files, and the files of an unfinished `write_dataset` are also excluded; a
marker file names the unfinished write. A file whose path the user passes is always a data file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote

import numpy as np
from pyarrow import fs

from petastore.errors import DatasetNotFoundError, MetadataError, SchemaError, StorageError
from petastore.inventory import DataFile
from petastore.schema import UnischemaField
from petastore.schema.select import similar_name_advice
from petastore.schema.values import date_or_bool
from petastore.storage.files.lake_tables import reject_lake_tables_above, reject_lake_tables_among
from petastore.storage.files.location import Location
from petastore.storage.files.walk import DirectoryEntry, Enter, Tree, entry_at, local_path, trees_at, walk
from petastore.storage.requests.failures import answered

__all__ = [
    "etags_around",
    "files_below",
    "files_beside",
    "is_called_parquet",
    "is_hidden",
    "list_data_files",
    "list_etags",
    "parse_partitions",
    "partition_fields",
    "partition_value",
    "unfinished_writes",
    "writing_marker",
]


_NULL = "__HIVE_DEFAULT_PARTITION__"
_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64 = np.iinfo(np.int64)

keys_are_text = False
"""Whether dates and booleans in the names of partition directories are read as text.

Petastorm reads such values as text. petastore therefore sets this to True while it replaces Petastorm, that is, while
`import petastorm` imports petastore.
"""


def parse_partitions(path: str) -> tuple[tuple[str, str | None], ...]:
    """Return the partition keys and values in a file's path, outermost first.

    Raises:
        SchemaError: A key occurs twice.

    Example:
        >>> parse_partitions("city=S%C3%A3o Paulo/day=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
        (('city', 'São Paulo'), ('day', None))
    """
    values: dict[str, str | None] = {}
    for directory in path.split("/")[:-1]:
        key, equals, value = directory.partition("=")
        key = _decoded(key)
        if not equals or not key:
            continue
        if key in values:
            raise SchemaError(
                f"{path}: partition keys must be distinct, got {key!r} twice. Give each directory level its own key"
            )
        values[key] = None if value == _NULL else _decoded(value)
    return tuple(values.items())


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def partition_fields(files: Sequence[DataFile]) -> tuple[UnischemaField, ...]:
    """Return the partition columns of a dataset, outermost directory first.

    A column is nullable if a file has no value for it: a null, or no directory with this key.

    Example:
        >>> files = [DataFile("n=1/a.parquet", 9, partitions=(("n", "1"),))]
        >>> partition_fields(files)
        (UnischemaField('n', int64),)
    """
    keys = dict.fromkeys(key for file in files for key, _ in file.partitions)
    of_files = [dict(file.partitions) for file in files]
    return tuple(_field(key, {values.get(key) for values in of_files}) for key in keys)


def _field(name: str, values: set[str | None]) -> UnischemaField:
    dtypes = {_dtype_of(value) for value in values if value is not None}
    dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.str_)
    return UnischemaField(name, np.str_ if dtype.kind == "U" else dtype, nullable=None in values)


def _dtype_of(text: str) -> np.dtype[Any]:
    """Return the dtype of one value of a partition column."""
    if _CANONICAL_INTEGER.fullmatch(text) is not None and _INT64.min <= int(text) <= _INT64.max:
        return np.dtype(np.int64)
    value = None if keys_are_text else date_or_bool(text)
    return np.dtype(np.str_) if value is None else np.asarray(value).dtype


def partition_value(text: str | None, field: UnischemaField) -> Any:
    """Convert the text of a partition value to the value of the partition column.

    Args:
        text: The decoded value, as in `DataFile.partitions`; None is null.
        field: Field of the column, from `partition_fields` or the dataset's schema.

    Returns:
        A NumPy scalar of the field's dtype, `str`, `bytes` or `Decimal`; None for null.

    Raises:
        SchemaError: The value is not valid for the field's type.

    Example:
        >>> partition_value("7", UnischemaField("n", "int64")), partition_value(None, UnischemaField("n", "int64"))
        (np.int64(7), None)
        >>> partition_value("2026-01-31", UnischemaField("day", "datetime64[D]"))
        np.datetime64('2026-01-31')
    """
    if text is None:
        return None
    try:
        return _converted(text, field)
    except (ValueError, OverflowError, InvalidOperation, KeyError) as problem:
        raise SchemaError(
            f"the partition {field.name}={text} must be {field.dtype_name}, as the schema declares {field.name!r} "
            f"({problem}). Correct the schema or the directory's name"
        ) from None


def _converted(text: str, field: UnischemaField) -> Any:
    if field.shape:
        raise ValueError(f"a partition column must have shape (), got {field.shape}")
    if field.numpy_dtype in (np.str_, np.object_):
        return text
    if field.numpy_dtype is np.bytes_:
        return text.encode()
    if field.numpy_dtype is Decimal:
        return Decimal(text)
    if field.dtype.kind == "b":
        return np.bool_({"true": True, "false": False}[text.lower()])
    if field.dtype.kind in "iu":
        return _integer(text, field.dtype)
    if field.dtype.kind == "M":
        return np.array([text.replace(" ", "T")], dtype=field.dtype)[0]
    return field.dtype.type(text)


def _integer(text: str, dtype: np.dtype[Any]) -> Any:
    bounds = np.iinfo(dtype)
    number = int(text)
    if not bounds.min <= number <= bounds.max:
        raise OverflowError(f"the value must be from {bounds.min} to {bounds.max}, the range of {dtype}")
    return dtype.type(number)


_MARKER = re.compile(r"(?:.*/)?_petastore/writing-([0-9a-f]{32})")
_SUFFIXES = (".parquet", ".parq", ".pqt", ".pq")
_SHOWN = 5


def writing_marker(token: str) -> str:
    """Return the path of the marker file of an unfinished write.

    The names of the files that this write creates contain the token.

    Args:
        token: 32 hexadecimal digits.
    """
    return f"_petastore/writing-{token}"


def unfinished_writes(location: Location) -> set[str]:
    """Return the tokens of unfinished or killed writes."""
    selector = fs.FileSelector(location.join("_petastore"), allow_not_found=True)
    markers = answered(location, lambda: location.filesystem.get_file_info(selector), "list the directory _petastore")
    return {match[1] for info in markers if (match := _MARKER.fullmatch(f"_petastore/{info.base_name}"))}


def is_hidden(path: str) -> bool:
    """Return whether a file is ignored because of its path relative to the dataset.

    Example:
        >>> [is_hidden(path) for path in ("a/_b/c.parquet", "_key=1/c", "a/.b.crc", "a/b.crc", "a/README")]
        [True, False, True, True, False]
    """
    return path.endswith(".crc") or _has_hidden_part(path)


def is_called_parquet(path: str) -> bool:
    """Return whether a file name has a usual ending of Parquet files.

    Many Parquet files have other names.

    Example:
        >>> [is_called_parquet(path) for path in ("a.parquet", "A.PQ", "part-00001", "a.parquet.gz", "a.csv")]
        [True, True, False, False, False]
    """
    return path.lower().endswith(_SUFFIXES)


def _has_hidden_part(path: str) -> bool:
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.split("/"))


def list_data_files(location: Location) -> list[str]:
    """Return the sorted paths of the data files, relative to the root.

    No file is opened, so some may not be Parquet files. Files and directories whose names begin with `_` or `.` are
    omitted (but `_key=value` is a partition). Names that end in `.crc`, empty files, and files of an unfinished
    `write_dataset` are omitted, too. If `location.paths` has files or directories, only these are listed; a file that
    the caller passed without a pattern is always included.

    On local file systems, links are followed, except links to a parent directory, or to a directory or file that is
    listed under another path.

    Raises:
        DatasetNotFoundError: The location does not exist, or has no data file.
        MetadataError: A named file is empty.
        InvalidArgumentError: A folder is in a Delta, Iceberg or Hudi table.
        StorageError: A storage operation failed, or a data file is not a regular file, such as a broken link (which
            is not opened).
    """
    return list(list_etags(location))


def list_etags(location: Location) -> dict[str, tuple[int | None, str]]:
    """Return a dict from the path of each data file to its size and etag.

    Both are from the listing; the size is None and the etag is `""` if unknown.

    Raises:
        DatasetNotFoundError: As `list_data_files`.
        MetadataError: As `list_data_files`.
        StorageError: As `list_data_files`.
    """
    all_entries, written, unfinished = _looked_through(location)
    _reject_lake_tables_above(location, [one for one in written if not one.is_named])
    _refuse_odd(location, [one for one in written if not one.entry.is_file])
    for one in written:
        if one.entry.size == 0:
            raise MetadataError(
                f"{location.url}: {one.path} must be a Parquet file, got an empty file. Write the file again, or "
                "delete it"
            )
    if not written:
        raise DatasetNotFoundError(_nothing_found(location, all_entries, unfinished=unfinished))
    return {one.path: (one.entry.size, one.entry.etag) for one in sorted(written, key=lambda one: one.path)}


def files_beside(location: Location, listed: Collection[str]) -> list[str]:
    """Return the sorted paths of possible data files that the manifest does not list.

    The names of these files are those of data files (`list_data_files`); their content is not read.

    Args:
        location: Location of the dataset.
        listed: Paths in the manifest.

    Raises:
        StorageError: A storage operation failed, or a path in `listed` is not a file.
    """
    return [path for path in etags_around(location, listed) if path not in listed]


def etags_around(location: Location, listed: Collection[str]) -> dict[str, tuple[int | None, str]]:
    """List the possible data files of a dataset; return a dict from path to (size, etag).

    The dict is sorted by path, and contains files in the manifest as well as other files. It is empty if the location
    does not exist. A size is None and an etag is `""` if the listing does not have it.

    Args:
        location: Location of the dataset.
        listed: Paths in the manifest.

    Raises:
        StorageError: A storage operation failed, or a path in `listed` is not a file.
    """
    try:
        _, written, _ = _looked_through(location)
    except DatasetNotFoundError:
        return {}
    _refuse_odd(location, [one for one in written if one.path in listed and not one.entry.is_file])
    files = sorted((one for one in written if one.entry.is_file), key=lambda one: one.path)
    return {one.path: (one.entry.size, one.entry.etag) for one in files}


def _looked_through(location: Location) -> tuple[list[_Found], list[_Found], bool]:
    """List the location; return (all files, data files, whether unfinished files were omitted).

    Unfinished files are those of a `write_dataset` that has not ended; they are omitted from the data files.
    """
    everything = _found(location, _is_entered)
    all_entries = [one for one in everything.values() if not one.entry.is_directory]
    unfinished = {match[1] for one in all_entries if (match := _MARKER.fullmatch(one.path))}
    if location.paths is not None and not all(one.is_named for one in all_entries):
        unfinished |= unfinished_writes(location)
    data = [one for one in all_entries if one.is_named or not one.is_left_out]
    written = [one for one in data if one.is_named or not any(token in one.path for token in unfinished)]
    is_any_unfinished = len(data) > len(written)
    written = _without_links_to_neighbours(location, written)
    _reject_lake_tables_among(location, everything, [one.path for one in written if not one.is_named])
    return all_entries, written, is_any_unfinished


def _without_links_to_neighbours(location: Location, written: list[_Found]) -> list[_Found]:
    """Remove links to files that are also listed.

    Two links to the same file outside of the dataset both stay.
    """
    links = {one.path: one.entry.links_to for one in written if one.entry.links_to and not one.is_named}
    if not links:
        return written
    homes: dict[str, str] = {}
    own_names = set()
    for directory, name in (posixpath.split(one.path) for one in written if not one.entry.links_to):
        if directory not in homes:
            homes[directory] = os.path.realpath(str(local_path(location.filesystem, _home(location, directory))))
        own_names.add(posixpath.join(homes[directory], name))
    return [one for one in written if links.get(one.path) not in own_names]


def _reject_lake_tables_among(location: Location, listed: Iterable[str], data: Sequence[str]) -> None:
    marked = [path for path in listed if "_delta_log" in path or ".hoodie" in path or "metadata/" in path]
    if marked:
        reject_lake_tables_among(location, marked, data)


def _reject_lake_tables_above(location: Location, data: Sequence[_Found]) -> None:
    """Raise an error if data files are inside a Delta, Iceberg or Hudi table.

    Files that the caller passed one by one are not checked.
    """
    listed = {one.start for one in data if one.below}
    matched = {posixpath.dirname(one.path) for one in data if not one.below}
    reject_lake_tables_above(location, *([_home(location, path) for path in paths] for paths in (listed, matched)))


def _home(location: Location, start: str) -> str:
    return location.join(start) if start else location.root


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """File or directory found in a dataset's directory."""

    path: str
    """Path relative to the root."""

    below: str
    """Path relative to the listed directory, or empty.

    It is empty if the caller passed the path, or if a pattern matched it.
    """

    entry: DirectoryEntry
    """Size, etag and kind of the entry, from the listing."""

    is_named: bool = False
    """Whether the caller passed this path explicitly."""

    @property
    def start(self) -> str:
        """Directory whose listing found the file, relative to the root."""
        return self.path.removesuffix(self.below).rstrip("/")

    @property
    def is_left_out(self) -> bool:
        """Whether the entry is not a data file: empty, a checksum (`.crc`), or hidden."""
        return self.entry.size == 0 or self.path.endswith(".crc") or is_hidden(self.below)


def _is_entered(directory: str) -> bool:
    above, _, name = directory.rpartition("/")
    return not _has_hidden_part(above if name == "_petastore" else directory)


def files_below(location: Location) -> list[str]:
    """Return all files below the root (or `location.paths`), including hidden files.

    Raises:
        DatasetNotFoundError: The root, or one of the paths, does not exist.
        StorageError: A storage operation failed.
    """
    return [path for path, one in _found(location, lambda _: True).items() if one.entry.is_file]


def _found(location: Location, enter: Enter) -> dict[str, _Found]:
    """List the location; return its files and directories as a dict from path to entry.

    Args:
        location: Location of the dataset; if it has `paths`, only these paths are listed.
        enter: Function that returns whether to list a directory.

    Returns:
        Dict whose keys are paths relative to the root.

    Raises:
        DatasetNotFoundError: The root, or one of the paths, does not exist.
        StorageError: A storage operation failed.
    """
    location.store.forget_listings()
    starts = ("",) if location.paths is None else location.paths
    homes = [_home(location, start) for start in starts]
    trees = functools.cache(lambda: trees_at(location.filesystem, homes))
    by_path: dict[str, _Found] = {}
    for start, home in zip(starts, homes, strict=True):
        look = functools.partial(_found_at, location, start, home, enter, trees)
        for one in answered(location, look, f"list {start or 'the directory'}"):
            if one.path not in by_path or one.is_named:
                by_path[one.path] = one
    return by_path


def _found_at(
    location: Location, start: str, home: str, enter: Enter, trees: Callable[[], Sequence[Tree]]
) -> list[_Found]:
    # The directory existed when the dataset was opened. Check again whether it exists only if the listing is empty.
    at = entry_at(location.filesystem, home) if start else None
    if at is not None and not at.is_directory:
        return [_Found(start, "", at, start not in location.matched)]
    entries = walk(location.filesystem, home, enter=enter, trees=trees)
    found = [_Found(f"{start}/{entry.path}" if start else entry.path, entry.path, entry) for entry in entries]
    if not found and (at or entry_at(location.filesystem, home)) is None:
        raise DatasetNotFoundError(f"{location.url}: {_nothing_there(location, start)}")
    return found


def _refuse_odd(location: Location, odd: Sequence[_Found]) -> None:
    if odd:
        shown = ", ".join(
            f"{one.path or 'it'} is {one.entry.oddity}" for one in sorted(odd, key=lambda one: one.path)[:_SHOWN]
        )
        raise StorageError(
            f"{location.url} has {len(odd):,} entries among its data files that cannot be read: "
            f"{shown}{', …' if len(odd) > _SHOWN else ''}. Delete them, or give them names that begin with _"
        )


def _nothing_there(location: Location, start: str) -> str:
    with contextlib.suppress(StorageError):
        bucket = location.missing_bucket
        if bucket is not None:
            return f"the bucket {bucket!r} does not exist, or these credentials do not allow access"
    local = local_path(location.filesystem, f"{location.root}/{start}" if start else location.root)
    return f"there is nothing at {start or 'that path'}{_similar_path_advice(local) if local else ''}"


def _similar_path_advice(path: str) -> str:
    if scheme := re.search(r"/(s3a?|gs|gcs|abfss?|az|hdfs|https?|file):/", path):
        return f". Write {scheme[1]}://, with two slashes, to read from there"
    with contextlib.suppress(OSError):
        return similar_name_advice(posixpath.basename(path), os.listdir(posixpath.dirname(path)))  # noqa: PTH208
    return ""


def _nothing_found(location: Location, all_entries: Sequence[_Found], *, unfinished: bool) -> str:
    if unfinished:
        return (
            f"{location.url} has only files of a write that has not ended or was interrupted. "
            'Write the dataset again with mode="overwrite"'
        )
    if not all_entries:
        return f"{location.url} must have at least one Parquet file, got an empty directory. Correct the URL"
    shown = ", ".join(sorted(one.path for one in all_entries)[:_SHOWN]) + (", …" if len(all_entries) > _SHOWN else "")
    return f"{location.url} must have at least one Parquet file, got only {shown}. Correct the URL"
