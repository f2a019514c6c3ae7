"""File tails: the footer at the end of a file, with the file's size and version.

For a remote file, one request returns all three. The number of bytes to request is estimated from earlier files,
because footers of one writer have similar sizes. Only local files are opened.

Tails can be cached on disk. Each tail is then fetched once for all processes of a host, and reused when the dataset is
opened again. Cached tails are parsed and checked in the same way as fetched ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import operator
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from petastore.errors import MetadataError
from petastore.monitoring.activity import Request
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import read_at
from petastore.storage.ranges.fetch import END_BYTES, ByteRange, RangeFetcher
from petastore.storage.ranges.pinned_files import footer_key
from petastore.storage.requests.failures import failure, is_of_storage, raise_alone
from petastore.storage.requests.retries import at_once
from petastore.storage.stores.interface import FileVersion

if TYPE_CHECKING:
    from petastore.cache import DiskCache

__all__ = [
    "MAGIC",
    "MAX_FOOTER_BYTES",
    "KeptTails",
    "LocalVersion",
    "NoParquetError",
    "Tail",
    "Tails",
    "digest_of",
    "each_of_files",
    "expected_bytes",
    "fetched_tail",
    "footer_in",
    "reading_local",
    "tail_of",
    "version_fields",
]


_T = TypeVar("_T")
_Made = TypeVar("_Made")

_ALONE_S, _SLOW_S = 0.25, 0.002
"""Limits for reading local files in one thread: total seconds, seconds per file.

If reading takes longer than both, the disk is slow or remote, and several threads read the remaining files.
"""

MAX_FOOTER_BYTES = 256 * 1024 * 1024
"""Maximum footer size; a larger footer raises an error before memory is allocated."""

_TAIL_BYTES = 64 * 1024
"""Bytes to read from the end of a file if the size of its footer is unknown."""

_LEAST_BYTES = 4 * 1024
_MOST_BYTES = 1024 * 1024
MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"


class NoParquetError(MetadataError):
    """The file is not Parquet: it neither begins nor ends like a Parquet file."""


version_fields = operator.attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
"""Function from an `os.stat_result` to a tuple of the fields of a `LocalVersion`."""


class LocalVersion(NamedTuple):
    """Version of a local file."""

    device: int
    """Device number of the file system."""

    inode: int
    """Inode number of the file."""

    size: int
    """Size of the file in bytes."""

    written_ns: int
    """Time of the last write (mtime) in nanoseconds since 1970; programs can set it."""

    changed_ns: int
    """Time of the last change (ctime) in nanoseconds since 1970.

    Programs cannot set it, and replacing the file changes it, too.
    """

    @classmethod
    def of(cls, file: int | str) -> LocalVersion:
        """Return the version of a file.

        Args:
            file: The descriptor of an open file, or a path.

        Raises:
            OSError: The file does not exist.
        """
        status = os.fstat(file) if isinstance(file, int) else os.stat(file)  # noqa: PTH116 - faster than `Path`
        return cls(*version_fields(status))


class Tail(NamedTuple):
    """Parsed end of a Parquet file: the footer bytes, and the file's size and version."""

    size: int
    """Bytes of the file."""

    footer: bytes
    """Footer bytes as stored in the file."""

    version: FileVersion | None = None
    """Version of the file; None if later requests cannot require it."""

    local: LocalVersion | None = None
    """Version of the local file, or None."""


