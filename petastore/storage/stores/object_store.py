"""Object store client: read, list, write and delete objects with obstore.

The objects are in S3, Google Cloud Storage or Azure, or on web servers.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from pyarrow import fs

from petastore.forks import Lock
from petastore.storage.requests.failures import shown_url
from petastore.storage.requests.retries import DEFAULT_STORAGE_TIMEOUT_S
from petastore.storage.stores.cloud_settings import azure_settings, gcs_settings, s3_settings
from petastore.storage.stores.interface import (
    Answer,
    FileVersion,
    ListedInfo,
    NoBucketError,
    NotTheVersionError,
    Store,
    WrongRegionError,
    range_file,
    store_of,
)
from petastore.storage.stores.obstore_errors import as_builtin, with_builtins
from petastore.storage.stores.store_settings import (
    StoreSettings,
    http_settings,
    linked_addresses,
    request_limits,
    server_and_key,
)

__all__ = ["ObjectStore"]


class ObjectWriter(io.RawIOBase):
    """File object for writing an object, which becomes visible when it is closed.

    Args:
        writer: obstore's writer of the object.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def writable(self) -> bool:
        """Return True: the file object can only be written."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        length = memoryview(data).nbytes
        with_builtins(lambda: self._writer.write(bytes(data)))
        return length

    def close(self) -> None:
        """Close the writer, which makes the object visible."""
        if not self.closed:
            try:
                with_builtins(self._writer.close)
            finally:
                super().close()


_SETTINGS: dict[str, Callable[[Mapping[str, Any]], StoreSettings]] = {
    "s3": s3_settings,
    "gs": gcs_settings,
    **dict.fromkeys(("abfs", "abfss", "az"), azure_settings),
    **dict.fromkeys(("http", "https"), http_settings),
}
_MOST_STORES = 256
"""Maximum number of cached obstore clients.

