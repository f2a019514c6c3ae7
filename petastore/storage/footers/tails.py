"""The ends of files: how many bytes a file has, its footer as it lies there, and of which version of the file it is.

Over the web one request tells all three. How long the end has to be for that, the files of the dataset that were read
before say: files of one writer are alike. Only local files are opened.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from petastore.errors import MetadataError
from petastore.storage.files.location import Location
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.column_chunks import END_BYTES
from petastore.storage.requests.failures import answered

if TYPE_CHECKING:
    from petastore.storage.ranges.fetch import RangeFetcher
    from petastore.storage.requests.client import FileVersion

__all__ = [
    "MAGIC",
    "MAX_FOOTER_BYTES",
    "NoParquetError",
    "Tail",
    "Tails",
    "digest_of",
    "fetched_tail",
    "footer_in",
    "read_tail",
]

MAX_FOOTER_BYTES = 256 * 1024 * 1024
"""A larger footer is refused before memory is taken for it."""

_TAIL_BYTES = 64 * 1024
"""What is read of the first file."""

_LEAST_BYTES = 4 * 1024
_MOST_BYTES = 1024 * 1024
MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"


class NoParquetError(MetadataError):
    """A file that neither begins nor ends as Parquet does: somebody else's, among the data files."""

    path = ""
    """Which, relative to the root."""


class Tail(NamedTuple):
    """What the end of a file says."""

    size: int
    """Bytes of the file."""

    footer: bytes
    """The footer as it lies there."""

    version: FileVersion | None = None
    """The version of the file that has it; None where that cannot be demanded of what is read later."""


