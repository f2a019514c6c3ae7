"""fsspec filesystems as stores, in which a failed request raises an error.

fsspec's `exists`, `isfile`, `isdir` and `walk` return False or omit a directory on any failure. After a broken
connection, files would then be missing from a dataset without an error. Therefore a failed request never means here
that a file does not exist.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from fsspec.asyn import AsyncFileSystem
from fsspec.caching import ReadAheadCache
from fsspec.spec import AbstractFileSystem
from pyarrow import fs

from petastore.storage.requests.failure_kinds import attribute, kind_of
from petastore.storage.requests.retries import MOST_REREADS
from petastore.storage.stores.interface import Answer, FileVersion, ListedInfo, Store, are_buckets, servers_in

__all__ = ["FsspecStore", "etag_in", "forget_listings"]

_ETAGS = ("generation", "ETag", "etag", "e_tag", "md5Hash", "content_md5", "blob_id", "sha", "hex")
_TIMES = (
    "LastModified", "last_modified", "updated", "mtime", "modified", "modificationTime", "modify", "created",
)  # fmt: skip
"""Keys of the modification time in fsspec's `info`.

For in-memory files, it is the creation time.
"""
_KINDS = {"file": fs.FileType.File, "directory": fs.FileType.Directory}


class FsspecStore(Store):
    """fsspec filesystem as a `Store`; its reads do not return the version of the file.

    Args:
        filesystem: An fsspec filesystem; a forked child creates a new one with the same options.

    Example:
        >>> import fsspec
        >>> store = FsspecStore(fsspec.filesystem("memory"))
        >>> store.server, store.get_file_info(fs.FileSelector("/nowhere", allow_not_found=True))
        (('memory',), [])
    """

    def __init__(self, filesystem: Any) -> None:
        self._given = filesystem
        self._made_in: int = attribute(filesystem, "_pid") or os.getpid()
        protocols = attribute(filesystem, "protocol") or ()
        self.system = type(filesystem).__name__
        self.type_name = f"py::fsspec+{protocols[0] if isinstance(protocols, list) else protocols}"
        self.storage_options: Mapping[str, Any] = attribute(filesystem, "storage_options") or {}
        self.has_buckets = are_buckets(protocols)
        self.has_cheap_rename, self.is_retried = not self.has_buckets, not self.has_buckets

    @property
    def fs(self) -> Any:
        """The fsspec filesystem of this process."""
        if self._made_in != os.getpid():
            like = self._given
            self._given = type(like)(*like.storage_args, **{**like.storage_options, "skip_instance_cache": True})
            self._made_in = os.getpid()
        return self._given

    def __reduce__(self) -> Any:
        return FsspecStore, (self._given,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FsspecStore) and bool(self._given == other._given)

    def __hash__(self) -> int:
        return hash(self._given)

    @property
    def is_anonymous(self) -> bool:  # type: ignore[override]
        """Whether requests are unsigned, as far as the filesystem tells."""
        return bool(attribute(self._given, "anon"))

    @property
    def server(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kind of the filesystem, and its server."""
        options = self.storage_options
        protocol = str(attribute(self._given, "protocol"))
        return (protocol, *servers_in({**options, **(options.get("client_kwargs") or {})}))

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:  # noqa: ARG002 - cannot be required
        """Read a byte range of a file in its current version; `version` is ignored."""
        return Answer(_bytes_of(self.fs, path, offset, length), None)

    def version(self, path: str) -> FileVersion:
        """Request the current version of a file."""
        store = self.fs
        forget_listings(store, path)
        return _version_in(store.info(path))

    def read_whole(self, path: str, max_bytes: int) -> tuple[int, bytes]:
        """Return the size of a file and its bytes; no bytes if larger than `max_bytes`.

        If the size changes during the read, the file is read again, at most five times in total.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        store, size, data = self.fs, 0, b""
        for _ in range(MOST_REREADS):
            self.forget_listings(path)
            size = int(store.size(path))
            if size > max_bytes:
                return size, b""
            # An end is passed, because some filesystems otherwise request the size again. One additional byte is
            # requested, which arrives only if the file has become longer.
            data = bytes(store.cat_file(path, start=0, end=size + 1)) if size else b""
            if len(data) == size:
                break
        return size, data

    def put(self, path: str, data: bytes) -> None:
        """Write a file by one request."""
        self.fs.pipe_file(path, data)

    def bucket_is_missing(self, bucket: str) -> bool:
        """Return whether a bucket does not exist, or is invisible to these credentials."""
        return not self.fs.exists(bucket)

    def forget_listings(self, path: str | None = None) -> None:
        """Clear the filesystem's listing cache."""
        forget_listings(self.fs, path)

    def file_at(self, path: str) -> Any:
        """Return the `pyarrow.fs.FileInfo` of a path (type and size).

        A missing path has the type NotFound.
        """
        try:
            return _listed(path, self.fs.info(path))
        except FileNotFoundError as problem:
            _refuse_unless_missing(problem)
            return fs.FileInfo(path, fs.FileType.NotFound)

    def list_directory(self, selector: Any) -> list[Any]:
        """Return a `pyarrow.fs.FileInfo` for each entry of a directory.

        Raises:
            FileNotFoundError: The directory does not exist, and the selector does not allow that.
            NotADirectoryError: The path is a file.
        """
        base = selector.base_dir
        if not self.fs.isdir(base) and not self._is_directory(base, missing_is_fine=selector.allow_not_found):
            return []
        here = base.strip("/")  # some filesystems list the directory itself, too
        entries = self._walked(base) if selector.recursive and self._walks_itself else self._found(base, selector)
        return [_listed(path, info) for path, info in entries.items() if path.strip("/") != here]

    def _found(self, base: str, selector: Any) -> dict[str, Any]:
        if not selector.recursive:
            return {info["name"]: info for info in self.fs.ls(base, detail=True)}
        entries: dict[str, Any] = self.fs.find(base, maxdepth=None, withdirs=True, detail=True)
        return entries

    @property
    def _walks_itself(self) -> bool:
        """Whether to list each directory separately, instead of calling `find`.

        fsspec's default `find` skips directories that it cannot list, so that files would be missing without an error.
        """
        if isinstance(self.fs, AsyncFileSystem):
            return type(self.fs)._find is AsyncFileSystem._find  # noqa: SLF001
        return getattr(self.fs.find, "__func__", None) is AbstractFileSystem.find

    def _walked(self, base: str) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        waiting = [base]
        while waiting:
            try:
                listed = self.fs.ls(waiting.pop(), detail=True)
            except FileNotFoundError as problem:  # the directory was removed during the listing
                _refuse_unless_missing(problem)
                continue
            new = [info for info in listed if info["name"] not in entries]
            entries.update({info["name"]: info for info in new})
            waiting += [info["name"] for info in new if info["type"] == "directory"]
        return entries

    def _is_directory(self, path: str, *, missing_is_fine: bool) -> bool:
        try:
            kind = self.fs.info(path)["type"]
        except FileNotFoundError as problem:
            _refuse_unless_missing(problem)
            if missing_is_fine:
                return False
            raise
        if kind != "directory":
            raise NotADirectoryError(path)
        return True

    def delete_file(self, path: str) -> None:
        """Delete a file; some object stores do not report a missing one.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        try:
            self.fs.rm_file(path)
        except NotImplementedError:
            self.fs.rm(path)

    def move(self, src: str, dest: str) -> None:
        """Rename a file or a directory."""
        if getattr(self.fs.mv, "__func__", None) is not AbstractFileSystem.mv or self.fs.info(src)["type"] != "file":
            self.fs.mv(src, dest, recursive=True)
            return
        # fsspec's `mv` is not used, because it checks the source first and copies nothing if this check fails.
        self.fs.cp_file(src, dest)
        self.delete_file(src)

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """Make a directory."""
        with contextlib.suppress(FileExistsError):
            self.fs.mkdir(path, create_parents=recursive)

    def delete_dir(self, path: str) -> None:
        """Delete a directory and everything in it."""
        self.fs.rm(path, recursive=True)

    def open_input_file(self, path: str) -> Any:
        """Open a file for random-access reading.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")

    def open_output_stream(self, path: str, compression: str | None = None) -> Any:  # noqa: ARG002 - Arrow's interface
        """Open a file for writing."""
        return pa.PythonFile(self.fs.open(path, mode="wb"), mode="w")


