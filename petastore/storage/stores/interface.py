"""Storage interface: list, read, write and delete files.

A read can require a version of the file, and usually returns the version of the bytes. Arrow's filesystems are stores,
too (`ArrowStore`): local disks, HDFS, `filesystem=`, and object stores in forked children.
`range_file` makes a file object for Arrow from a function that reads byte ranges.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from petastore.storage.requests.failures import shown_url
from petastore.storage.requests.retries import FinalError

__all__ = [
    "Answer",
    "ArrowStore",
    "FileVersion",
    "ListedInfo",
    "NoBucketError",
    "NotTheVersionError",
    "Store",
    "WrongRegionError",
    "are_buckets",
    "listed_etag",
    "range_file",
    "servers_in",
    "store_of",
]


class ListedInfo(fs.FileInfo):  # type: ignore[misc]
    """Listed file with its etag, which Arrow's `FileInfo` does not have."""

    etag = ""


def listed_etag(info: fs.FileInfo) -> str:
    """Return the etag in a listing; empty if the filesystem has none."""
    return str(getattr(info, "etag", ""))


_SECONDS = len("2026-11-26 18:00:00")


@dataclasses.dataclass(frozen=True, slots=True)
class FileVersion:
    """Version of a file: etag, modification time and size, as far as known.

    Example:
        >>> FileVersion(1024, '"9a0364b9"'), str(FileVersion(1024, '"9a0364b9"'))
        (FileVersion(size=1024, etag='"9a0364b9"', modified=''), '1,024 bytes, etag "9a0364b9"')
    """

    size: int
    """Size in bytes."""

    etag: str = ""
    """Etag or generation of the file version; empty if the storage has none."""

    modified: str = ""
    """Modification time as given by the storage; empty if unknown."""

    @property
    def tells(self) -> bool:
        """Whether the version has an etag or a time; size alone is not sufficient."""
        return bool(self.etag or self.modified)

    @property
    def strong_etag(self) -> str:
        """Etag that requests can require; empty if there is only a weak etag, or none."""
        return "" if self.etag.startswith("W/") else self.etag

    def is_same(self, other: FileVersion) -> bool:
        """Return whether two versions are equal: same size, and same etag or same time.

        Times are compared only if an etag is missing, or if the etags have different formats; an unknown time equals
        any time.

        Example:
            >>> FileVersion(7, '"a"', "monday").is_same(FileVersion(7, '"a"', "tuesday"))
            True
            >>> FileVersion(7, "", "monday").is_same(FileVersion(7, "", "tuesday"))
            False
        """
        if self is other:
            return True
        if self.size != other.size:
            return False
        if self.etag and other.etag:
            if self.etag.isdigit() != other.etag.isdigit():
                # For the same Google object Arrow reports a generation, and obstore an etag.
                return self.modified[:_SECONDS] == other.modified[:_SECONDS] or not (self.modified and other.modified)
            return _opaque(self.etag) == _opaque(other.etag)
        return not (self.modified and other.modified) or self.modified == other.modified

    def __str__(self) -> str:
        name = f", etag {self.etag}" if self.etag else f", written {self.modified}" if self.modified else ""
        return f"{self.size:,} bytes{name}"


def _opaque(etag: str) -> str:
    """Return an etag without quotes, because some clients omit the quotes."""
    return etag.removeprefix("W/").strip('"')


class Answer(NamedTuple):
    """Result of one read request: the bytes, and the version of the file."""

    data: Any
    """Bytes, as an object with the buffer protocol."""

    version: FileVersion | None
    """Version of the bytes; None if the response does not contain it."""


class _RangeFile:
    """Python file object for Arrow; a function fetches the bytes of each read."""

    def __init__(self, size: int, read: Callable[[int, int], Any]) -> None:
        self._size, self._read = size, read
        self._at = 0
        self.closed = False

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        self._at = place + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> pa.Buffer:
        left = max(self._size - self._at, 0)
        length = min(size, left) if size >= 0 else left
        data = pa.py_buffer(self._read(self._at, length) if length else b"")
        self._at += data.size
        return data

    def close(self) -> None:
        self.closed = True


def range_file(size: int, read: Callable[[int, int], Any]) -> pa.PythonFile:
    """Return a file object for Arrow; a function fetches the bytes of each read.

    For one thread.

    Args:
        size: Size of the file.
        read: Function that takes offset and length, and returns the bytes as an object with the buffer protocol. Its
            exceptions pass through Arrow.
    """
    return pa.PythonFile(_RangeFile(size, read), mode="r")