class Tails:
    """Reader of the tails (footer, size, version) of a dataset's files. Thread-safe.

    Close it after use.

    Args:
        location: Location of the dataset.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._fetcher = None if location.is_local else RangeFetcher(location)
        self._longest = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def are_local(self) -> bool:
        """Whether files are local."""
        return self._fetcher is None

    def read(self, path: str) -> Tail:
        """Read the footer at the end of a file, and the file's size and version.

        Args:
            path: Path of the file, relative to the root.

        Raises:
            FileMissingError: The file does not exist.
            StorageError: The file cannot be read.
            MetadataError: The file is not Parquet.
        """
        if self._fetcher is None:
            with _opened(self._location, path) as opened:
                return tail_of(opened, path)
        tail = fetched_tail(self._fetcher, path, expected_bytes(self._longest))
        # No lock is needed: if another thread overwrites the length, only the size of a later request is worse.
        self._longest = max(self._longest, len(tail.footer))
        return tail

    def is_parquet(self, path: str) -> bool:
        """Return whether a file ends like a Parquet file.

        Args:
            path: Path of a regular file, relative to the root; opening a FIFO would wait for a writer.

        Raises:
            StorageError: The file cannot be read.
        """
        if self._fetcher is None:
            with _opened(self._location, path) as opened:
                end = os.pread(opened, len(MAGIC), max(os.fstat(opened).st_size - len(MAGIC), 0))
        else:
            fetched = self._fetcher.tail(path, len(MAGIC))
            length = min(fetched.size, len(MAGIC))
            end = fetched.read(fetched.size - length, length).to_pybytes() if length else b""
        return end in {MAGIC, _ENCRYPTED_MAGIC}

    def close(self) -> None:
        """Cancel requests in flight."""
        if self._fetcher is not None:
            self._fetcher.close()


def expected_bytes(longest: int) -> int:
    """Return an estimate of a footer's size, from the longest footer so far.

    The estimate is slightly larger than the longest footer; it is 0 before the first footer.

    Example:
        >>> expected_bytes(80_000), expected_bytes(100), expected_bytes(0)
        (90000, 4096, 0)
    """
    return min(max(longest + longest // 8, _LEAST_BYTES), _MOST_BYTES) if longest else 0


def fetched_tail(fetcher: RangeFetcher, path: str, footer_bytes: int = 0) -> Tail:
    """Fetch the tail of a remote file: its footer, size and version.

    This takes one request, or two if the footer is longer than expected.

    Args:
        fetcher: Range fetcher of the dataset's files.
        path: Path of the file.
        footer_bytes: Expected size of the footer; 0 if unknown.

    Raises:
        DatasetChangedError: The file was rewritten between the two requests.
        FileMissingError: The file does not exist.
        StorageError: The file cannot be read.
        MetadataError: The file is not Parquet.
    """
    length = footer_bytes + END_BYTES if footer_bytes else _TAIL_BYTES
    fetched = fetcher.tail(path, length)
    size, version = fetched.size, fetched.version

    def read(at: int, length: int) -> bytes:
        is_there = at + fetched.nbytes >= size
        source = fetched if is_there else fetcher.fetch(path, version, [ByteRange(at, length)])
        return source.read(at, length).to_pybytes()

    return Tail(size, _footer_of(path, size, length, read), version if version.tells else None)


@contextlib.contextmanager
def reading_local(location: Location, path: str) -> Iterator[None]:
    """Context manager for reading a local file in the calling thread.

    It converts OS errors to petastore errors.

    Raises:
        FileMissingError: The file does not exist.
        StorageError: The file cannot be read.
    """
    try:
        with Request(location.url, f"read {path}", location.timeout_s):
            yield
    except OSError as problem:
        if not is_of_storage(problem):
            raise
        raise_alone(failure(problem, location, "read the footer of", path))


@contextlib.contextmanager
def _opened(location: Location, path: str) -> Iterator[int]:
    with reading_local(location, path):
        opened = os.open(location.join(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # do not block on a FIFO
        try:
            yield opened
        finally:
            os.close(opened)


def tail_of(opened: int, path: str) -> Tail:
    """Read the tail of an open local file: its footer, size and version.

    Args:
        opened: File descriptor of the file.
        path: Path of the file, for messages.

    Raises:
        OSError: The file cannot be read.
        MetadataError: The file is not Parquet.
    """
    version = LocalVersion.of(opened)
    footer = _footer_of(path, version.size, _TAIL_BYTES, lambda at, length: read_at(opened, length, at))
    return Tail(version.size, footer, local=version)


def _footer_of(path: str, size: int, length: int, read: Callable[[int, int], bytes]) -> bytes:
    """Read the footer of a file of known size.

    Args:
        path: Path of the file, for messages.
        size: Size of the file.
        length: Number of bytes to read from the end of the file first.
        read: Function (position, length) that reads bytes of the file.
    """
    if size < len(MAGIC) * 2 + 4:
        raise NoParquetError(f"{path} is not a Parquet file: the file has only {size} byte{'s' * (size != 1)}")
    length = min(length, size)
    end = read(size - length, length)
    if end[-4:] != MAGIC:
        _refuse(path, read(0, len(MAGIC)), end[-4:])
    footer = footer_in(end, size, path)
    return read(size - END_BYTES - _length_in(end), _length_in(end)) if footer is None else footer


def each_of_files(location: Location, task: Callable[[_T], _Made], files: Sequence[_T]) -> list[_Made]:
    """Apply a function to each file, and return the results in order.

    The first failure in this order is raised, and stops the other calls. The calling thread reads local files while
    this is fast: starting a task in another thread takes longer than reading a footer from the page cache. Up to 16
    threads read all other files.

    Args:
        location: Location of the files.
        task: Function that reads one file.
        files: Files to read.

    Raises:
        StorageError: A task raised it.
    """
    made: list[_Made] = []
    began = time.monotonic()
    while location.is_local and len(made) < len(files):
        if time.monotonic() - began > max(_ALONE_S, _SLOW_S * len(made)):
            break
        made.append(task(files[len(made)]))
    return [*made, *at_once(task, files[len(made) :])]


def _refuse(path: str, first: bytes, last: bytes) -> None:
    """Raise the error for a file that is not Parquet, given its first and last bytes."""
    if last == _ENCRYPTED_MAGIC:
        raise MetadataError(f"{path} must not be encrypted, got an encrypted footer. Decrypt the file first")
    if first == MAGIC:
        raise MetadataError(
            f"{path} is a truncated or damaged Parquet file: it must end with {MAGIC!r}, got {last!r}. Write the file "
            "again, or delete it"
        )
    raise NoParquetError(f"{path} is not a Parquet file: it must end with {MAGIC!r}, got {last!r}")


def _length_in(tail: bytes) -> int:
    return int.from_bytes(tail[-8:-4], "little")


def digest_of(footer: bytes) -> str:
    """Return the digest that identifies a file's content: a hash of its footer bytes."""
    return hashlib.sha256(footer).hexdigest()[:32]


