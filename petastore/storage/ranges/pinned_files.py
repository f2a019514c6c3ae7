"""Pinned files: read all byte ranges of a file from one version of the file.

This is the version whose footer was read. Fetched ranges are cached on disk.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.byte_sizes import ByteSize
from petastore.errors import DatasetChangedError
from petastore.inventory import DataFile, Inventory
from petastore.lazy import once
from petastore.storage.files.location import Location
from petastore.storage.ranges.fetch import END_BYTES, ByteRange, FetchedRanges, RangeFetcher, RowGroupChunks
from petastore.storage.ranges.request_counts import RequestCounter
from petastore.storage.requests.failures import shown_url, without_query
from petastore.storage.requests.retries import SingleFlight
from petastore.storage.stores.interface import FileVersion

if TYPE_CHECKING:
    from petastore.cache import Announcement, DiskCache, Key

__all__ = ["KeptFiles", "PinnedFiles", "cache_for", "footer_key", "keys_of"]


_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclasses.dataclass(frozen=True, eq=False)
class KeptFiles:
    """File versions and column chunk cache of an open dataset.

    Thread-safe and picklable.
    """

    cache: DiskCache | None = None
    """Disk cache of column chunks; None caches none."""

    versions: dict[DataFile, FileVersion] = dataclasses.field(default_factory=dict, repr=False)
    """Dict from file to the version whose footer was read; all reads require it."""

    asked: RequestCounter = dataclasses.field(default_factory=RequestCounter, repr=False)
    """Counter of range requests in this process."""

    def announce(
        self, location: Location, inventory: Inventory, columns: Sequence[str], groups: NDArray[np.int64]
    ) -> Announcement | None:
        """Announce to the disk cache which row groups will be loaded, and in which order.

        All processes that share the cache consider the announcement when they evict entries. Return None without a
        cache.

        Args:
            location: Location of the dataset.
            inventory: Inventory of the dataset.
            columns: Top-level names of the stored columns that are read.
            groups: Numbers of row groups in the order in which they will be loaded; -1 for row groups of other
                datasets; shape (loads,).
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
        """Disk cache of footers; None without a cache.

        It is in the directory of `cache`, but has separate metrics.
        """
        return None if self.cache is None else self.cache.counting_apart()

    def close(self) -> None:
        """Close the open files of the cache; its next use reopens them."""
        if self.cache is not None:
            self.cache.close()


def cache_for(location: Location, folder: str | os.PathLike[str] | None, limit: ByteSize | None) -> DiskCache | None:
    """Return the disk cache for the remote files of a dataset; None for local files.

    Args:
        location: Location of the dataset.
        folder: Local directory of the cache; None means the user's cache directory.
        limit: Maximum bytes of the cache; None means the limit set last, or else a quarter of the free disk space.

    Raises:
        InvalidArgumentError: `folder` or `limit` is invalid.
    """
    from petastore.cache import DiskCache

    return None if location.is_local else DiskCache(folder, limit=limit)


def keys_of(location: Location, file: DataFile, version: FileVersion, ranges: Sequence[ByteRange]) -> list[str] | None:
    """Return the disk cache keys of a file's byte ranges, in the order of the ranges.

    Return None if the version has neither an etag nor a modification time. Keys do not depend on credentials or on the
    signature of a URL.

    Args:
        location: Location of the dataset.
        file: File of the dataset.
        version: Version of the file.
        ranges: Byte ranges.
    """
    told = version.strong_etag or f"{version.etag}, {version.modified}".strip(", ")
    if not told:
        return None
    of_file = (location.store.server, _path(location, file.path), version.size, told, file.digest)
    return [repr((*of_file, *one)) for one in ranges]


def footer_key(location: Location, path: str, version: FileVersion) -> str | None:
    """Return the disk cache key of a file's footer; None without a strong etag.

    Args:
        location: Location of the dataset.
        path: The file, relative to the root.
        version: Version of the file; quotes around its etag make no difference.
    """
    etag = version.strong_etag.strip('"')
    return repr(("footer", location.store.server, _path(location, path), version.size, etag)) if etag else None


