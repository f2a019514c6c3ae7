"""Which of the files in a dataset's directory are its data files, and which are marks of writes that have not ended.

Parquet is known by its first and last bytes, which `petastore.storage.footers.footers` looks at, and never by its name.
So everything is a data file but what one rule leaves out, at every level: names that begin with `.` or `_` (but
`_key=value` is a partition), names that end in `.crc`, files without bytes, and the files of a `write_dataset` that has
not ended. What somebody names is taken whatever it is called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from pyarrow import fs

from petastore.errors import DatasetNotFoundError, MetadataError, StorageError
from petastore.storage.files.fsspec_listings import forget_listings
from petastore.storage.files.location import Location
from petastore.storage.files.walk import Enter, Entry, Tree, entry_at, local_path, trees_at, walk
from petastore.storage.requests.failures import answered

__all__ = [
    "etags_around",
    "files_below",
    "files_beside",
    "is_called_parquet",
    "is_hidden",
    "list_data_files",
    "list_etags",
    "unfinished_writes",
    "writing_marker",
]

_MARKER = re.compile(r"(?:.*/)?_petastore/writing-([0-9a-f]{32})")
_SUFFIXES = (".parquet", ".parq", ".pqt", ".pq")
_SHOWN = 5


def writing_marker(token: str) -> str:
    """Path of the file that says: files with this token in their names belong to a write that has not ended.

    Args:
        token: 32 hexadecimal digits.
    """
    return f"_petastore/writing-{token}"


def unfinished_writes(location: Location) -> set[str]:
    """Tokens of writes that have not ended, or were killed."""
    selector = fs.FileSelector(location.join("_petastore"), allow_not_found=True)
    markers = answered(location, lambda: location.filesystem.get_file_info(selector), "list the directory _petastore")
    return {match[1] for info in markers if (match := _MARKER.fullmatch(f"_petastore/{info.base_name}"))}


def is_hidden(path: str) -> bool:
    """Whether a file is left out for its names alone, given its path relative to what is read.

    Example:
        >>> [is_hidden(path) for path in ("a/_b/c.parquet", "_key=1/c", "a/.b.crc", "a/b.crc", "a/README")]
        [True, False, True, True, False]
    """
    return path.endswith(".crc") or _has_hidden_part(path)


def is_called_parquet(path: str) -> bool:
    """Whether a file says by its name that it is Parquet; many that are do not.

    Example:
        >>> [is_called_parquet(path) for path in ("a.parquet", "A.PQ", "part-00001", "a.parquet.gz", "a.csv")]
        [True, True, False, False, False]
    """
    return path.lower().endswith(_SUFFIXES)


def _has_hidden_part(path: str) -> bool:
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.split("/"))


def list_data_files(location: Location) -> list[str]:
    """Paths of the data files, relative to the root and sorted; whether they are Parquet is for the footers to say.

    Left out are, at every level, names that begin with `_` or `.` (but `_key=value` is a partition), names that end in
    `.crc`, files without bytes, and files of a `write_dataset` that has not ended. Where `location.paths` names files
    or directories, only those are listed; a file that is named, and was not found by a pattern, is taken whatever it is
    called.

    On local file systems links are followed, but for those that lead back to a directory around what is listed, or to
    a directory or file that is listed anyway.

    Raises:
        DatasetNotFoundError: Nothing is there, or nothing that is a data file.
        MetadataError: A file that was named has no bytes.
        InvalidArgumentError: A folder is in a Delta, Iceberg or Hudi table.
        StorageError: The storage refused; or among the data files is something that is no file, such as a link that
            leads nowhere. It is not opened.
    """
    return list(list_etags(location))


def list_etags(location: Location) -> dict[str, tuple[int | None, str]]:
    """The same paths, and what the listing says of the version of each: bytes, and the etag, or "" for none.

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
                f"{location.url}: {one.path} has no bytes, so it is no Parquet; write it again, or leave it out"
            )
    if not written:
        raise DatasetNotFoundError(_nothing_found(location, all_entries, unfinished=unfinished))
    return {one.path: (one.entry.size, one.entry.etag) for one in sorted(written, key=lambda one: one.path)}


def files_beside(location: Location, listed: Collection[str]) -> list[str]:
    """What would be data files, if `listed` did not say which are; sorted, and nothing where nothing is.

    Raises:
        StorageError: The storage refused; or what is listed is no file. It is not opened.
    """
    return [path for path in etags_around(location, listed) if path not in listed]


def etags_around(location: Location, listed: Collection[str]) -> dict[str, tuple[int | None, str]]:
    """Those of `listed` that are there, and what would be data files beside them, as `list_etags` tells of files.

    Sorted; nothing where nothing is.

    Raises:
        StorageError: As `files_beside`.
    """
    try:
        _, written, _ = _looked_through(location)
    except DatasetNotFoundError:
        return {}
    _refuse_odd(location, [one for one in written if one.path in listed and not one.entry.is_file])
    files = sorted((one for one in written if one.entry.is_file), key=lambda one: one.path)
    return {one.path: (one.entry.size, one.entry.etag) for one in files}


