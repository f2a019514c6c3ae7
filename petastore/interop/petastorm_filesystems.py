"""Petastorm's ways from a URL to a filesystem and a path, for programs that look at files themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import ParseResult, urlparse

from pyarrow import fs

from petastore.errors import InvalidArgumentError
from petastore.selecting.retired import HdfsDriver, Retired, tell_retired
from petastore.storage.files.file_systems import filesystem_and_path

__all__ = ["FilesystemResolver", "get_filesystem_and_path_or_paths"]


class FilesystemResolver:
    """The filesystem of a URL, one of fsspec's: it has `exists`, `open`, `ls`, `isdir` and `rm`, as Petastorm's had.

    Args:
        dataset_url: A URL or a local path, or what `urlparse` made of one.
        hadoop_configuration: Of no effect: Hadoop's own configuration files are read.
        connector: Of no effect: pyarrow's HDFS filesystem finds and follows the name nodes.
        hdfs_driver: Of no effect.
        user: Who logs in to HDFS; None is who runs this.
        storage_options: Keyword arguments of the fsspec filesystem.

    Raises:
        InvalidArgumentError: The URL cannot be understood.
        StorageError: The storage cannot be reached.
        MissingExtraError: The scheme needs a package that is not installed.

    Example:
        >>> import tempfile
        >>> resolver = FilesystemResolver(f"file://{tempfile.mkdtemp()}")
        >>> resolver.filesystem().exists(resolver.get_dataset_path())
        True
    """

    def __init__(
        self,
        dataset_url: str | ParseResult,
        hadoop_configuration: Any = None,  # noqa: ARG002 - names of Petastorm's
        connector: Any = None,  # noqa: ARG002
        hdfs_driver: HdfsDriver | None = None,
        user: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        tell_retired(Retired(hdfs_driver=hdfs_driver))
        self._url = dataset_url if isinstance(dataset_url, str) else dataset_url.geturl()
        self._options = {**({} if user is None else {"user": user}), **(storage_options or {})}
        self._opened, self._path = filesystem_and_path(self._url, self._options, None)

    def filesystem(self) -> Any:
        """The fsspec filesystem."""
        return _fsspec_of(self._opened)

    def filesystem_factory(self) -> Callable[[], Any]:
        """A function that makes it again; it pickles, with the storage options that were given."""
        return functools.partial(_filesystem_of, self._url, self._options)

    def get_dataset_path(self) -> str:
        """The path of the URL in it; on object stores it begins with the bucket."""
        return self._path

    def parsed_dataset_url(self) -> ParseResult:
        """What `urlparse` makes of the URL."""
        return urlparse(self._url)


def get_filesystem_and_path_or_paths(
    url_or_urls: str | Sequence[str],
    hdfs_driver: HdfsDriver | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> tuple[Any, str | list[str]]:
    """The fsspec filesystem of a URL and the path in it, or the list of paths where a list was given.

    Args:
        url_or_urls: One, or several of one scheme and host.
        hdfs_driver: Of no effect.
        storage_options: Keyword arguments of the fsspec filesystem.
        filesystem: Given back as it is.

    Raises:
        InvalidArgumentError: The URLs are of several schemes or hosts.

    Example:
        >>> get_filesystem_and_path_or_paths("memory://bucket/frames")[1]
        '/bucket/frames'
    """
    tell_retired(Retired(hdfs_driver=hdfs_driver))
    urls = [url_or_urls] if isinstance(url_or_urls, str) else list(url_or_urls)
    places = {(parsed.scheme or "file", parsed.netloc) for parsed in map(urlparse, urls)}
    if len(places) != 1:
        schemes = ", ".join(sorted(f"{scheme}://" for scheme, _ in places)) or "there is none"
        raise InvalidArgumentError(
            f"URLs of one filesystem share scheme and host, but these do not ({schemes}); ask for each"
        )
    found = [filesystem_and_path(url, storage_options, filesystem) for url in urls]
    paths = [path for _, path in found]
    return filesystem or _fsspec_of(found[0][0]), paths[0] if isinstance(url_or_urls, str) else paths


def _filesystem_of(url: str, options: Mapping[str, Any]) -> Any:
    return _fsspec_of(filesystem_and_path(url, options, None)[0])


def _fsspec_of(opened: Any) -> Any:
    """Arrow's own filesystems have none of the methods that Petastorm's programs call."""
    from fsspec.implementations.arrow import ArrowFSWrapper
    from fsspec.implementations.local import LocalFileSystem

    from petastore.storage.files.s3 import S3FileSystem

    if isinstance(opened, fs.LocalFileSystem):
        return LocalFileSystem()
    if not isinstance(opened, fs.PyFileSystem):
        return ArrowFSWrapper(opened)
    store = opened.handler.fs
    return store.s3fs if isinstance(store, S3FileSystem) else store
