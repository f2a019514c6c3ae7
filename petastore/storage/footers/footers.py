"""Read and check the Parquet footers of a dataset: those of several files at once, or packed footers.

Packed footers are the footers of many files in one file, `_petastore/footers`, which readers fetch with a few requests.
Footers are stored in the order of the files, in blocks of 4 MiB compressed by zstd. The manifest has the length and the
digest of each footer. If the bytes of a footer do not match its digest, the footer is read from its own data file.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.errors import DatasetNotFoundError, MetadataError, StorageError
from petastore.inventory import DataFile, Inventory
from petastore.lazy import once
from petastore.schema.file_schemas import FileSchemas
from petastore.storage.files.listing import is_called_parquet
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import read_range
from petastore.storage.footers.footer import Footer, FooterParser
from petastore.storage.footers.tails import KeptTails, NoParquetError, Tail, Tails, digest_of, each_of_files
from petastore.storage.ranges.fetch import ByteRange
from petastore.storage.requests.failures import answered
from petastore.storage.requests.retries import read_right

if TYPE_CHECKING:
    from petastore.cache import DiskCache

__all__ = [
    "BLOCK_BYTES",
    "FOOTERS",
    "Block",
    "FootersBeside",
    "PackedFooters",
    "differing_schemas",
    "encoded_footers",
    "footer_if_there",
    "inventory_of",
    "packed_footers",
    "parquet_among",
    "read_footer",
    "read_footers",
    "schemas_of",
]

_SHOWN = 5
_LOOKED_AT = 64


def read_footer(location: Location, path: str, *, has_rows: bool = True) -> Footer:
    """Read and check the footer of one file.

    If a remote footer arrives damaged, it is fetched again once.

    Args:
        location: Location of the dataset.
        path: Path of the file, relative to the root.
        has_rows: Whether the file contains the rows of its footer; the footer of `_common_metadata` may have rows of
            other files.

    Raises:
        FileMissingError: The file does not exist.
        StorageError: The file cannot be read.
        MetadataError: The file is not Parquet, or its footer is damaged; the message has the reason.
    """
    with Tails(location) as tails:
        return _right_footer(path, tails.read, FooterParser(), is_remote=not tails.are_local, has_rows=has_rows)


def _right_footer(
    path: str,
    ask: Callable[[str], Tail],
    parser: FooterParser,
    *,
    is_remote: bool,
    has_rows: bool = True,
    forget: Callable[[], None] | None = None,
) -> Footer:
    """Read and parse the footer of a file; if it is remote and damaged, read it again once."""

    def read() -> Footer:
        footer = parser.parse(path, ask(path))
        if has_rows:
            _ = footer.groups  # computed and cached here, because several threads parse footers in parallel
        return footer

    return read_right(read, read if is_remote else None, refused=MetadataError, forget=forget)


def footer_if_there(location: Location, path: str) -> Footer | None:
    """Read the footer of a metadata file (`_common_metadata`); None if it is missing.

    Raises:
        StorageError: The file cannot be read, or its existence is unknown.
        MetadataError: The file is not Parquet, or its footer is damaged.
    """
    info = answered(location, lambda: location.filesystem.get_file_info(location.join(path)), "look at", path)
    if not info.is_file:
        return None
    try:
        return read_footer(location, path, has_rows=False)
    except MetadataError as problem:
        raise MetadataError(
            f"{problem}. If another program than petastore or Petastorm wrote {path} of {location.url}, delete that "
            "file; else write the dataset's metadata again with `petastore generate-metadata`"
        ) from problem


def read_footers(location: Location, paths: Iterable[str], kept: KeptTails | None = None) -> list[Footer]:
    """Read the footers of many files with up to 16 threads.

    The result is in the order of `paths`. A damaged remote footer is fetched again once.

    Args:
        location: Location of the dataset.
        paths: Paths of the files, relative to the root.
        kept: Disk cache of file tails; None reads all of them from storage.

    Raises:
        StorageError: As in `read_footer`, for one failing file; files that are not Parquet are named together.
        DatasetNotFoundError: None of the files is Parquet, by name or content, and the caller did not pass any of them.
    """
    wanted, parser = list(paths), FooterParser()
    with Tails(location) as tails:

        def read(path: str) -> Tail:
            return tails.read(path) if kept is None else kept.tail(path, functools.partial(tails.read, path))

        def footer_or_problem(path: str) -> Footer | MetadataError:
            forget = None if kept is None else functools.partial(kept.forget, path)
            try:
                return _right_footer(path, read, parser, is_remote=not tails.are_local, forget=forget)
            except MetadataError as problem:
                return problem

        found = each_of_files(location, footer_or_problem, wanted)
    footers = [one for one in found if isinstance(one, Footer)]
    if len(footers) < len(found):
        _refuse(location, dict(zip(wanted, found, strict=True)), kept)
    return footers


def parquet_among(location: Location, paths: Sequence[str]) -> list[str]:
    """Return the paths of Parquet files, in order, by name or by their last bytes.

    At most 64 files with other names are read. The result is used for warnings about unlisted Parquet files, which
    should not name, for example, a README.
    """
    others = [path for path in paths if not is_called_parquet(path)]
    looked_at = others[:: -(-len(others) // _LOOKED_AT) or 1]
    with Tails(location) as tails:
        ends = each_of_files(location, tails.is_parquet, looked_at)
        parquet = {path for path, is_one in zip(looked_at, ends, strict=True) if is_one}
    return [path for path in paths if path in parquet or is_called_parquet(path)]


def _refuse(location: Location, found: Mapping[str, Footer | MetadataError], kept: KeptTails | None) -> NoReturn:
    """Raise one error for all files that are not Parquet; without such files, the first error."""
    strangers = {path: one for path, one in found.items() if isinstance(one, NoParquetError)}
    if not strangers:
        if kept is not None:
            kept.forget(*found)
        raise next(one for one in found.values() if isinstance(one, MetadataError))
    first, names = next(iter(strangers.values())), list(strangers)
    if len(found) == 1 and location.paths is not None:
        raise MetadataError(f"{first}. Pass Parquet files, or a directory of them") from None
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    named = set(location.paths or ()) - location.matched
    if len(names) == len(found) and named.isdisjoint(names) and not any(is_called_parquet(name) for name in names):
        raise DatasetNotFoundError(
            f"{location.url} must have at least one Parquet file, got only {shown}. Correct the URL"
        )
    raise MetadataError(
        f"{location.url}: {len(names):,} of its {len(found):,} files "
        f"{'is not a Parquet file' if len(names) == 1 else 'are not Parquet files'}: {shown}. Move them away, give "
        "them names that begin with _ or . or end in .crc, or read a pattern such as directory/*.parquet. The "
        f"first: {first}"
    )


def inventory_of(footers: Iterable[Footer]) -> Inventory:
    """Return the inventory (files, row groups, sizes) of the files with these footers.

    Raises:
        MetadataError: Counts are negative or do not add up.
    """
    return Inventory.concatenate([(footer.file, footer.groups) for footer in footers])


def schemas_of(footers: Sequence[Footer]) -> FileSchemas:
    """Return the Arrow schemas of files, without columns unreadable in some file."""
    unreadable = {name for footer in footers for name in footer.unreadable}
    return FileSchemas.of(((footer.file.path, footer.arrow_schema) for footer in footers), without=unreadable)


def differing_schemas(footers: Sequence[Footer]) -> FileSchemas | None:
    """Return the Arrow schemas of files for the manifest; None if all are equal."""
    schemas = schemas_of(footers) if footers else None
    return None if schemas is None or schemas.are_equal else schemas


def encoded_footers(footers: Iterable[Footer]) -> dict[str, bytes]:
    """Return a dict from path to the footer bytes, as stored in the file."""
    return {footer.file.path: footer.encoded for footer in footers}


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
