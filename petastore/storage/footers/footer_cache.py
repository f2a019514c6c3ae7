"""Footer cache: read and parse the footer of each file only once."""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from petastore.errors import DatasetChangedError, MetadataError
from petastore.forks import made_anew_in_children
from petastore.inventory import DataFile, Inventory
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import FileColumns, Footer, FooterParser, check_unchanged, is_unchanged
from petastore.storage.footers.footers import BLOCK_BYTES, Block, FootersBeside
from petastore.storage.footers.tails import (
    KeptTails,
    LocalVersion,
    Tail,
    Tails,
    each_of_files,
    expected_bytes,
    fetched_tail,
    footer_in,
)
from petastore.storage.ranges.pinned_files import PinnedFiles
from petastore.storage.requests.retries import SingleFlight, read_right
from petastore.storage.stores.interface import FileVersion

__all__ = ["FooterCache"]


_Key = tuple[str, str, str, int, str]
_Found = TypeVar("_Found")

_TIMES_IN_MEMORY = 10
"""Ratio of a footer's size in memory to its size in the file (measured: 9.2)."""


def _key(location: Location, file: DataFile) -> _Key:
    return location.url, location.root, file.path, file.size, file.digest


class FooterCache:
    """Thread-safe cache of parsed footers by file, shared by reads of all row groups.

    No lock is held while reading, and concurrent requests for one footer share one read. Least recently used footers
    are evicted when the stored sizes exceed `max_bytes`. The cache is empty in a forked child and after unpickling.

    Args:
        max_bytes: Maximum stored bytes of cached footers; the last requested footer is always cached, even if it is
            larger.
        inventory: Inventory with which each footer is compared when it is read.
        beside: Positions of packed footers, from the manifest.
        longest: Bytes of the longest footer so far, from which the size of the first request for a remote footer is
            estimated.
        unified: `pyarrow.Schema` to which all files are cast, if their schemas differ; None keeps the types of each
            file.
    """

    def __init__(
        self,
        max_bytes: int = 128 * 1024 * 1024,
        inventory: Inventory | None = None,
        beside: FootersBeside | None = None,
        longest: int = 0,
        unified: Any = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._inventory = inventory
        self._beside = beside
        self._longest = longest
        self._unified = unified
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Clear the cache in a forked child.

        Threads that were reading footers do not exist in the child.
        """
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[_Key, Footer] = collections.OrderedDict()
        self._being_read: SingleFlight[_Key, Footer] = SingleFlight()
        self._blocks: collections.OrderedDict[int, bytes] = collections.OrderedDict()
        self._blocks_being_read: SingleFlight[int, bytes] = SingleFlight()
        self._parser = FooterParser(self._unified)

    def get(
        self,
        location: Location,
        file: DataFile,
        pinned: PinnedFiles | None = None,
        *,
        local_tail: Callable[[Location, DataFile], Tail] | None = None,
    ) -> Footer:
        """Return the footer of a file, which must match the inventory.

        Args:
            location: Location of the dataset.
            file: File of the dataset.
            pinned: Range fetcher of the dataset's files; None creates one.
            local_tail: Function that reads the end of a local file; None opens the file only for the footer.

        Raises:
            DatasetChangedError: The file has another size or digest.
            StorageError: The file is missing or cannot be read.
            MetadataError: The footer is damaged, or its row groups differ from the inventory.
        """
        key = _key(location, file)
        footer = self._last_used(key)
        # A cached footer was compared with the inventory when it was read, so only the file's version is compared now.
        if footer is not None and (local_tail is not None or _is_current(location, footer)):
            return footer
        read = functools.partial(self._read, key, footer, location, file, pinned, local_tail)
        footer = self._being_read.result(key, read)
        check_unchanged(footer.file, file)
        return footer

    def limit_memory(self, max_bytes: int) -> None:
        """Limit the memory of cached footers; the last requested footer always stays."""
        with self._lock:
            self._max_bytes = min(self._max_bytes, max_bytes // _TIMES_IN_MEMORY)
            self._evict()

    def know(self, location: Location, footers: Iterable[Footer]) -> None:
        """Add footers that were read elsewhere to the cache, within its limit.

        Only footers with a known file version are added, because later reads require this version.
        """
        room = self._max_bytes
        for footer in self._cast(footers):
            room -= len(footer.encoded)
            if room < 0:
                return
            if footer.version is not None or footer.local is not None:
                with self._lock:
                    self._keep(_key(location, footer.file), footer)

    def _cast(self, footers: Iterable[Footer]) -> Iterator[Footer]:
        """Yield the footers, with casts to the common schema of all files if there is one."""
        known: dict[int, FileColumns] = {}  # files with the same columns share one value
        for footer in footers:
            if self._unified is None:
                yield footer
                continue
            if id(footer.columns) not in known:
                known[id(footer.columns)] = footer.columns.unified(self._unified)
            yield footer.unified(known[id(footer.columns)])

    def kept(self, location: Location, file: DataFile) -> Footer | None:
        """Return the cached footer of a file, or None."""
        return self._kept.get(_key(location, file))

    def found(self, location: Location, file: DataFile, whole: bytes, version: FileVersion | None = None) -> Footer:
        """Return the checked footer of a file whose bytes are all in memory.

        Args:
            location: Location of the dataset.
            file: File of the dataset.
            whole: All bytes of the file.
            version: Version of the bytes, or None.

        Raises:
            DatasetChangedError: The file has another size or digest.
            MetadataError: The file is not Parquet, or its footer is damaged.
        """
        key = _key(location, file)
        encoded = _encoded_in(whole, file)
        footer = self._last_used(key)
        if footer is None or footer.encoded != encoded:
            footer = self._checked(location, file, Tail(len(whole), encoded, version))
            check_unchanged(footer.file, file)
            with self._lock:
                self._keep(key, footer)
        return footer

    def _last_used(self, key: _Key) -> Footer | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _checked(self, location: Location, file: DataFile, tail: Tail) -> Footer:
        """Parse a newly read footer, compare it with the inventory, and return it."""
        footer = self._parser.parse(file.path, tail, file.etag)
        if self._inventory is not None:
            check_unchanged(footer.file, file)
            check_row_groups(footer, self._inventory, location.url)
        return footer

    def _keep(self, key: _Key, footer: Footer) -> None:
        """Add a footer to the cache. The caller must hold the lock."""
        replaced = self._kept.pop(key, None)
        self._kept[key] = footer
        self._longest = max(self._longest, len(footer.encoded))
        self._bytes += len(footer.encoded) - (0 if replaced is None else len(replaced.encoded))
        self._evict()

    def _evict(self) -> None:
        """Evict least recently used footers down to the limit. The caller holds the lock."""
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1].encoded)

    def _read(
        self,
        key: _Key,
        stale: Footer | None,
        location: Location,
        file: DataFile,
        pinned: PinnedFiles | None,
        local_tail: Callable[[Location, DataFile], Tail] | None,
    ) -> Footer:
        latest = self._kept.get(key)
        if latest is not None and latest is not stale:
            return latest  # another thread has read the footer in the meantime
        if location.is_local and local_tail is not None:
            footer = self._checked(location, file, local_tail(location, file))
        else:
            footer = self._read_right(location, file, pinned)
        if is_unchanged(footer.file, file):
            with self._lock:
                self._keep(key, footer)
        return footer

    def _read_right(self, location: Location, file: DataFile, pinned: PinnedFiles | None) -> Footer:
        """Read a file's footer and compare it with the inventory.

        The digest of a damaged footer differs from the inventory, as if the file had changed. Therefore the footer is
        fetched a second time before an error is raised.
        """

        def read() -> Footer:
            return self._checked(location, file, self._tail(location, file, pinned))

        def again() -> Footer:
            footer = read()
            if pinned is not None:
                pinned.fetcher.note_damaged()
            return footer

        def forget() -> None:
            kept = _kept_tails(location, file, pinned)
            if kept is not None:
                kept.forget(file.path)

        asked_again = None if location.is_local else again
        return read_right(read, asked_again, refused=(MetadataError, DatasetChangedError), forget=forget)

    def _tail(self, location: Location, file: DataFile, pinned: PinnedFiles | None) -> Tail:
        """Return the tail of a file: its footer, size and version.

        The footer is from the packed footers if the manifest's etag of the file is trusted, otherwise from the file.
        """
        footer = None
        if not location.is_local and file.etag and (pinned is None or pinned.trusts_etag(file)):
            footer = self._found_beside(location, file, pinned)
        if footer is not None:
            return Tail(file.size, footer)
        if pinned is None:
            with Tails(location) as tails:
                return tails.read(file.path)
        length = (self._beside and self._beside.length_of(file)) or expected_bytes(self._longest)
        fetch = functools.partial(fetched_tail, pinned.fetcher, file.path, length)
        kept = _kept_tails(location, file, pinned)
        if kept is None:
            tail = fetch()
            if tail.version is not None:
                pinned.compare_etag(file, tail.version)
            return tail
        tail = kept.tail(file.path, fetch)
        # Drop a version that only comes from the listing, because it may be wrong.
        is_as_told = tail.version is not None and tail.version.is_same(kept.told[file.path])
        return tail._replace(version=None) if is_as_told else tail

    def _found_beside(self, location: Location, file: DataFile, pinned: PinnedFiles | None) -> bytes | None:
        beside = self._beside
        block = None if beside is None else beside.block_of(file)
        if beside is None or block is None:
            return None
        cache = None if pinned is None else pinned.cache
        footer = beside.footer_in(self._block(beside, location, block, pinned), block, file)
        if footer is None and cache is not None:
            cache.discard([beside.key_of(block)])  # the cached block may be from before a commit: fetch it next time
        return footer

    def _block(self, beside: FootersBeside, location: Location, block: Block, pinned: PinnedFiles | None) -> bytes:
        """Return a decompressed block of packed footers, from memory or storage.

        If several threads need the same block, the first one fetches it. Recently used blocks stay in memory.
        """

        def fetched() -> bytes:
            data = self._blocks.get(block.first)
            if data is None:
                data = beside.fetched(location, block, None if pinned is None else pinned.cache)
            with self._lock:
                self._blocks[block.first] = data
                self._blocks.move_to_end(block.first)
                if len(self._blocks) > max(self._max_bytes // BLOCK_BYTES, 1):
                    self._blocks.popitem(last=False)
            return data

        return self._blocks_being_read.result(block.first, fetched)

    def check(self, location: Location, files: Sequence[DataFile]) -> None:
        """Read the footers of some files concurrently, to compare them with the inventory.

        Raises:
            StorageError: As in `get`, for the first failing file.
        """
        each_of_files(location, functools.partial(self.get, location), files)

    def __len__(self) -> int:
        return len(self._kept)

    def look_through(
        self,
        location: Location,
        inventory: Inventory,
        files: Sequence[int],
        look: Callable[[Footer, NDArray[np.int32]], _Found],
    ) -> Iterator[tuple[slice, _Found]]:
        """Apply a function to the footers of some files, read with up to 16 threads.

        Args:
            location: Location of the dataset.
            inventory: Inventory of the dataset.
            files: Numbers of the files.
            look: Function that takes a footer and the numbers of the selected row groups in its file, shape (row
                groups,).

        Yields:
            For each file, the slice of its row groups in the inventory, and the result of `look`.

        Raises:
            DatasetChangedError: A file differs from the inventory.
            MetadataError: A footer is damaged.
            StorageError: A file cannot be read.
        """
        # The inventory is sorted by file, so the row groups of a file are one slice.
        borders = np.searchsorted(inventory.file, np.add.outer(np.asarray(files, dtype=np.int64), [0, 1]))
        own = [slice(*pair) for pair in borders.tolist()]

        def of_file(place: int) -> _Found:
            footer, ordinals = self.get(location, inventory.files[files[place]]), inventory.ordinal[own[place]]
            if ordinals.max(initial=-1) >= len(footer.rows):
                raise DatasetChangedError(
                    f"{footer.file.path} must have at least {ordinals.max() + 1:,} row groups, as the dataset's "
                    f"inventory lists, got {len(footer.rows):,}. Open the dataset again"
                )
            return look(footer, ordinals)

        yield from zip(own, each_of_files(location, of_file, range(len(files))), strict=True)

    def holding_against(self, inventory: Inventory, unified: Any = None) -> FooterCache:
        """Return a cache that compares footers with this inventory and schema.

        This is the cache itself if it already has this inventory and schema, otherwise a new cache.

        Args:
            inventory: Inventory of the dataset.
            unified: `pyarrow.Schema` to which all files are cast; None keeps the types of each file.
        """
        if self._inventory is inventory and self._unified is unified:
            return self
        cache = FooterCache(self._max_bytes, inventory, self._beside, self._longest, unified)
        if self._inventory is inventory:
            kept = dict(self._kept)
            for key, footer in zip(kept, cache._cast(kept.values()), strict=True):
                cache._keep(key, footer)
        return cache

    def __reduce__(self) -> tuple[Any, ...]:
        return FooterCache, (self._max_bytes, self._inventory, self._beside, self._longest, self._unified)

    def emptied(self) -> FooterCache:
        """Return an empty cache with the same settings and its own locks."""
        return FooterCache(self._max_bytes, self._inventory, self._beside, self._longest, self._unified)


def _is_current(location: Location, footer: Footer) -> bool:
    """Return whether a local file still has the version of its cached footer.

    True for a remote file, because its later requests check the version.
    """
    try:
        return footer.local is None or LocalVersion.of(location.join(footer.file.path)) == footer.local
    except OSError:
        return False


def _kept_tails(location: Location, file: DataFile, pinned: PinnedFiles | None) -> KeptTails | None:
    """Return the disk cache for the tail (footer, size, version) of a file.

    Return None without a disk cache, or if the manifest's etag of the file is missing or not trusted.
    """
    if pinned is None or not pinned.trusts_etag(file) or pinned.footers is None:
        return None
    return KeptTails(pinned.footers, location, {file.path: FileVersion(file.size, file.etag)})


def check_row_groups(footer: Footer, inventory: Inventory, url: str) -> None:
    """Raise an error if the row groups of a file differ from the inventory.

    Files that the inventory does not list are not compared.

    Raises:
        MetadataError: The number of row groups, or the rows of one of them, differ.
    """
    said, in_footer, path = inventory.rows_of(footer.file.path), footer.rows, footer.file.path
    if said is None or said.tolist() == in_footer:
        return
    again = "`petastore generate-metadata` rebuilds the inventory from the files"
    if len(said) != len(in_footer):
        raise MetadataError(
            f"{url}: the inventory is damaged: it lists {len(said):,} row groups in {path}, but the file's footer has "
            f"{len(in_footer):,}; {again}"
        )
    group = int(np.flatnonzero(said != np.array(in_footer))[0])
    raise MetadataError(
        f"{url}: the inventory is damaged: it lists {said[group]:,} rows in row group {group:,} of {path}, but the "
        f"file's footer has {in_footer[group]:,}; {again}"
    )


def _encoded_in(whole: bytes, file: DataFile) -> bytes:
    """Return the footer bytes of a file, given all bytes of the file."""
    if len(whole) != file.size:
        check_unchanged(DataFile(file.path, len(whole)), file)
    return footer_in(whole, len(whole), file.path) or b""