def announced_keys(
    location: Location, file: DataFile, names: Sequence[str], columns: Sequence[str], ordinal: int
) -> list[Key]:
    """Return the disk cache keys of column chunks, with hashes for announcements.

    Readers announce future reads by 64-bit hashes (`words_of`), which are known before the complete keys.

    Args:
        location: Location of the dataset.
        file: File of the dataset.
        names: Keys of the chunks, from `keys_of`.
        columns: Column of each chunk.
        ordinal: Number of their row group in the file.
    """
    from petastore.cache import Key

    words = words_of(location, [file], np.zeros(1, np.int32), np.array([ordinal]), columns)
    return [Key(*each) for each in zip(words[0].tolist(), names, strict=True)]


def words_of(
    location: Location,
    files: Sequence[DataFile],
    file: NDArray[np.int32],
    ordinal: NDArray[np.integer[Any]],
    columns: Sequence[str],
) -> NDArray[np.uint64]:
    """Return the 64-bit hashes of column chunks for announcements to the disk cache.

    Readers announce future reads by these hashes. A rewritten file has another footer and therefore other hashes, so
    that chunks of the old file are not announced.

    Args:
        location: Location of the dataset.
        files: Files of the dataset.
        file: Index into `files` of each row group, shape (groups,).
        ordinal: Number in the file of each row group, shape (groups,).
        columns: Top-level names of the columns.

    Returns: Hashes, shape (groups, columns).
    """
    server, of_files = location.store.server, np.zeros(len(files), np.uint64)
    for number in sorted(set(file.tolist())):
        one = files[number]
        of_files[number] = _word(repr((server, _path(location, one.path), one.size, one.digest)))
    of_groups = _mixed(of_files[file] + (ordinal.astype(np.uint64) + np.uint64(1)) * np.uint64(_MIX[0]))
    return _mixed(of_groups[:, None] + np.array([_word(name) for name in columns], np.uint64))


