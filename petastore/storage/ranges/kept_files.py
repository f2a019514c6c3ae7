"""What is kept of the files of a dataset from pass to pass: which version of each is read, and where its bytes are."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import DataFile, Inventory
from petastore.once import once
from petastore.storage.files.clouds import server_of
from petastore.storage.files.location import Location
from petastore.storage.ranges.asking.tally import Tally
from petastore.storage.requests.shown import shown_url, without_query

if TYPE_CHECKING:
    from petastore.cache import Announcement, DiskCache, Key
    from petastore.storage.ranges.kept_chunks import KeptChunks
    from petastore.storage.requests.client import FileVersion

__all__ = [
    "KeptFiles",
    "announced_keys",
    "cache_for",
    "footer_key",
    "keys_of",
    "words_of",
]

_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclasses.dataclass(frozen=True, eq=False)
class KeptFiles:
    """What is kept of the files of a dataset as long as it is open. Thread-safe, and pickles."""

    cache: DiskCache | None = None
    """Keeps column chunks on the local disk; None keeps none."""

    versions: dict[DataFile, FileVersion] = dataclasses.field(default_factory=dict, repr=False)
    """Of files that were asked for: the version that has the footer by which it is read."""

    asked: Tally = dataclasses.field(default_factory=Tally, repr=False)
    """What was asked of the storage for ranges of them, in this process."""

    def announce(
        self, location: Location, inventory: Inventory, columns: Sequence[str], groups: NDArray[np.int64]
    ) -> Announcement | None:
        """Tells all who share the cache which row groups are going to be loaded, in order; None where nothing is kept.

        Args:
            location: Where the dataset lies.
            inventory: What exists.
            columns: Stored columns that are read of them, by their top-level names.
            groups: Numbers of row groups, or -1 where one of another dataset is loaded; shape (loads,).
        """
        if self.cache is None:
            return None
        is_loaded = np.zeros(inventory.num_row_groups, np.bool_)
        is_loaded[groups[groups >= 0]] = True
        own = np.flatnonzero(is_loaded)
        words = words_of(location, inventory.files, inventory.file[own], inventory.ordinal[own], columns)
        return self.cache.announce(words, np.where(groups >= 0, np.searchsorted(own, groups), -1))

    @once
    def footers(self) -> DiskCache | None:
        """Keeps footers in the same cache, and counts them by themselves."""
        return None if self.cache is None else self.cache.counting_apart()

    def close(self) -> None:
        """Gives open files of the cache back; it opens them again when it is used again."""
        if self.cache is not None:
            self.cache.close()


def cache_for(location: Location, folder: str | os.PathLike[str] | None, limit: int | None) -> DiskCache | None:
    """Where what is read of a dataset's files is kept; None where nothing is, since they are local.

    Args:
        location: Where the dataset lies.
        folder: A local directory; None for the user's cache directory.
        limit: Bytes that the cache may have there; None is what was asked last, or else a quarter of the free disk.

    Raises:
        InvalidArgumentError: Folder or limit cannot be.
    """
    from petastore.cache import DiskCache

    return None if location.is_local else DiskCache(folder, limit=limit)


def keys_of(location: Location, file: DataFile, version: FileVersion, kept: Sequence[KeptChunks]) -> list[str] | None:
    """Under which keys a cache has chunks of a file; None where nothing tells this version of it from another.

    Whoever may read the file by other credentials, or by a signed URL, finds the same.

    Args:
        location: Where the dataset lies.
        file: The file.
        version: Which of its versions.
        kept: The chunks.
    """
    told = version.strong_etag or f"{version.etag}, {version.modified}".strip(", ")
    if not told:
        return None
    of_file = (server_of(location.filesystem), _path(location, file.path), version.size, told, file.digest)
    begin = repr(of_file)[:-1]
    places = (", ".join(f"{place.offset!r}, {place.length!r}" for place in one.ranges) for one in kept)
    return [f"{begin}, {place}){one.form}" for place, one in zip(places, kept, strict=True)]


def footer_key(location: Location, path: str, version: FileVersion) -> str | None:
    """Under which key a cache has the footer of a file; None where no etag tells this version from another.

    Args:
        location: Where the dataset lies.
        path: The file, relative to the root.
        version: Which of its versions; an etag is taken with and without quotes.
    """
    etag = version.strong_etag.strip('"')
    return repr(("footer", server_of(location.filesystem), _path(location, path), version.size, etag)) if etag else None


def announced_keys(
    location: Location, file: DataFile, names: Sequence[str], kept: Sequence[KeptChunks], ordinal: int
) -> list[Key]:
    """The keys of column chunks, with the words by which announcements know them: of several, that of the first.

    Args:
        location: Where the dataset lies.
        file: The file.
        names: What `keys_of` says of the chunks.
        kept: The chunks.
        ordinal: The number of their row group in the file.
    """
    from petastore.cache import Key

    columns = [one.columns[0] for one in kept]
    words = words_of(location, [file], np.zeros(1, np.int32), np.array([ordinal]), columns)
    return [Key(*each) for each in zip(words[0].tolist(), names, strict=True)]


def words_of(
    location: Location,
    files: Sequence[DataFile],
    file: NDArray[np.int32],
    ordinal: NDArray[np.integer[Any]],
    columns: Sequence[str],
) -> NDArray[np.uint64]:
    """By which words announcements know the chunks of some row groups, whatever the version that a storage has of them.

    A rewritten file has another footer, and so other words: nobody is taken to want what is old.

    Args:
        location: Where the dataset lies.
        files: Files.
        file: Of each row group: which of them it is in; shape (groups,).
        ordinal: Of each row group: its number in the file; shape (groups,).
        columns: Columns, by their top-level names.

    Returns:
        Shape (groups, columns).
    """
    server, of_files = server_of(location.filesystem), np.zeros(len(files), np.uint64)
    for number in sorted(set(file.tolist())):
        one = files[number]
        of_files[number] = _word(repr((server, _path(location, one.path), one.size, one.digest)))
    of_groups = _mixed(of_files[file] + (ordinal.astype(np.uint64) + np.uint64(1)) * np.uint64(_MIX[0]))
    return _mixed(of_groups[:, None] + np.array([_word(name) for name in columns], np.uint64))


@functools.lru_cache(4096)
def _word(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Words that differ in few bits come to differ in half of them."""
    for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def _path(location: Location, relative: str) -> str:
    return shown_url(without_query(location.join(relative)))
