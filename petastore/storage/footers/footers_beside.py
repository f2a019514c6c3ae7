"""Packed footers: the footers of many files in one file, `_petastore/footers`.

Readers fetch them with a few requests. Footers are stored in the order of the files, in blocks of 4 MiB compressed by
zstd. The manifest has the length and the digest of each footer. If the bytes of a footer do not match its digest, the
footer is read from its own data file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.errors import StorageError
from petastore.inventory import DataFile
from petastore.lazy import once
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import read_range
from petastore.storage.footers.tails import digest_of
from petastore.storage.ranges.fetch import ByteRange

if TYPE_CHECKING:
    from petastore.cache import DiskCache

__all__ = ["BLOCK_BYTES", "FOOTERS", "Block", "FootersBeside", "PackedFooters", "packed_footers"]

FOOTERS = "_petastore/footers"
"""Path of the file with the packed footers, relative to the dataset's root."""

MOST_BYTES = 128 * 1024 * 1024
"""Largest total size of packed footers.

If the footers of a dataset are larger, writers pack none of them, and readers read each from its data file.
"""

MOST_STORED_BYTES = MOST_BYTES + MOST_BYTES // 8
"""Largest total size of compressed blocks.

It is slightly above `MOST_BYTES`, because incompressible data grows.
"""

BLOCK_BYTES = 4 * 1024 * 1024
"""Uncompressed bytes of a block of packed footers.

Footers that begin in the same block are fetched together.
"""


class PackedFooters(NamedTuple):
    """Packed footers to write: the file's bytes, and two columns for the manifest.

    The columns locate each footer in the file.
    """

    data: bytes
    """Bytes of the file."""

    lengths: list[int]
    """Length of each data file's footer in bytes; 0 if it is not packed."""

    stored: list[int]
    """Compressed bytes of each block, stored at the first data file of the block.

    All other data files have 0.
    """


def packed_footers(files: Sequence[DataFile], footers: Mapping[str, bytes]) -> PackedFooters:
    """Pack the footers of some files; pack none if they exceed `MOST_BYTES` in total.

    Args:
        files: Files in the order of the manifest.
        footers: Footers by path. A footer is not packed if it is missing or has another digest, or if the file has no
            etag, because only reading the file identifies its version then.

    Example:
        >>> one = DataFile("a.parquet", 100, digest_of(b"footer"), etag='"5d41402a"')
        >>> packed_footers([one, DataFile("b.parquet", 100)], {"a.parquet": b"footer"}).lengths
        [6, 0]
    """
    fitting = [_fitting(footers.get(file.path, b""), file) for file in files]
    if sum(map(len, fitting)) > MOST_BYTES:
        fitting = [b""] * len(files)
    lengths, data, stored = list(map(len, fitting)), list[bytes](), [0] * len(files)
    for _, block in itertools.groupby(range(len(files)), key=_blocks(lengths).__getitem__):
        first, *others = block
        raw = b"".join([fitting[first], *(fitting[number] for number in others)])
        if raw:
            data.append(pa.compress(raw, codec="zstd", asbytes=True))
            stored[first] = len(data[-1])
    return PackedFooters(b"".join(data), lengths, stored)