@functools.lru_cache(4096)
def _word(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes of 64-bit integers, computed by mixing the bits of each integer."""
    for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def _path(location: Location, relative: str) -> str:
    return shown_url(without_query(location.join(relative)))


Ahead: TypeAlias = Callable[[Sequence[ByteRange]], FetchedRanges | None]
"""Function that takes byte ranges, and returns them if prefetched; otherwise None."""


class PinnedFiles:
    """Fetches byte ranges of files, always from the version whose footer was read.

    Thread-safe. The version is known from reading the footer, or from the etag in the manifest. Otherwise the footer is
    fetched once, with the current version of the file. All later requests require this version. Bytes that are in the
    disk cache are not fetched.

    Args:
        fetcher: Range fetcher; its owner closes it.
        kept: Known versions and disk cache of the files, or None.
    """

    def __init__(self, fetcher: RangeFetcher, kept: KeptFiles | None = None) -> None:
        self.fetcher = fetcher
        self._kept = kept or KeptFiles()
        self._stale_etags: set[DataFile] = set()
        self._has_fresh_etag = False
        self._finding: SingleFlight[DataFile, FileVersion] = SingleFlight()

    def trusts_etag(self, file: DataFile) -> bool:
        """Return whether to try the etag in the manifest as the version of a file.

        In a copied dataset, all etags are out of date, and trying each would cost a request. After one wrong etag,
        etags are therefore not used until the version of another file matches its etag.
        """
        if not file.etag or file in self._stale_etags:
            return False
        return self._has_fresh_etag or not self._stale_etags

    def compare_etag(self, file: DataFile, version: FileVersion) -> None:
        """Trust the etags in the manifest again, if the etag of one file is right.

        Args:
            file: File, with its etag in the manifest.
            version: Version of the file in the storage; its etag is compared with that of `file`.
        """
        if file.etag and version.etag and version.is_same(FileVersion(file.size, file.etag)):
            self._has_fresh_etag = True

    @property
    def cache(self) -> DiskCache | None:
        """Disk cache of column chunks; None without a cache."""
        return self._kept.cache

    @property
    def footers(self) -> DiskCache | None:
        """Disk cache of footers; None without a cache."""
        return self._kept.footers

    def fetch(
        self,
        file: DataFile,
        footer: bytes,
        asked: Iterable[ByteRange],
        chunks: RowGroupChunks | None = None,
        seen: FileVersion | None = None,
        *,
        ahead: Ahead | None = None,
        by_cache: bool = True,
    ) -> FetchedRanges:
        """Fetch byte ranges of a file, from the version whose footer was read.

        Ranges in the disk cache are not fetched; fetched ranges are stored there.

        Args:
            file: File of the dataset.
            footer: Footer of the file.
            asked: Ranges to fetch.
            chunks: Column chunks of the row group, if the ranges are whole chunks of it; the cache then knows when the
                chunks will be used next. None if the ranges are not whole chunks.
            seen: Version of the file from which the footer was read, if known.
            ahead: Function that returns prefetched ranges; called for the ranges that are not in the cache. None
                without prefetching.
            by_cache: Whether to read from and write to the cache.

        Raises:
            DatasetChangedError: The file has another footer, or was rewritten.
            StorageError: The file cannot be read.
        """
        ranges = sorted(set(asked))

        def of(version: FileVersion) -> FetchedRanges:
            cache = self._kept.cache if by_cache else None
            keys = None if cache is None else self._keys(file, version, ranges, chunks)
            if cache is None or keys is None:
                return self.fetcher.fetch(file.path, version, ranges)
            return self._through(cache, keys, file, version, ranges, ahead)

        told = self.as_told(file, of, seen)
        if told is not None:
            return told
        return of(self._finding.result(file, lambda: self.settled(file, self._found(file, footer))))

    def whole(self, file: DataFile, seen: FileVersion | None = None) -> FetchedRanges:
        """Fetch all bytes of a file, of its known version or else of its current version.

        `seen` is the version of the file from which its footer was read, if known. Call `settled`
        after you have checked the footer in the returned bytes.

        Raises:
            DatasetChangedError: The file was rewritten, or has another size.
            StorageError: The file cannot be read.
        """
        everything = [ByteRange(0, file.size)]

        def of(version: FileVersion) -> FetchedRanges:
            return self.fetcher.fetch(file.path, version, everything)

        told = self.as_told(file, of, seen)
        return self.fetcher.newest(file.path, file.size, *everything) if told is None else told

    def as_told(
        self, file: DataFile, of: Callable[[FileVersion], FetchedRanges], seen: FileVersion | None = None
    ) -> FetchedRanges | None:
        """Fetch bytes of the known version of a file, or of the version in the manifest.

        Return None if no version is known, and the etag in the manifest is missing, not trusted or out of date. The
        manifest's etag is used as long as requests with it succeed. A copied or uploaded file has another etag; its
        footer then decides whether it is the expected file.

        Args:
            file: File of the dataset.
            of: Function that fetches bytes of a version, and raises DatasetChangedError if the file has another
                version.
            seen: Version of the file from which the footer was read, if known.
        """
        version = self._kept.versions.get(file)
        if version is None and seen is not None:
            version = self.settled(file, seen)
        if version is not None:
            return of(version)
        if not self.trusts_etag(file):
            return None
        told = FileVersion(file.size, file.etag)
        try:
            answer = of(told)
        except DatasetChangedError:
            if file in self._kept.versions:
                return of(self._kept.versions[file])  # another thread has found the version in the meantime
            self._stale_etags.add(file)
            return None
        self._has_fresh_etag = True
        version = self.settled(file, told)
        return answer if version.is_same(told) else of(version)

    def settled(self, file: DataFile, version: FileVersion) -> FileVersion:
        """Record the version of a file, and return the recorded version.

        If another thread has already recorded a version, that version stays.
        """
        return self._kept.versions.setdefault(file, version)

    def missing(self, file: DataFile, chunks: RowGroupChunks, seen: FileVersion | None = None) -> list[ByteRange]:
        """Return the column chunks that are not in the disk cache. Makes no request.

        Args:
            file: File of the dataset.
            chunks: Chunks to look up.
            seen: Version of the file from which the footer was read, if known.
        """
        cache, version = self._kept.cache, self._kept.versions.get(file) or seen
        if version is None and self.trusts_etag(file):
            version = FileVersion(file.size, file.etag)
        ranges = list(chunks.columns)
        keys = None if cache is None or version is None else self._keys(file, version, ranges, chunks)
        if cache is None or keys is None:
            return ranges
        return [one for one, key in zip(ranges, keys, strict=True) if not cache.has([key])]

    def _confirm(self, file: DataFile, version: FileVersion) -> None:
        """Request the current version of a file; raise an error if it is not `version`.

        This is needed if all bytes came from the disk cache, and the version only from the manifest.
        """
        now = self.fetcher.version_of(file.path)
        if not now.is_same(version):
            raise DatasetChangedError(
                f"{file.path} was rewritten while it was read: it had {version}, and has {now}. Open the dataset again"
            )

    def _through(
        self,
        cache: DiskCache,
        keys: Sequence[str | Key],
        file: DataFile,
        version: FileVersion,
        ranges: Sequence[ByteRange],
        ahead: Ahead | None,
    ) -> FetchedRanges:
        """Return byte ranges from the disk cache; fetch and cache the missing ones.

        One call fetches all missing ranges.
        """
        was_fetched = False

        def fetch(missing: Sequence[int]) -> list[pa.Buffer]:
            nonlocal was_fetched
            was_fetched = True
            wanted = [ranges[number] for number in missing]
            fetched = None if ahead is None else ahead(wanted)
            if fetched is None or not fetched.version.is_same(version):
                fetched = self.fetcher.fetch(file.path, version, wanted)
            return [fetched.read(*one) for one in wanted]

        with cache.entries(keys, fetch, sizes=[one.length for one in ranges]) as views:
            # The views are used after the block, which is safe because each buffer keeps the memory of its view alive.
            pieces = [(one.offset, pa.py_buffer(view)) for one, view in zip(ranges, views, strict=True)]
        if not was_fetched and file not in self._kept.versions:
            self._confirm(file, version)
        return FetchedRanges(version.size, version, pieces)

    def discard(self, file: DataFile, asked: Iterable[ByteRange], chunks: RowGroupChunks | None = None) -> None:
        """Remove byte ranges from the disk cache, because decoding them failed.

        They may be damaged; the next read fetches them again.
        """
        cache, version = self._kept.cache, self._kept.versions.get(file)
        if cache is not None and version is not None:
            cache.discard(self._keys(file, version, list(asked), chunks) or [])

    def _keys(
        self, file: DataFile, version: FileVersion, ranges: Sequence[ByteRange], chunks: RowGroupChunks | None
    ) -> Sequence[str | Key] | None:
        location = self.fetcher.location
        names = keys_of(location, file, version, ranges)
        if names is None or chunks is None:
            return names
        return announced_keys(location, file, names, [chunks.columns[one] for one in ranges], chunks.ordinal)

    def _found(self, file: DataFile, footer: bytes) -> FileVersion:
        place = ByteRange(file.size - END_BYTES - len(footer), len(footer))
        now = self.fetcher.newest(file.path, file.size, place)
        if now.read(*place).to_pybytes() != footer:
            raise DatasetChangedError(
                f"{file.path} was rewritten since the dataset was listed: it had {FileVersion(file.size, file.etag)} "
                f"and footer {file.digest or '(unknown)'}, and has {now.version} and another footer. Open the dataset "
                "again"
            )
        return now.version