Each signed URL of a web server has its own client.
"""
_MOST_PAGE_BYTES = 16 * 1024 * 1024
_UNKNOWN_TIME = "1970-01-01 00:00:00+00:00"
_T = TypeVar("_T")
_P = ParamSpec("_P")

_used_in: int | None = None
"""Id of the process that first used obstore."""


def _in_each_process(method: Callable[Concatenate[ObjectStore, _P], _T]) -> Callable[Concatenate[ObjectStore, _P], _T]:
    """Decorator of requests: a forked child uses Arrow or fsspec instead of obstore.

    obstore does not work in a child that is forked after obstore was used.
    """

    @functools.wraps(method)
    def request(self: ObjectStore, /, *args: _P.args, **options: _P.kwargs) -> _T:
        other: Any = self.child_store()
        return method(self, *args, **options) if other is None else getattr(other, method.__name__)(*args, **options)

    return request


class ObjectStore(Store):
    """Client of one object store, implemented with obstore. Thread-safe.

    It does not retry reads. Paths begin with the bucket, or are web URLs. A pickle contains the options, including
    credentials.

    Args:
        scheme: Scheme of the URLs, such as `s3`.
        options: `storage_options`, in the names of s3fs, gcsfs, adlfs or fsspec's HTTP file system.
        timeout_s: Timeout of a request in seconds; None means no limit while bytes arrive.

    Raises:
        InvalidArgumentError: An option has no counterpart in obstore.
    """

    has_cheap_rename = False

    def __init__(
        self, scheme: str, options: Mapping[str, Any], timeout_s: float | None = DEFAULT_STORAGE_TIMEOUT_S
    ) -> None:
        self.scheme, self.storage_options, self.timeout_s = scheme, dict(options), timeout_s
        self.settings = _SETTINGS[scheme](options)
        self.type_name, self.is_web = f"py::objects+{scheme}", scheme.startswith("http")
        self.is_anonymous, self.has_buckets = self.settings.is_anonymous, not self.is_web
        self.server = tuple(map(shown_url, self.settings.server))
        self._stores: dict[tuple[str, bool], Any] = {}
        self._regions: dict[str, str] = {}
        self._lock = Lock()
        self._child_store: tuple[int, Store | None] = (0, None)

    def __reduce__(self) -> Any:
        return type(self), (self.scheme, self.storage_options, self.timeout_s)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectStore):
            return NotImplemented
        return (self.scheme, self.storage_options) == (other.scheme, other.storage_options)

    def __hash__(self) -> int:
        return hash((self.scheme, *sorted(self.storage_options)))

    def __repr__(self) -> str:
        return f"ObjectStore({self.scheme!r})"

    @property
    def system(self) -> str:  # type: ignore[override]
        """Name of the client library in this process, for messages."""
        made_in, store = self._child_store
        return store.system if store is not None and made_in == os.getpid() else "obstore"

    @property
    def ends_its_requests(self) -> bool:  # type: ignore[override]
        """Whether a hanging request ends by obstore's own timeout."""
        return _used_in in (None, os.getpid())

    def child_store(self) -> Store | None:
        """Return the replacement of obstore in a forked child; None where obstore works.

        If a child is forked after obstore was used, obstore's threads do not exist in the child, and requests would
        hang.
        """
        if _used_in is None or _used_in == os.getpid():
            return None
        with self._lock:
            made_in, store = self._child_store
            if made_in != os.getpid():
                store = store_of(self.settings.make_child_filesystem())
                self._child_store = (os.getpid(), store)
            return store

    @_in_each_process
    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:
        """Read a byte range of an object, which must have the required version, if any.

        Raises:
            NotTheVersionError: The object has another version.
            OSError: The request failed.
        """
        options: dict[str, Any] = {"range": (offset, offset + length)}
        if version is not None and version.strong_etag:
            options["if_match"] = version.strong_etag

        def ask(store: Any, key: str) -> Answer:
            result = _obstore().get(store, key, options=options)
            now = _version_in(result.meta, version)
            if now.size < offset + length:  # obstore raises an error for any other range than the requested one
                raise NotTheVersionError(now)
            return Answer(result.bytes(), now)

        return self._request(path, ask)

    @_in_each_process
    def tail(self, path: str, length: int) -> Answer:
        """Read the last bytes of an object in its current version, and return the version.

        Raises:
            NotTheVersionError: The object is empty.
            OSError: The request failed.
        """

        def ask(store: Any, key: str) -> Answer | FileVersion:
            try:
                result = _obstore().get(store, key, options={"range": {"suffix": length}})
            except Exception as problem:
                if type(problem).__name__ != "NotSupportedError":
                    raise
                return _version_in(_obstore().head(store, key))  # Azure does not support suffix ranges
            return Answer(result.bytes(), _version_in(result.meta))

        answer = self._request(path, ask)
        if isinstance(answer, Answer):
            return answer
        if not answer.size:
            raise NotTheVersionError(answer)
        return self.get(path, max(answer.size - length, 0), min(length, answer.size), answer)

    @_in_each_process
    def version(self, path: str) -> FileVersion:
        """Request the current version of an object.

        Raises:
            OSError: The request failed.
        """

        def ask(store: Any, key: str) -> FileVersion:
            try:
                # Uses GET, because an error response to HEAD has no body with the reason.
                return _version_in(_obstore().get(store, key, options={"range": (0, 1)}).meta)
            except Exception as problem:
                if not isinstance(as_builtin(problem), NotTheVersionError):
                    raise
                return _version_in(_obstore().head(store, key))  # an empty file has no first byte

        return self._request(path, ask)

    @_in_each_process
    def get_file_info(self, paths_or_selector: Any) -> Any:
        """Return type and size of a path, of several, or of the entries of a directory."""
        info = super().get_file_info(paths_or_selector)
        is_directory = isinstance(paths_or_selector, str) and not info.is_file and self.has_directory(info.path)
        return fs.FileInfo(info.path, fs.FileType.Directory) if is_directory else info

    @_in_each_process
    def file_at(self, path: str) -> Any:
        """Request the type and size of a file; a directory is reported as missing."""
        try:
            if not self.is_web and "/" not in path.strip("/"):
                raise FileNotFoundError(path)
            return self._request(path, lambda store, key: _listed(path, _obstore().head(store, key)))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    @_in_each_process
    def has_directory(self, path: str) -> bool:
        """Request whether a directory exists, that is, whether any object is below it."""
        try:
            return self._has_objects(path)
        except FileNotFoundError:
            return False

    @_in_each_process
    def bucket_is_missing(self, bucket: str) -> bool:
        """Return whether a bucket does not exist, or these credentials may not see it."""
        try:
            self._has_objects(bucket)
        except NoBucketError:
            return True
        return False

    def _has_objects(self, path: str) -> bool:
        if self.is_web:
            return bool(self._objects(path, recursive=False))
        return self._request(path, lambda store, key: any(_obstore().list(store, key or None, chunk_size=1)))

    def list_directory(self, selector: Any) -> list[Any]:
        """Return a `pyarrow.fs.FileInfo` for each object and subdirectory of a directory.

        Raises:
            FileNotFoundError: Nothing is stored below the path, and the selector does not allow this.
            NotADirectoryError: The path is an object.
        """
        try:
            found = self._objects(selector.base_dir, recursive=selector.recursive)
        except FileNotFoundError:
            found = []
        if not found and self.file_at(selector.base_dir).is_file:
            raise NotADirectoryError(selector.base_dir)
        if not found and not selector.allow_not_found:
            raise FileNotFoundError(selector.base_dir)
        return found

    def _objects(self, path: str, *, recursive: bool) -> list[fs.FileInfo]:
        if self.is_web:
            return list(self._linked(path, recursive=recursive))

        def ask(store: Any, key: str) -> list[fs.FileInfo]:
            bucket = f"{path.partition('/')[0]}/"
            if recursive:
                metas = [meta for page in _obstore().list(store, key or None, chunk_size=1000) for meta in page]
                directories = _directories_between(key, [meta["path"] for meta in metas])
            else:
                level = _obstore().list_with_delimiter(store, key or None)
                metas, directories = level["objects"], set(level["common_prefixes"])
            # An empty object that marks a directory is listed without its trailing slash, as if it were a file.
            metas = [meta for meta in metas if meta["path"] not in directories and meta["path"] != key]
            found = [fs.FileInfo(bucket + one, fs.FileType.Directory) for one in sorted(directories)]
            return found + [_listed(bucket + meta["path"], meta) for meta in metas]

        return self._request(path, ask)

    def _linked(self, path: str, *, recursive: bool) -> Iterator[fs.FileInfo]:
        """Yield the files and directories to which a directory's web page links.

        Yield nothing if the server does not have this page.
        """
        address = f"{path.rstrip('/')}/"
        try:
            _, page = self.read_whole(address, _MOST_PAGE_BYTES)
        except FileNotFoundError:
            return
        for one in linked_addresses(address, page):
            kind = fs.FileType.Directory if one.endswith("/") else fs.FileType.File
            yield fs.FileInfo(one.rstrip("/"), kind)
            if recursive and one.endswith("/"):
                yield from self._linked(one, recursive=True)

    @_in_each_process
    def read_whole(self, path: str, max_bytes: int) -> tuple[int, bytes]:
        """Return the size of an object and its bytes; no bytes if larger than `max_bytes`."""

        def ask(store: Any, key: str) -> tuple[int, bytes]:
            result = _obstore().get(store, key)
            size = int(result.meta["size"])
            data = bytes(result.bytes()) if size <= max_bytes else b""
            if size <= max_bytes and len(data) != size:
                raise ConnectionError(f"{size:,} bytes were expected, but {len(data):,} were received")
            return size, data

        return self._request(path, ask)

    @_in_each_process
    def put(self, path: str, data: bytes) -> None:
        """Write an object atomically."""
        self._request(path, lambda store, key: _obstore().put(store, key, data), writes=True)

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """Do nothing: object stores have no directories."""

    @_in_each_process
    def delete_dir(self, path: str) -> None:
        """Delete all objects below a directory."""
        paths = [info.path for info in self._objects(path, recursive=True) if info.is_file]
        if paths:
            self._delete(*paths)

    @_in_each_process
    def delete_file(self, path: str) -> None:
        """Delete an object; some object stores report no error if it does not exist."""
        self._delete(path)

    def _delete(self, *paths: str) -> None:
        keys = [self._key(path)[1] for path in paths]
        # One object is deleted by DELETE, several by S3's bulk request, which some servers lack.
        self._request(paths[0], lambda store, key: _obstore().delete(store, keys if paths[1:] else key), writes=True)

    @_in_each_process
    def move(self, src: str, dest: str) -> None:
        """Rename an object: copy it within its bucket, then delete the old one."""
        other = self._key(dest)[1]
        self._request(src, lambda store, key: _obstore().copy(store, key, other), writes=True)
        self._delete(src)

    @_in_each_process
    def open_input_file(self, path: str) -> Any:
        """Open an object for random-access reading; each read is one request."""
        version = self.version(path)
        return range_file(version.size, lambda offset, length: self.get(path, offset, length, version).data)

    @_in_each_process
    def open_output_stream(self, path: str, compression: str | None = None) -> Any:  # noqa: ARG002 - Arrow's interface
        """Open an object for writing; it becomes visible when the file is closed."""
        writer = self._request(path, lambda store, key: _obstore().open_writer(store, key), writes=True)
        return pa.PythonFile(ObjectWriter(writer), mode="w")

    def _request(self, path: str, ask: Callable[[Any, str], _T], *, writes: bool = False) -> _T:
        """Make a request; retry it once with the right region or with new credentials.

        The first attempt may fail because an S3 bucket is in another region, or because credentials from the
        environment have expired.
        """
        name, key = self._key(path)
        try:
            return with_builtins(ask, self._store(name, writes=writes), key)
        except WrongRegionError:
            self._regions[name] = fs.resolve_s3_region(name)
        except PermissionError:
            if not self.settings.finds_credentials:
                raise
        with self._lock:
            self._stores.pop((name, writes), None)
        return with_builtins(ask, self._store(name, writes=writes), key)

    def _key(self, path: str) -> tuple[str, str]:
        if self.is_web:
            return server_and_key(path)
        name, _, key = path.strip("/").partition("/")
        return name, key

    def _store(self, name: str, *, writes: bool) -> Any:
        with self._lock:
            store = self._stores.get((name, writes))
            if store is None:
                limits = request_limits(self.timeout_s, writes=writes)
                limits["client_options"] |= self.settings.client_options
                _obstore()
                store = self.settings.make_store(name, limits, self._regions.get(name))
                if len(self._stores) >= _MOST_STORES:
                    self._stores.clear()
                self._stores[name, writes] = store
        return store


