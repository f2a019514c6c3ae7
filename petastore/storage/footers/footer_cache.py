"""Footers by file, so that each is read and parsed once however many of its row groups are read."""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from petastore.errors import MetadataError
from petastore.forks import made_anew_in_children
from petastore.inventory import DataFile, Inventory
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import (
    MAX_FOOTER_BYTES,
    Footer,
    check_unchanged,
    footer_in,
    is_unchanged,
    parsed_footer,
    read_tail,
)
from petastore.storage.requests.at_once import at_once

__all__ = ["FooterCache"]


_Key = tuple[str, str, str, int, str]


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
    """

    def __init__(self, max_bytes: int = 128 * 1024 * 1024, inventory: Inventory | None = None) -> None:
        self._max_bytes = max_bytes
        self._inventory = inventory
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Is empty: some of the footers were being read by threads that a forked child does not have."""
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[_Key, Footer] = collections.OrderedDict()
        self._being_read: dict[_Key, Future[Footer]] = {}
        self._known: dict[_Key, Footer] = {}

    def get(self, location: Location, file: DataFile) -> Footer:
        """The footer of a file, which must be the file that the inventory describes.

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
            footer = self._read(key, mine, location, file)
        check_unchanged(footer.file, file)
        return footer

    def know(self, location: Location, footers: Iterable[Footer]) -> None:
        """Remember the footers that the inventory was made of, as far as there is room: they need not be parsed again.

        A file that is asked for is looked at all the same: it may have been rewritten.
        """
        room = self._max_bytes
        for footer in footers:
            room -= len(footer.encoded)
            if room < 0:
                return
            self._known[_key(location, footer.file)] = footer

    def kept(self, location: Location, file: DataFile) -> Footer | None:
        """The footer of a file if it is here, without reading it."""
        return self._kept.get(_key(location, file))

    def found(self, location: Location, file: DataFile, whole: bytes) -> Footer:
        """The footer of a file that was read whole, which must be the file that the inventory describes.

        Args:
            location: Where the dataset lies.
            file: The file.
            whole: All its bytes.

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
            footer = self._checked(key, location, file, len(whole), encoded)
            check_unchanged(footer.file, file)
            with self._lock:
                self._keep(key, footer)
        return footer

    def _checked(self, key: _Key, location: Location, file: DataFile, size: int, encoded: bytes) -> Footer:
        """The footer of a file that was read just now, held against the inventory."""
        known = self._known.pop(key, None)
        if known is not None and known.file.size == size and known.encoded == encoded:
            return known  # the inventory was made of it
        footer = parsed_footer(file.path, size, encoded)
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

    def _read(self, key: _Key, mine: Future[Footer], location: Location, file: DataFile) -> Footer:
        try:
            size, encoded = read_tail(location, file.path)
            footer = self._checked(key, location, file, size, encoded)
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

    def check(self, location: Location, files: Sequence[DataFile]) -> None:
        """Reads the footers of some files, several at once.

        Raises:
            StorageError: As `get`, for the first file in order that fails.
        """
        for _ in at_once(functools.partial(self.get, location), files):
            pass

    def __len__(self) -> int:
        return len(self._kept)

    def holding_against(self, inventory: Inventory) -> FooterCache:
        """This cache if its footers are held against an inventory, else an empty one whose footers will be."""
        return self if self._inventory is inventory else FooterCache(self._max_bytes, inventory)

    def __reduce__(self) -> tuple[Any, ...]:
        return FooterCache, (self._max_bytes, self._inventory)


def check_row_groups(footer: Footer, inventory: Inventory, url: str) -> None:
    """Refuse a file that has other row groups than an inventory says; one that it does not list is not compared.

    Raises:
        MetadataError: The number of row groups, or the rows of one of them, differ.
    """
    said, found, path = inventory.rows_of(footer.file.path), footer.rows, footer.file.path
    if said is None or np.array_equal(said, found):
        return
    again = "the inventory is damaged; `petastore generate-metadata` writes it anew from the files"
    if len(said) != len(found):
        raise MetadataError(
            f"{url}: the inventory says that {path} has {len(said):,} row groups, but its footer has {len(found):,}: "
            f"{again}"
        )
    group = int(np.flatnonzero(said != found)[0])
    raise MetadataError(
        f"{url}: the inventory says that row group {group:,} of {path} has {said[group]:,} rows, but its footer says "
        f"{found[group]:,}: {again}"
    )


def _encoded_in(whole: bytes, file: DataFile) -> bytes:
    """The footer in all bytes of a file that is thought to be small."""
    if len(whole) != file.size:
        check_unchanged(DataFile(file.path, len(whole)), file)
    return footer_in(whole, len(whole), file.path, MAX_FOOTER_BYTES) or b""
