"""Footers by file, so that each is read and parsed once however many of its row groups are read."""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from petastore.errors import DatasetChangedError, MetadataError
from petastore.forks import made_anew_in_children
from petastore.inventory import DataFile, Inventory
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import Footer, check_unchanged, is_unchanged, parsed_footer
from petastore.storage.footers.footers_beside import Block, FootersBeside
from petastore.storage.footers.tails import (
    MAX_FOOTER_BYTES,
    Tail,
    Tails,
    fetched_tail,
    footer_in,
    read_tail,
)
from petastore.storage.requests.at_once import at_once
from petastore.storage.requests.client import FileVersion
from petastore.storage.requests.damaged import read_right

if TYPE_CHECKING:
    from petastore.storage.footers.kept_tails import KeptTails
    from petastore.storage.ranges.pinned_files import PinnedFiles

__all__ = ["FooterCache"]


_Key = tuple[str, str, str, int, str]
_Found = TypeVar("_Found")


def _key(location: Location, file: DataFile) -> _Key:
    return location.url, location.root, file.path, file.size, file.digest


class FooterCache:
    """Footers by file, so that each is read and parsed once however many of its row groups are read.

    Thread-safe; no lock is held while reading, and threads that ask for one footer at once share one read. The least
    recently used go first when the footers kept have more than `max_bytes` on disk. Empty in a forked child; pickles as
    an empty cache.

    Args:
        max_bytes: Bytes of footers to keep; the one asked for last is kept whatever its size.
        inventory: What is said of the files elsewhere; each footer is held against it when it is read.
        beside: Where footers stand beside the manifest.
    """

    def __init__(
        self,
        max_bytes: int = 128 * 1024 * 1024,
        inventory: Inventory | None = None,
        beside: FootersBeside | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._inventory = inventory
        self._beside = beside
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Is empty: some of the footers were being read by threads that a forked child does not have."""
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[_Key, Footer] = collections.OrderedDict()
        self._being_read: dict[_Key, Future[Footer]] = {}
        self._known: dict[_Key, Footer] = {}
        self._blocks: dict[int, Future[bytes]] = {}

    def get(self, location: Location, file: DataFile, pinned: PinnedFiles | None = None) -> Footer:
        """The footer of a file, which must be the file that the inventory describes.

        Args:
            location: Where the dataset lies.
            file: The file.
            pinned: Fetches ranges of the files there; None is whoever is at hand.

        Raises:
            DatasetChangedError: The file has another size or digest.
            StorageError: The file is missing or cannot be read.
            MetadataError: The footer is damaged, or has other row groups than the inventory says.
        """
        key = _key(location, file)
        mine: Future[Footer] | None = None
        with self._lock:
            footer = self._kept.get(key)
            if footer is not None:
                self._kept.move_to_end(key)
                return footer  # it was compared when it was read
            others = self._being_read.get(key)
            if others is None:
                mine = self._being_read[key] = Future()
        if mine is None:
            assert others is not None  # noqa: S101 - one of the two is there
            footer = others.result()
        else:
            footer = self._read(key, mine, location, file, pinned)
        check_unchanged(footer.file, file)
        return footer

    def know(self, location: Location, footers: Iterable[Footer]) -> None:
        """Remember the footers that the inventory was made of, as far as there is room: they need not be parsed again.

        A file that is asked for is looked at all the same, for it may have been rewritten; but not where its footer was
        found in a version that is demanded of whatever is read of it.
        """
        room = self._max_bytes
        for footer in footers:
            room -= len(footer.encoded)
            if room < 0:
                return
            key = _key(location, footer.file)
            if footer.version is None:
                self._known[key] = footer
            else:
                with self._lock:
                    self._keep(key, footer)

    def kept(self, location: Location, file: DataFile) -> Footer | None:
        """The footer of a file if it is here, without reading it."""
        return self._kept.get(_key(location, file))

    def found(self, location: Location, file: DataFile, whole: bytes, version: FileVersion | None = None) -> Footer:
        """The footer of a file that was read whole, which must be the file that the inventory describes.

        Args:
            location: Where the dataset lies.
            file: The file.
            whole: All its bytes.
            version: Of which version of the file they are, where that was told.

        Raises:
            DatasetChangedError: The file has another size or digest.
            MetadataError: It is no Parquet, or the footer is damaged.
        """
        key = _key(location, file)
        encoded = _encoded_in(whole, file)
        with self._lock:
            footer = self._kept.get(key)
            if footer is not None:
                self._kept.move_to_end(key)
        if footer is None or footer.encoded != encoded:
            footer = self._checked(key, location, file, Tail(len(whole), encoded, version))
            check_unchanged(footer.file, file)
            with self._lock:
                self._keep(key, footer)
        return footer

    def _checked(self, key: _Key, location: Location, file: DataFile, tail: Tail) -> Footer:
        """The footer of a file that was read just now, held against the inventory."""
        known = self._known.pop(key, None)
        if known is not None and known.file.size == tail.size and known.encoded == tail.footer:
            return known  # the inventory was made of it
        footer = parsed_footer(file.path, *tail, etag=file.etag)
        self._hold_against_inventory(footer, file, location.url)
        return footer

    def _hold_against_inventory(self, footer: Footer, file: DataFile, url: str) -> None:
        if self._inventory is not None:
            check_unchanged(footer.file, file)
            check_row_groups(footer, self._inventory, url)

    def _keep(self, key: _Key, footer: Footer) -> None:
        """With the lock."""
        replaced = self._kept.pop(key, None)
        self._kept[key] = footer
        self._bytes += len(footer.encoded) - (0 if replaced is None else len(replaced.encoded))
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1].encoded)

    def _read(
        self, key: _Key, mine: Future[Footer], location: Location, file: DataFile, pinned: PinnedFiles | None
    ) -> Footer:
        try:
            footer = self._read_right(key, location, file, pinned)
        except BaseException as problem:
            with self._lock:
                del self._being_read[key]
            mine.set_exception(problem)
            raise
        with self._lock:
            del self._being_read[key]
            if is_unchanged(footer.file, file):
                self._keep(key, footer)
        mine.set_result(footer)
        return footer

    def _read_right(self, key: _Key, location: Location, file: DataFile, pinned: PinnedFiles | None) -> Footer:
        """The footer of a file, held against the inventory; one that came damaged is asked for once more.

        By the digest that the inventory tells, one that is damaged is taken for that of another file.
        """

        def read() -> Footer:
            return self._checked(key, location, file, self._tail(location, file, pinned))

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
        """The end of a file: from beside the manifest, where its etag is told and goes with what is read; or itself."""
        if location.is_local:
            return Tail(*read_tail(location, file.path))
        footer = None
        if file.etag and (pinned is None or pinned.trusts_etag(file)):
            footer = self._found_beside(location, file, pinned)
        if footer is not None:
            return Tail(file.size, footer)
        if pinned is None:
            with Tails(location) as tails:
                return tails.read(file.path)
        length = 0 if self._beside is None else self._beside.length_of(file)
        fetch = functools.partial(fetched_tail, pinned.fetcher, file.path, length)
        kept = _kept_tails(location, file, pinned)
        if kept is None:
            tail = fetch()
            if tail.version is not None:
                pinned.compare_etag(file, tail.version)
            return tail
        tail = kept.tail(file.path, fetch)
        # What was told is believed as long as it holds, and no longer: whoever reads asks for it.
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
            cache.discard([beside.key_of(block)])  # it may be that somebody commits just now
        return footer

    def _block(self, beside: FootersBeside, location: Location, block: Block, pinned: PinnedFiles | None) -> bytes:
        """Footers that stand together: fetched by the first thread that comes here, and kept."""
        with self._lock:
            others = self._blocks.get(block.first)
            mine = self._blocks.setdefault(block.first, Future()) if others is None else None
        if others is not None:
            return others.result()
        assert mine is not None  # noqa: S101 - one of the two is there
        try:
            data = beside.fetched(location, block, None if pinned is None else pinned.cache)
        except BaseException:
            mine.set_result(b"")
            raise
        mine.set_result(data)
        return data

    def check(self, location: Location, files: Sequence[DataFile]) -> None:
        """Reads the footers of some files, several at once.

        Raises:
            StorageError: As `get`, for the first file in order that fails.
        """
        for _ in at_once(functools.partial(self.get, location), files):
            pass

    def __len__(self) -> int:
        return len(self._kept)

    def look_through(
        self,
        location: Location,
        inventory: Inventory,
        files: Sequence[int],
        look: Callable[[Footer, NDArray[np.int32]], _Found],
    ) -> Iterator[tuple[slice, _Found]]:
        """What is found in the footers of some files, which up to 16 threads look at.

        Args:
            location: Where the dataset lies.
            inventory: What exists.
            files: Numbers of files.
            look: Given a footer, and the numbers in its file of the row groups that are meant, shape (row groups,).

        Yields:
            Of each file: which row groups of the dataset it has, and what was found.

        Raises:
            DatasetChangedError: A file is not the one that the inventory describes.
            MetadataError: A footer is damaged.
            StorageError: A file cannot be read.
        """
        # files ascend
        borders = np.searchsorted(inventory.file, np.add.outer(np.asarray(files, dtype=np.int64), [0, 1]))
        own = [slice(*pair) for pair in borders.tolist()]

        def of_file(place: int) -> _Found:
            footer, ordinals = self.get(location, inventory.files[files[place]]), inventory.ordinal[own[place]]
            if ordinals.max(initial=-1) >= len(footer.rows):
                raise DatasetChangedError(
                    f"{footer.file.path} has {len(footer.rows):,} row groups, fewer than the dataset's inventory says; "
                    "open the dataset again"
                )
            return look(footer, ordinals)

        yield from zip(own, at_once(of_file, range(len(files))), strict=True)

    def holding_against(self, inventory: Inventory) -> FooterCache:
        """This cache if its footers are held against an inventory, else an empty one whose footers will be."""
        return self if self._inventory is inventory else FooterCache(self._max_bytes, inventory, self._beside)

    def __reduce__(self) -> tuple[Any, ...]:
        return FooterCache, (self._max_bytes, self._inventory, self._beside)


def _kept_tails(location: Location, file: DataFile, pinned: PinnedFiles | None) -> KeptTails | None:
    """Where the end of a file is kept, whose etag is told; None where it is not."""
    if pinned is None or not pinned.trusts_etag(file) or pinned.footers is None:
        return None
    from petastore.storage.footers.kept_tails import KeptTails  # with what keeps ends of far files

    return KeptTails(pinned.footers, location, {file.path: FileVersion(file.size, file.etag)})


def check_row_groups(footer: Footer, inventory: Inventory, url: str) -> None:
    """Refuse a file that has other row groups than an inventory says; one that it does not list is not compared.

    Raises:
        MetadataError: The number of row groups, or the rows of one of them, differ.
    """
    said, in_footer, path = inventory.rows_of(footer.file.path), footer.rows, footer.file.path
    if said is None or np.array_equal(said, in_footer):
        return
    again = "the inventory is damaged; `petastore generate-metadata` writes it anew from the files"
    if len(said) != len(in_footer):
        raise MetadataError(
            f"{url}: the inventory says that {path} has {len(said):,} row groups, but its footer has "
            f"{len(in_footer):,}: {again}"
        )
    group = int(np.flatnonzero(said != in_footer)[0])
    raise MetadataError(
        f"{url}: the inventory says that row group {group:,} of {path} has {said[group]:,} rows, but its footer says "
        f"{in_footer[group]:,}: {again}"
    )


def _encoded_in(whole: bytes, file: DataFile) -> bytes:
    """The footer in all bytes of a file that is thought to be small."""
    if len(whole) != file.size:
        check_unchanged(DataFile(file.path, len(whole)), file)
    return footer_in(whole, len(whole), file.path, MAX_FOOTER_BYTES) or b""