class Store:
    """Base class of storage clients. Thread-safe.

    Each method makes its requests once, without retries, in the calling thread. Methods have the same names as in
    `pyarrow.fs.FileSystem`. Failures raise built-in exceptions (`TimeoutError`, `ConnectionError`, `PermissionError`,
    `FileNotFoundError`), or exceptions of the filesystem.
    """

    system = ""
    """Name of the file system, for messages."""

    type_name = ""
    """Kind of the filesystem, as in `pyarrow.fs.FileSystem.type_name`."""

    server: tuple[str, ...] = ()
    """Kind of the filesystem and name of its server, without credentials."""

    storage_options: Mapping[str, Any] = {}
    """Options of the store, which may contain credentials."""

    is_anonymous = False
    """Whether requests are unsigned, as far as known."""

    has_buckets = False
    """Whether paths begin with a bucket, in which directories need not be created."""

    has_cheap_rename = True
    """Whether a rename is atomic; on object stores it is a copy, and a put is atomic."""

    is_retried = True
    """Whether petastore retries failed requests.

    False for a local disk and for a user's own client.
    """

    ends_its_requests = False
    """Whether the client's own timeouts end a request that hangs."""

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:
        """Read a byte range of a file.

        Args:
            path: Path in the filesystem of the dataset.
            offset: Position of the first byte.
            length: Number of bytes. If the storage sends more, the rest is not loaded into memory if possible.
            version: Required version, if the storage supports it; None means any.

        Raises:
            NotTheVersionError: The file has another version.
        """
        raise NotImplementedError

    def version(self, path: str) -> FileVersion:
        """Request the current version of a file."""
        raise NotImplementedError

    def tail(self, path: str, length: int) -> Answer:
        """Read the last bytes of a file in its current version, and return the version.

        Args:
            path: Path in the filesystem of the dataset.
            length: Number of bytes, at least 1; a shorter file is returned whole.

        Raises:
            NotTheVersionError: The file is empty.
            ConnectionError: The file was written meanwhile.
        """
        version = self.version(path)
        if not version.size:
            raise NotTheVersionError(version)
        answer = self.get(path, max(version.size - length, 0), min(length, version.size), None)
        if not self.version(path).is_same(version):
            raise ConnectionError("another program changed the file while its footer was read")
        return answer._replace(version=version)

    def read_whole(self, path: str, max_bytes: int) -> tuple[int, bytes]:
        """Return the size of a file and its bytes; no bytes if larger than `max_bytes`.

        Size and bytes are of one version of the file, unless a subclass says otherwise.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        with self.open_input_file(path) as source:
            size = source.size()
            return size, source.read(size) if size <= max_bytes else b""

    def put(self, path: str, data: bytes) -> None:
        """Write a file; atomically on object stores."""
        with self.open_output_stream(path) as sink:
            sink.write(data)

    def open_input_file(self, path: str) -> Any:
        """Open a file for random-access reading.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        raise NotImplementedError

    def open_input_stream(self, path: str) -> Any:
        """Open a file for reading."""
        return self.open_input_file(path)

    def open_output_stream(self, path: str, compression: str | None = None) -> Any:
        """Open a file for writing."""
        raise NotImplementedError

    def get_file_info(self, paths_or_selector: Any) -> Any:
        """Return type and size of a path, of several, or of the entries of a directory.

        Raises:
            FileNotFoundError: The directory does not exist, and the selector does not allow that.
            NotADirectoryError: The path is a file.
        """
        if isinstance(paths_or_selector, fs.FileSelector):
            return self.list_directory(paths_or_selector)
        if not isinstance(paths_or_selector, str):
            return [self.get_file_info(path) for path in paths_or_selector]
        return self.file_at(paths_or_selector)

    def file_at(self, path: str) -> Any:
        """Request the type and size of a file; a directory may be reported as missing."""
        raise NotImplementedError

    def has_directory(self, path: str) -> bool:
        """Return whether a path is a directory, with the fewest requests."""
        return bool(self.file_at(path).type == fs.FileType.Directory)

    def list_directory(self, selector: Any) -> list[Any]:
        """Return the entries of a directory."""
        raise NotImplementedError

    def forget_listings(self, path: str | None = None) -> None:
        """Clear cached listings, because other processes also write."""

    def bucket_is_missing(self, bucket: str) -> bool:  # noqa: ARG002 - used by object stores
        """Return whether a bucket does not exist, or these credentials may not see it."""
        return False


class NotTheVersionError(FinalError):
    """A file has another version than the requested one.

    Caught inside `petastore.storage`.

    Args:
        now: Current version of the file; None if unknown.
    """

    def __init__(self, now: FileVersion | None) -> None:
        super().__init__(str(now))
        self.now = now


class WrongRegionError(FinalError):
    """The S3 bucket is in another region. Caught inside `petastore.storage`."""


class NoBucketError(FileNotFoundError):
    """The bucket does not exist, so that no file in it exists."""

    def __init__(self, said: str) -> None:
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT), said)
        self._said = said

    def __str__(self) -> str:
        return self._said


_SERVERS = ("endpoint_url", "endpoint", "endpoint_override", "account_name", "account_host", "host", "port")
"""Filesystem options that select the server, if the URL does not."""