def footer_in(tail: bytes, size: int, path: str) -> bytes | None:
    """Return the footer in the last bytes of a file; None if the footer is longer than these bytes.

    Args:
        tail: Last bytes of the file.
        size: Size of the file.
        path: Path of the file, for messages.

    Raises:
        MetadataError: The file is not Parquet, is damaged, or has a footer of more than `MAX_FOOTER_BYTES`.
    """
    if tail[-4:] != MAGIC:
        raise NoParquetError(f"{path} is not a Parquet file: it must end with {MAGIC!r}, got {tail[-4:]!r}")
    length = _length_in(tail)
    if length > size - 12 or length == 0:
        raise MetadataError(
            f"{path} is damaged: its last bytes must declare a footer of 1 to {size - 12:,} bytes, got {length:,}"
        )
    if length > MAX_FOOTER_BYTES:
        raise MetadataError(
            f"the footer of {path} must have at most {MAX_FOOTER_BYTES:,} bytes, got {length:,}. Write fewer row "
            "groups per file"
        )
    return None if length + END_BYTES > len(tail) else tail[-END_BYTES - length : -END_BYTES]


_MOST_ETAG_BYTES = 1024


@dataclasses.dataclass(frozen=True)
class KeptTails:
    """Disk cache of the tails (footers, versions) of a dataset's files. Thread-safe."""

    cache: DiskCache
    """Cache that stores the tails."""

    location: Location
    """Location of the dataset."""

    told: Mapping[str, FileVersion]
    """Versions of files from a listing or manifest; files without one are not cached."""

    def tail(self, path: str, fetch: Callable[[], Tail]) -> Tail:
        """Return the tail of a file from the cache; fetch and cache it on a miss.

        If another process is fetching the tail, this call waits for it. A tail is not cached if its version differs
        from the listed one. A version with only size and time is not cached either, because two writes may have equal
        times.

        Args:
            path: The file, relative to the root.
            fetch: Function that fetches the tail.

        Raises:
            StorageError: `fetch` raised it.
            MetadataError: `fetch` raised it.
        """
        key = self._key(path)
        if key is None:
            return fetch()
        version, others = self.told[path], list[Tail]()

        def entry() -> bytes:
            tail = fetch()
            if not _is_told(tail, version):
                others.append(tail)
                raise _AnotherVersionError
            return _packed(tail)

        try:
            with (
                Request(self.location.url, f"read the footer of {path}", self.location.timeout_s),
                self.cache.entry(key, entry) as view,
            ):
                tail = _unpacked(bytes(view), version)
        except _AnotherVersionError:
            return others[0]
        if tail is None:  # the entry is intact, but it has another format or belongs to another file version
            self.forget(path)
            return fetch()
        return tail

    def forget(self, *paths: str) -> None:
        """Remove the tails of files from the cache, because one of them may be damaged."""
        self.cache.discard([key for key in map(self._key, paths) if key is not None])

    def _key(self, path: str) -> str | None:
        return footer_key(self.location, path, self.told[path]) if path in self.told else None


class _AnotherVersionError(Exception):
    """Raised to prevent caching: the fetched tail has another version than listed."""


def _is_told(tail: Tail, version: FileVersion) -> bool:
    kept = tail.version
    return (
        kept is not None
        and kept.size == tail.size == version.size
        and bool(kept.strong_etag)
        and _bare(kept.etag) == _bare(version.etag)
    )


def _bare(etag: str) -> str:
    """Return an etag without quotes, because some listings omit the quotes."""
    return etag.strip('"')


def _packed(tail: Tail) -> bytes:
    """Encode a footer and the file's etag as a cache entry.

    Later requests use the etag to require the version.
    """
    etag = b"" if tail.version is None else tail.version.etag.encode("utf-8", "surrogatepass")
    return len(etag).to_bytes(4, "little") + etag + tail.footer


def _unpacked(entry: bytes, version: FileVersion) -> Tail | None:
    """Decode a cache entry; None if it is damaged or of another file version."""
    length = int.from_bytes(entry[:4], "little")
    etag, footer = entry[4 : 4 + length], entry[4 + length :]
    if length > _MOST_ETAG_BYTES or not 0 < len(footer) <= min(MAX_FOOTER_BYTES, version.size):
        return None
    tail = Tail(version.size, footer, FileVersion(version.size, etag.decode("utf-8", "replace")))
    return tail if _is_told(tail, version) else None