def _blocks(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the block in which each file's packed footer begins."""
    return (np.cumsum(lengths, dtype=np.int64) - lengths) // BLOCK_BYTES


def _fitting(footer: bytes, file: DataFile) -> bytes:
    return footer if file.etag and digest_of(footer) == file.digest else b""


class Block(NamedTuple):
    """Packed footers of several files, compressed and fetched together."""

    place: ByteRange
    """Byte range of the block."""

    first: int
    """Number, in the manifest, of the first file of the block."""

    stop: int
    """Number, in the manifest, of the last file of the block, plus 1."""

    length: int
    """Uncompressed bytes of the block."""


@dataclasses.dataclass(frozen=True, eq=False)
class FootersBeside:
    """Positions of packed footers, from the manifest. Thread-safe."""

    files: tuple[DataFile, ...]
    """Files of the manifest."""

    lengths: NDArray[np.int64]
    """Length of each file's footer in bytes; 0 if it is not packed."""

    stored: NDArray[np.int64]
    """Compressed bytes of each block, stored at the first file of the block.

    All other files have 0.
    """

    @property
    def can_be(self) -> bool:
        """Whether the sizes in the manifest are valid: not negative, within the limits."""
        numbers = np.concatenate([self.lengths, self.stored])
        if not len(numbers):
            return True
        # Each size is checked before the sizes are added, so that the sum does not overflow.
        is_each_right = numbers.min() >= 0 and numbers.max() <= MOST_BYTES
        are_few = self.lengths.sum() <= MOST_BYTES and self.stored.sum() <= MOST_STORED_BYTES
        return bool(is_each_right and are_few)

    def block_of(self, file: DataFile) -> Block | None:
        """Return the block that has the packed footer of a file; None if it is not packed."""
        number = self._numbers.get(file)
        if number is None or not self.lengths[number]:
            return None
        first, stop = np.searchsorted(self._blocks, self._blocks[number] + np.array([0, 1])).tolist()
        begin, end = int(self.stored[:first].sum()), int(self.stored[:stop].sum())
        return Block(ByteRange(begin, end - begin), first, stop, int(self.lengths[first:stop].sum()))

    def length_of(self, file: DataFile) -> int:
        """Return the length of a file's footer in bytes; 0 if unknown."""
        number = self._numbers.get(file)
        return 0 if number is None else int(self.lengths[number])

    def footer_in(self, data: bytes, block: Block, file: DataFile) -> bytes | None:
        """Return a file's footer from its decompressed block; None if its digest differs."""
        number = self._numbers[file]
        begin = int(self.lengths[block.first : number].sum())
        footer = data[begin : begin + int(self.lengths[number])]
        return footer if digest_of(footer) == file.digest else None

    def fetched(self, location: Location, block: Block, cache: DiskCache | None) -> bytes:
        """Return a decompressed block of footers, from the disk cache or storage.

        Return empty bytes if the block is missing or damaged.
        """

        def fetch() -> bytes:
            return read_range(location, FOOTERS, *block.place)

        try:
            if cache is None:
                return _unpacked(fetch(), block)
            with cache.entry(self.key_of(block), fetch) as view:
                return _unpacked(view, block)
        except (StorageError, pa.ArrowException, OSError):
            return b""  # footers are then read from the data files

    def all_at(self, location: Location) -> dict[str, bytes]:
        """Return all packed footers, as a dict from path to footer bytes.

        Missing and damaged footers are omitted. A write needs the footers of old files, to pack them again together
        with the footers of new files.
        """
        footers: dict[str, bytes | None] = {}
        data, held = b"", None
        for file in self.files:
            block = self.block_of(file)
            if block is not None and block != held:
                data, held = self.fetched(location, block, None), block
            footers[file.path] = None if block is None else self.footer_in(data, block, file)
        return {path: footer for path, footer in footers.items() if footer is not None}

    def key_of(self, block: Block) -> str:
        """Return a block's cache key, independent of the dataset's location."""
        digests = "".join(file.digest for file in self.files[block.first : block.stop])
        return repr((FOOTERS, hashlib.sha256(digests.encode()).hexdigest(), block.place.length))

    @once
    def _blocks(self) -> NDArray[np.int64]:
        return _blocks(self.lengths)

    @once
    def _numbers(self) -> dict[DataFile, int]:
        return dict(zip(self.files, itertools.count()))


def _unpacked(packed: bytes | memoryview, block: Block) -> bytes:
    """Decompress a block of packed footers, up to the size in the manifest.

    Raises:
        OSError: The bytes are not a block of that length.
    """
    data: bytes = pa.decompress(packed, decompressed_size=block.length, codec="zstd", asbytes=True)
    return data
