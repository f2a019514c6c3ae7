"""Footers of many files in one file beside the manifest, `_petastore/footers`: a few requests instead of one a file.

They stand in the order of the files, compressed, in blocks: footers of one dataset are alike, so the first one of a
block is the dictionary of the others. The manifest says how long they are, and it has the digest of each: whatever else
lies there is taken for nothing, and a file is then asked for its footer itself.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from petastore.errors import StorageError
from petastore.inventory import DataFile
from petastore.once import once
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import read_range
from petastore.storage.footers.tails import digest_of
from petastore.storage.ranges.coalesced import ByteRange

if TYPE_CHECKING:
    from petastore.cache import DiskCache

__all__ = ["BLOCK_BYTES", "FOOTERS", "MOST_BYTES", "Block", "FootersBeside", "PackedFooters", "packed_footers"]

FOOTERS = "_petastore/footers"
"""Path of the file, relative to the dataset's root."""

MOST_BYTES = 128 * 1024 * 1024
"""Of all footers of a dataset together; of larger ones, readers keep those that are in use, and writers none."""

MOST_STORED_BYTES = MOST_BYTES + MOST_BYTES // 8
"""What cannot be compressed becomes a little longer."""

BLOCK_BYTES = 1024 * 1024
"""Footers that begin in so many bytes are one block, which is fetched together."""


class PackedFooters(NamedTuple):
    """Footers as they are written."""

    data: bytes
    """The file."""

    lengths: list[int]
    """Of each data file: bytes of its footer; 0 where it is not among them."""

    stored: list[int]
    """Of each data file: bytes of it here, where they are compressed."""


def packed_footers(files: Sequence[DataFile], footers: Mapping[str, bytes]) -> PackedFooters:
    """The footers of some files, compressed; none at all where they have more than `MOST_BYTES` together.

    Args:
        files: In the order of the manifest.
        footers: Footers by path; where there is none, or one of another digest, the file goes without. So does one that
            has no etag: which version it has is then told by nothing but its own footer, which is read anyway.

    Example:
        >>> one = DataFile("a.parquet", 100, digest_of(b"footer"), etag='"5d41402a"')
        >>> packed_footers([one, DataFile("b.parquet", 100)], {"a.parquet": b"footer"}).lengths
        [6, 0]
    """
    fitting = [_fitting(footers.get(file.path, b""), file) for file in files]
    if sum(map(len, fitting)) > MOST_BYTES:
        fitting = [b""] * len(files)
    packed: list[bytes] = []
    begin, block, first = 0, -1, b""
    for footer in fitting:
        if footer and begin // BLOCK_BYTES != block:
            block, first = begin // BLOCK_BYTES, b""
        packed.append(_packed(footer, first))
        begin, first = begin + len(packed[-1]), first or footer
    return PackedFooters(b"".join(packed), list(map(len, fitting)), list(map(len, packed)))


def _packed(footer: bytes, first: bytes) -> bytes:
    if not footer:
        return b""
    stream = zlib.compressobj(zdict=first) if first else zlib.compressobj()
    return stream.compress(footer) + stream.flush()


def _unpacked(packed: bytes, length: int, first: bytes) -> bytes:
    """So many bytes, or fewer or one more where it has not as many."""
    stream = zlib.decompressobj(zdict=first) if first else zlib.decompressobj()
    return stream.decompress(packed, length + 1)


def _fitting(footer: bytes, file: DataFile) -> bytes:
    return footer if file.etag and digest_of(footer) == file.digest else b""


class Block(NamedTuple):
    """Footers that are fetched together."""

    place: ByteRange
    """Where they stand."""

    first: int
    """The number of the first file among those of the manifest."""

    stop: int
    """The number of the one after the last."""


@dataclasses.dataclass(frozen=True, eq=False)
class FootersBeside:
    """Where the footers of a dataset's files stand, as the manifest says. Thread-safe."""

    files: tuple[DataFile, ...]
    """The files of the manifest."""

    lengths: NDArray[np.int64]
    """Bytes of the footer of each; 0 where it is not beside."""

    stored: NDArray[np.int64]
    """Bytes of it there, where it is compressed."""

    @property
    def can_be(self) -> bool:
        """Whether no more memory is taken for them than may be, whatever somebody wrote there."""
        numbers = np.concatenate([self.lengths, self.stored])
        if not len(numbers):
            return True
        # Bounded one by one before they are added up, so that no sum wraps around.
        is_each_right = numbers.min() >= 0 and numbers.max() <= MOST_BYTES
        are_few = self.lengths.sum() <= MOST_BYTES and self.stored.sum() <= MOST_STORED_BYTES
        return bool(is_each_right and are_few and ((self.lengths > 0) == (self.stored > 0)).all())

    def block_of(self, file: DataFile) -> Block | None:
        """What is fetched for the footer of a file; None where it is not beside."""
        number = self._numbers.get(file)
        if number is None or not self.lengths[number]:
            return None
        begins, block = self._begins, self._begins[number] // BLOCK_BYTES
        first, stop = np.searchsorted(begins[:-1] // BLOCK_BYTES, [block, block + 1]).tolist()
        begin, end = int(begins[first]), int(begins[stop])
        return Block(ByteRange(begin, end - begin), first, stop)

    def length_of(self, file: DataFile) -> int:
        """Bytes of the footer of a file; 0 where nothing is known of it."""
        number = self._numbers.get(file)
        return 0 if number is None else int(self.lengths[number])

    def footer_in(self, data: bytes, block: Block, file: DataFile) -> bytes | None:
        """The footer of a file, given the bytes of its block; None where it is none of that file."""
        number = self._numbers[file]
        leader = int(block.first + np.flatnonzero(self.lengths[block.first : block.stop])[0])
        try:
            first = self._piece(data, block, leader, b"")
            footer = first if number == leader else self._piece(data, block, number, first)
        except zlib.error:
            return None
        return footer if digest_of(footer) == file.digest else None

    def _piece(self, data: bytes, block: Block, number: int, first: bytes) -> bytes:
        begin = int(self._begins[number]) - block.place.offset
        return _unpacked(data[begin : begin + int(self.stored[number])], int(self.lengths[number]), first)

    def fetched(self, location: Location, block: Block, cache: DiskCache | None) -> bytes:
        """The bytes of a block, from a cache if that has them; empty where they cannot be had."""

        def fetch() -> bytes:
            return read_range(location, FOOTERS, *block.place)

        try:
            if cache is None:
                return fetch()
            with cache.entry(self.key_of(block), fetch) as view:
                return bytes(view)
        except StorageError:
            return b""  # whatever it is, files have footers of their own

    def all_at(self, location: Location) -> dict[str, bytes]:
        """The footers by path, as many as are there; for who writes them anew."""
        footers: dict[str, bytes | None] = {}
        data, held = b"", None
        for file in self.files:
            block = self.block_of(file)
            if block is not None and block != held:
                data, held = self.fetched(location, block, None), block
            footers[file.path] = None if block is None else self.footer_in(data, block, file)
        return {path: footer for path, footer in footers.items() if footer is not None}

    def key_of(self, block: Block) -> str:
        """Under which key a cache has a block: the same wherever the dataset lies."""
        digests = "".join(file.digest for file in self.files[block.first : block.stop])
        return repr((FOOTERS, hashlib.sha256(digests.encode()).hexdigest(), block.place.length))

    @once
    def _begins(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.stored)])

    @once
    def _numbers(self) -> dict[DataFile, int]:
        return dict(zip(self.files, itertools.count()))