def _listed(path: str, meta: Mapping[str, Any]) -> ListedInfo:
    info = ListedInfo(path, fs.FileType.File, mtime=meta["last_modified"], size=int(meta["size"]))
    info.etag = meta["e_tag"] or ""
    return info


def _version_in(meta: Mapping[str, Any], expected: FileVersion | None = None) -> FileVersion:
    """Return the version in the metadata of a response; `expected` itself if size and etag are equal."""
    if expected is not None and expected.etag and (meta["e_tag"], meta["size"]) == (expected.etag, expected.size):
        return expected  # converting the time to text takes longer than the rest of this method
    modified = str(meta.get("last_modified") or "")
    return FileVersion(int(meta["size"]), meta.get("e_tag") or "", "" if modified == _UNKNOWN_TIME else modified)


def _obstore() -> Any:
    """Return the obstore module, and record the process that uses it.

    Raises:
        OSError: obstore was used before this process was forked.
    """
    global _used_in
    import obstore

    if _used_in is None:
        _used_in = os.getpid()
    elif _used_in != os.getpid():
        raise OSError(
            "obstore does not work in a forked process after its parent used obstore. Start processes with spawn"
        )
    return obstore


def _directories_between(key: str, names: list[str]) -> set[str]:
    """Return the paths of all subdirectories of a directory, at any depth.

    Args:
        key: Path of the directory in its bucket.
        names: Paths in the bucket of all objects below the directory.
    """
    found: set[str] = set()
    for name in names:
        around = name.rpartition("/")[0]
        while len(around) > len(key) and around not in found:
            found.add(around)
            around = around.rpartition("/")[0]
    return found