def _looked_through(location: Location) -> tuple[list[_Found], list[_Found], bool]:
    """All that is there, what of it belongs to the data, and whether files of unfinished writes do not."""
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
    """Without links to files that are listed under their own names; two links to one file elsewhere both stay."""
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
        from petastore.storage.files.lake_tables import reject_lake_tables_among  # datasets with a manifest do without

        reject_lake_tables_among(location, marked, data)


def _reject_lake_tables_above(location: Location, data: Sequence[_Found]) -> None:
    """Reject what is inside a lake table; not files that the caller named: the table's own API may have listed them."""
    from petastore.storage.files.lake_tables import reject_lake_tables_above  # datasets with a manifest do without

    listed = {one.start for one in data if one.below}
    matched = {posixpath.dirname(one.path) for one in data if not one.below}
    reject_lake_tables_above(location, *([_home(location, path) for path in paths] for paths in (listed, matched)))


def _home(location: Location, start: str) -> str:
    return location.join(start) if start else location.root


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """Something that lies in the dataset's directory."""

    path: str
    """Path relative to the root."""

    below: str
    """Path relative to the directory that is read whole; empty where it was named, or found by a pattern."""

    entry: Entry
    """What it is."""

    is_named: bool = False
    """Whether somebody named it."""

    @property
    def start(self) -> str:
        """Path of the directory that is read whole, relative to the root."""
        return self.path.removesuffix(self.below).rstrip("/")

    @property
    def is_left_out(self) -> bool:
        """Whether it is no data file, unless it was named."""
        return self.entry.size == 0 or self.path.endswith(".crc") or is_hidden(self.below)


def _is_entered(directory: str) -> bool:
    above, _, name = directory.rpartition("/")
    return not _has_hidden_part(above if name == "_petastore" else directory)


def files_below(location: Location) -> list[str]:
    """Each file below the root, hidden ones too, or those that `location.paths` names.

    Raises:
        DatasetNotFoundError: Nothing is at the root, or at one of the paths.
        StorageError: The storage refused.
    """
    return [path for path, one in _found(location, lambda _: True).items() if one.entry.is_file]


def _found(location: Location, enter: Enter) -> dict[str, _Found]:
    """All that is there, directories too, by its path relative to the root."""
    handler = getattr(location.filesystem, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        forget_listings(handler.fs)
    starts = ("",) if location.paths is None else location.paths
    homes = [_home(location, start) for start in starts]
    trees = functools.cache(lambda: trees_at(location.filesystem, homes))
    by_path: dict[str, _Found] = {}
    for start, home in zip(starts, homes, strict=True):
        look = functools.partial(_all_found_at, location, start, home, enter, trees)
        for one in answered(location, look, f"list {start or 'the directory'}"):
            if one.path not in by_path or one.is_named:
                by_path[one.path] = one
    return by_path


def _all_found_at(
    location: Location, start: str, home: str, enter: Enter, trees: Callable[[], Sequence[Tree]]
) -> list[_Found]:
    return list(_found_at(location, start, home, enter, trees))


def _found_at(
    location: Location, start: str, home: str, enter: Enter, trees: Callable[[], Sequence[Tree]]
) -> Iterator[_Found]:
    # A dataset's own directory was found to be one when it was opened: nobody asks again, unless nothing is there.
    at = entry_at(location.filesystem, home) if start else None
    if at is not None and not at.is_directory:
        yield _Found(start, "", at, start not in location.matched)
        return
    is_empty = True
    for entry in walk(location.filesystem, home, enter=enter, trees=trees):
        is_empty = False
        yield _Found(f"{start}/{entry.path}" if start else entry.path, entry.path, entry)
    if is_empty and (at or entry_at(location.filesystem, home)) is None:
        raise DatasetNotFoundError(f"{location.url}: {_nothing_there(location, start)}")


def _refuse_odd(location: Location, odd: Sequence[_Found]) -> None:
    if odd:
        shown = ", ".join(
            f"{one.path or 'it'} is {one.entry.oddity}" for one in sorted(odd, key=lambda one: one.path)[:_SHOWN]
        )
        raise StorageError(
            f"{location.url} holds {len(odd):,} thing(s) among its data files that cannot be read: {shown}"
            f"{', …' if len(odd) > _SHOWN else ''}. Delete them, or give them names that begin with _"
        )


def _nothing_there(location: Location, start: str) -> str:
    with contextlib.suppress(StorageError):
        bucket = location.missing_bucket
        if bucket is not None:
            return f"there is no bucket {bucket!r}, or none that these credentials may see"
    return f"there is nothing at {start or 'that path'}"


def _nothing_found(location: Location, all_entries: Sequence[_Found], *, unfinished: bool) -> str:
    if unfinished:
        return (
            f"{location.url} holds only files of a write that has not ended or was interrupted; "
            'write it again with mode="overwrite"'
        )
    if not all_entries:
        return f"{location.url} is an empty directory; there is no Parquet file in it"
    shown = ", ".join(sorted(one.path for one in all_entries)[:_SHOWN]) + (", …" if len(all_entries) > _SHOWN else "")
    return f"{location.url} has no Parquet file in it; found only {shown}"