_WITH_BUCKETS = frozenset({
    "abfs", "abfss", "adl", "az", "gcs", "gs", "oci", "oss", "r2", "s3", "s3a", "tos", "wasb", "wasbs",
})  # fmt: skip


def store_of(filesystem: Any) -> Store:
    """Return the filesystem as a store; wrap a `pyarrow.fs.FileSystem`."""
    return filesystem if isinstance(filesystem, Store) else ArrowStore(filesystem)


class ArrowStore(Store):
    """Arrow filesystem as a `Store`; its reads do not return the version of the file.

    Each read opens the file.

    Args:
        filesystem: A `pyarrow.fs.FileSystem`.

    Example:
        >>> ArrowStore(fs.SubTreeFileSystem("/data", fs.LocalFileSystem())).server
        ('below /data/', 'local')
    """

    def __init__(self, filesystem: Any) -> None:
        self.filesystem, self.type_name = filesystem, str(filesystem.type_name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.filesystem, name)

    @property
    def system(self) -> str:  # type: ignore[override]
        """Class name of the filesystem, or of the Python handler inside it."""
        return type(getattr(self.filesystem, "handler", self.filesystem)).__name__

    @property
    def server(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kind of the filesystem and its server, without credentials."""
        if isinstance(self.filesystem, fs.SubTreeFileSystem):
            return (f"below {self.filesystem.base_path}", *ArrowStore(self.filesystem.base_fs).server)
        _, made_with = self.filesystem.__reduce__()  # Arrow's filesystems expose their options only here
        options = next((given for given in made_with if isinstance(given, dict)), {})
        return (self.type_name, *servers_in(options))

    @property
    def has_buckets(self) -> bool:  # type: ignore[override]
        """Whether the filesystem is an object store, judged by the filesystem's name."""
        of_fsspec = self.type_name.partition("+")[2]
        return are_buckets(re.findall(r"[a-z0-9]+", of_fsspec) if self.type_name.startswith("py::") else self.type_name)

    @property
    def has_cheap_rename(self) -> bool:  # type: ignore[override]
        """Whether a rename is atomic."""
        return not self.has_buckets

    @property
    def is_retried(self) -> bool:  # type: ignore[override]
        """Whether petastore must retry failed requests.

        False for a local disk, and for object stores, because Arrow's clients retry.
        """
        return not (self.type_name == "local" or self.has_buckets)

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:  # noqa: ARG002 - cannot be required
        """Read a byte range of a file in its current version; `version` is ignored."""
        with self.filesystem.open_input_file(path) as source:
            source.seek(offset)
            return Answer(source.read_buffer(length), None)

    def version(self, path: str) -> FileVersion:
        """Request the current version of a file.

        It has the etag of an object, and the modification time of any file.
        """
        info = self.filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return FileVersion(info.size or 0, self._etag(path), _written(info.mtime_ns))

    def _etag(self, path: str) -> str:
        if not self.has_buckets:
            return ""
        with self.filesystem.open_input_file(path) as source:
            told = {_text(name).lower(): _text(value) for name, value in (source.metadata() or {}).items()}
        return told.get("generation") or told.get("etag", "")

    def get_file_info(self, paths_or_selector: Any) -> Any:
        """Return type and size of a path, of several, or of the entries of a directory."""
        return self.filesystem.get_file_info(paths_or_selector)

    def file_at(self, path: str) -> Any:
        """Return the type and size of a path."""
        return self.filesystem.get_file_info(path)

    def open_input_file(self, path: str) -> Any:
        """Open a file for random-access reading."""
        return self.filesystem.open_input_file(path)

    def open_output_stream(self, path: str, compression: str | None = "detect") -> Any:
        """Open a file for writing."""
        return self.filesystem.open_output_stream(path, compression=compression)


def _text(value: str | bytes) -> str:
    """Return metadata as text; before version 19, pyarrow returns bytes."""
    return value if isinstance(value, str) else value.decode()


def _written(time_ns: int | None) -> str:
    """Format a modification time in full precision; `""` if it is unknown.

    With whole seconds, two writes within a second would have the same time.
    """
    if time_ns is None:
        return ""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09}"


def are_buckets(protocols: str | Iterable[str]) -> bool:
    """Return whether a filesystem name is that of an object store.

    Example:
        >>> are_buckets(("s3", "s3a")), are_buckets("file")
        (True, False)
    """
    return not _WITH_BUCKETS.isdisjoint([protocols] if isinstance(protocols, str) else protocols)


def servers_in(options: Mapping[str, Any]) -> list[str]:
    """Return the options that name a filesystem's server, as sorted texts.

    A text has the form `name=value`; secrets in values are removed.
    """
    told = {name: options.get(name) for name in _SERVERS}
    return sorted(f"{name}={shown_url(str(value))}" for name, value in told.items() if value is not None)