def _listed(path: str, info: Mapping[str, Any]) -> Any:
    kind = _KINDS.get(info["type"], fs.FileType.Unknown)
    size = None if kind == fs.FileType.Directory else info["size"]  # some filesystems return a size for directories
    listed = ListedInfo(path, kind, size=size, mtime=info.get("mtime"))
    listed.etag = etag_in(info) if listed.is_file else ""
    return listed


def _bytes_of(store: Any, path: str, offset: int, length: int) -> Any:
    """Read a byte range of a file, with a request of exactly this range.

    fsspec's default `cat_file` fetches megabytes, so only a filesystem's own `cat_file` is called.
    """
    if getattr(store.cat_file, "__func__", None) is not AbstractFileSystem.cat_file:
        return store.cat_file(path, start=offset, end=offset + length)
    with store.open(path, mode="rb") as source:
        if isinstance(attribute(source, "cache"), ReadAheadCache):
            # File classes with a read-ahead cache define `_fetch_range`, which fetches exactly the requested range.
            return source._fetch_range(offset, min(offset + length, source.size))  # noqa: SLF001
        source.seek(offset)
        return source.read(length)


def _version_in(info: Mapping[str, Any]) -> FileVersion:
    modified = next((str(info[name]) for name in _TIMES if info.get(name) is not None), "")
    return FileVersion(int(info.get("size") or 0), etag_in(info), modified)


def etag_in(info: Mapping[str, Any]) -> str:
    """Return the etag (version name) of a file in an fsspec filesystem, or `""`.

    Args:
        info: Result of the filesystem's `info` for the file.

    Example:
        >>> etag_in({"name": "a", "size": 7, "ETag": '"9a0364b9"'}), etag_in({"name": "a", "size": 7})
        ('"9a0364b9"', '')
    """
    return next((str(info[name]) for name in _ETAGS if info.get(name) is not None), "")


def forget_listings(store: Any, path: str | None = None) -> None:
    """Clear the listing cache of an fsspec filesystem.

    Listings may be out of date, because other processes also write.

    Args:
        store: Filesystem as a store.
        path: Path whose cached listings are removed; None removes all.
    """
    if path is not None:
        with contextlib.suppress(TypeError):  # some filesystems accept no path, and clear all
            store.invalidate_cache(path)
            return
    store.invalidate_cache()


def _refuse_unless_missing(problem: FileNotFoundError) -> None:
    """Raise the exception again, unless it means that a file is missing.

    Some filesystems raise FileNotFoundError for any failed request, also if the host is unknown.
    """
    if kind_of(problem)[0] != "missing":
        raise problem