class Tails:
    """Reads the ends of the files of one dataset; to be closed. Thread-safe.

    Args:
        location: Where the dataset lies.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._fetcher = None if location.is_local else _fetcher_of(location)
        self._longest = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def are_local(self) -> bool:
        """Whether files are opened, and nothing comes over the web."""
        return self._fetcher is None

    def read(self, path: str, *, max_bytes: int = MAX_FOOTER_BYTES) -> Tail:
        """The end of a file, whatever its size.

        Args:
            path: The file, relative to the root.
            max_bytes: A larger footer is refused.

        Raises:
            FileMissingError: There is no such file.
            StorageError: The file cannot be read.
            MetadataError: The file is no Parquet.
        """
        if self._fetcher is None:
            return Tail(*read_tail(self._location, path, max_bytes=max_bytes))
        tail = fetched_tail(self._fetcher, path, self._expected, max_bytes=max_bytes)
        # Threads that come here together may each forget what another one found; only a request is longer then.
        self._longest = max(self._longest, len(tail.footer))
        return tail

    def is_parquet(self, path: str) -> bool:
        """Whether a file ends as Parquet does.

        Args:
            path: The file, relative to the root; no FIFO or the like, whose opening would wait for a writer.

        Raises:
            StorageError: It cannot be read.
        """
        if self._fetcher is None:
            end = answered(self._location, lambda: _local_end(self._location, path), "look at", path)
        else:
            fetched = self._fetcher.tail(path, len(MAGIC))
            length = min(fetched.size, len(MAGIC))
            end = fetched.read(fetched.size - length, length).to_pybytes() if length else b""
        return end in {MAGIC, _ENCRYPTED_MAGIC}

    @property
    def _expected(self) -> int:
        """A little more than the longest footer so far, for statistics differ in length; 0 before the first one."""
        longest = self._longest
        return min(max(longest + longest // 8, _LEAST_BYTES), _MOST_BYTES) if longest else 0

    def close(self) -> None:
        """Ends what is under way."""
        if self._fetcher is not None:
            self._fetcher.close()


def _fetcher_of(location: Location) -> RangeFetcher:
    from petastore.storage.ranges.open_fetcher import open_fetcher  # all that fetches, which local files do without

    return open_fetcher(location)


def fetched_tail(fetcher: RangeFetcher, path: str, footer_bytes: int = 0, *, max_bytes: int = MAX_FOOTER_BYTES) -> Tail:
    """The end of a file that is far away: one request over the web, or two where the footer is longer than thought.

    Args:
        fetcher: Fetches.
        path: The file.
        footer_bytes: How many the footer is thought to have; 0 is anything.
        max_bytes: A larger footer is refused.

    Raises:
        DatasetChangedError: The file was rewritten between the two requests.
        FileMissingError: There is no such file.
        StorageError: The file cannot be read.
        MetadataError: The file is no Parquet.
    """
    length = footer_bytes + END_BYTES if footer_bytes else _TAIL_BYTES
    fetched = fetcher.tail(path, length)
    size, version = fetched.size, fetched.version
    _check_least(size, path)
    end = fetched.read(size - min(length, size), min(length, size)).to_pybytes()
    if end[-4:] != MAGIC:
        first = fetcher.fetch(path, version, [ByteRange(0, len(MAGIC))])
        _refuse(path, first.read(0, len(MAGIC)).to_pybytes(), end[-4:])
    footer = footer_in(end, size, path, max_bytes)
    if footer is None:
        place = ByteRange(size - END_BYTES - _length_in(end), _length_in(end))
        footer = fetcher.fetch(path, version, [place]).read(*place).to_pybytes()
    return Tail(size, footer, version if version.tells else None)


def read_tail(location: Location, path: str, *, max_bytes: int = MAX_FOOTER_BYTES) -> tuple[int, bytes]:
    """Bytes of a local file, and its footer as it lies there.

    Raises:
        FileMissingError: There is no such file.
        StorageError: The file cannot be read.
        MetadataError: The file is no Parquet.
    """

    def ask() -> tuple[int, bytes]:
        with location.filesystem.open_input_file(location.join(path)) as source:
            return _read_tail(source, path, max_bytes)

    return answered(location, ask, "read the footer of", path)


def _local_end(location: Location, path: str) -> bytes:
    with location.filesystem.open_input_file(location.join(path)) as source:
        source.seek(max(source.size() - len(MAGIC), 0))
        end: bytes = source.read(len(MAGIC))
        return end


def _read_tail(source: Any, path: str, max_bytes: int) -> tuple[int, bytes]:
    size = source.size()
    _check_least(size, path)
    source.seek(max(0, size - _TAIL_BYTES))
    tail = source.read(min(size, _TAIL_BYTES))
    if tail[-4:] != MAGIC:
        source.seek(0)
        _refuse(path, source.read(len(MAGIC)), tail[-4:])
    footer = footer_in(tail, size, path, max_bytes)
    if footer is None:
        source.seek(size - END_BYTES - _length_in(tail))
        return size, source.read(_length_in(tail))
    return size, footer


def _check_least(size: int, path: str) -> None:
    if size < len(MAGIC) * 2 + 4:
        raise NoParquetError(f"{path} has {size} bytes and is no Parquet: even an empty one has more")


def _refuse(path: str, first: bytes, last: bytes) -> None:
    """Says what is wrong with a file that does not end as Parquet does, given its first and its last bytes."""
    if last == _ENCRYPTED_MAGIC:
        raise MetadataError(f"{path} has an encrypted footer, and petastore reads no encrypted files; decrypt it first")
    if first == MAGIC:
        raise MetadataError(
            f"{path} begins as Parquet, but was cut short or damaged: it ends with {last!r} instead of "
            f"{MAGIC!r}. Write it again, or delete it"
        )
    raise NoParquetError(f"{path} is no Parquet: it ends with {last!r} instead of {MAGIC!r}")


def _length_in(tail: bytes) -> int:
    return int.from_bytes(tail[-8:-4], "little")


def digest_of(footer: bytes) -> str:
    """The digest of a file, given its footer."""
    return hashlib.sha256(footer).hexdigest()[:32]


def footer_in(tail: bytes, size: int, path: str, max_bytes: int) -> bytes | None:
    """The footer in the last bytes of a file; None where there are too few of them."""
    if tail[-4:] != MAGIC:
        raise NoParquetError(f"{path} is no Parquet: it ends with {tail[-4:]!r} instead of {MAGIC!r}")
    length = _length_in(tail)
    if length > size - 12 or length == 0:
        raise MetadataError(
            f"{path} is damaged: it says that its footer has {length:,} bytes, but the file has {size:,}"
        )
    if length > max_bytes:
        raise MetadataError(f"{path} says that its footer has {length:,} bytes; at most {max_bytes:,} are read")
    return None if length + END_BYTES > len(tail) else tail[-END_BYTES - length : -END_BYTES]
