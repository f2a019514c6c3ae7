"""Ranges of bytes by fsspec, for whatever there is a file system of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fsspec.caching import ReadAheadCache
from fsspec.spec import AbstractFileSystem

from petastore.storage.files.fsspec_listings import etag_in, forget_listings
from petastore.storage.files.s3 import S3FileSystem
from petastore.storage.requests.client import Answer, FileVersion, tail_between_looks
from petastore.storage.requests.failure_kinds import attribute

__all__ = ["FsspecClient"]

_TIMES = (
    "LastModified", "last_modified", "updated", "mtime", "modified", "modificationTime", "modify", "created",
)  # fmt: skip
"""What file systems call the time of the last write; files in memory are made anew, and tell when."""


class FsspecClient:
    """Asks a file system of fsspec by `cat_file`. Its answers do not tell of which version they are.

    Args:
        store: The file system; a forked child makes its own like it. Of S3's it is that of s3fs which is asked.
    """

    def __init__(self, store: Any) -> None:
        self._given = store
        self._made_in: int = attribute(store, "_pid") or os.getpid()

    @property
    def system(self) -> str:
        """The class of the file system."""
        return type(self._given).__name__

    @property
    def _store(self) -> Any:
        if isinstance(self._given, S3FileSystem):
            return self._given.s3fs
        if self._made_in != os.getpid():
            like = self._given
            self._given = type(like)(*like.storage_args, **{**like.storage_options, "skip_instance_cache": True})
            self._made_in = os.getpid()
        return self._given

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:  # noqa: ARG002 - it cannot be demanded
        """Some bytes of a file, of the version that it has now."""
        return Answer(_bytes_of(self._store, path, offset, length), None)

    def tail(self, path: str, length: int) -> Answer:
        """The last bytes of a file, between two looks at its version."""
        return tail_between_looks(self, path, length)

    def version(self, path: str) -> FileVersion:
        """The version that a file has now; the storage is asked, whatever was listed before."""
        store = self._store
        forget_listings(store, path)
        return _version_in(store.info(path))


def _bytes_of(store: Any, path: str, offset: int, length: int) -> Any:
    """Some bytes of a file and no more: the `cat_file` that most file systems have asks for megabytes."""
    if getattr(store.cat_file, "__func__", None) is not AbstractFileSystem.cat_file:
        return store.cat_file(path, start=offset, end=offset + length)
    with store.open(path, mode="rb") as source:
        if isinstance(attribute(source, "cache"), ReadAheadCache):
            # What each of these files defines, and what they read ahead through.
            return source._fetch_range(offset, min(offset + length, source.size))  # noqa: SLF001
        source.seek(offset)
        return source.read(length)


def _version_in(info: Mapping[str, Any]) -> FileVersion:
    modified = next((str(info[name]) for name in _TIMES if info.get(name) is not None), "")
    return FileVersion(int(info.get("size") or 0), etag_in(info), modified)
