"""S3's file system: obstore says what there is, and s3fs does all else, from when that is first asked for.

s3fs and its client take half a second of a processor to be imported and made, more than all that a reader asks of them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fsspec.config import apply_config
from fsspec.registry import known_implementations, registry
from fsspec.spec import AbstractFileSystem

from petastore.forks import Lock
from petastore.storage.files.fsspec_handler import Handler
from petastore.storage.obstores.client import ObstoreClient, is_usable
from petastore.storage.obstores.objects import Objects
from petastore.storage.obstores.s3 import s3_settings, s3_stores
from petastore.storage.requests.client import NoBucketError
from petastore.storage.requests.under_way import DEFAULT_STORAGE_TIMEOUT_S

__all__ = ["S3FileSystem", "S3Handler", "s3_file_system"]

_T = TypeVar("_T")


class S3FileSystem:
    """Has the options and the methods of s3fs's; none of these is made until one is asked for that obstore has not.

    Whatever goes wrong with obstore is asked of s3fs once more, which says why, in its own words and after trying as
    often as it does; and so is all that is asked later. It pickles with its options, as that of s3fs does.

    Args:
        **options: In the names of s3fs.

    Example:
        >>> store = S3FileSystem(key="AKIA", secret="hush", endpoint_url="http://127.0.0.1:9000")
        >>> store, store.protocol, store._strip_protocol("s3://bucket/frames/")
        (S3FileSystem(), ('s3', 's3a'), 'bucket/frames')
    """

    protocol = ("s3", "s3a")
    root_marker = ""
    storage_args = ()

    def __init__(self, **options: Any) -> None:
        self.storage_options: Mapping[str, Any] = apply_config(type(self), options)
        self._settings = s3_settings(self.storage_options)
        self._clients: dict[float | None, ObstoreClient] = {}
        self._s3fs: Any = None
        self._made_in = 0
        self._making = Lock()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        strip: Any = AbstractFileSystem._strip_protocol  # noqa: SLF001 - fsspec's documented way
        return strip.__func__(cls, path)

    @property
    def anon(self) -> bool:
        """Whether requests are not signed."""
        return bool(self.storage_options.get("anon"))

    @property
    def s3fs(self) -> Any:
        """That of s3fs, which is made now where it was not."""
        with self._making:
            if self._s3fs is None or self._made_in != os.getpid():
                import fsspec

                self._s3fs = fsspec.filesystem("s3", **self.storage_options)
                self._made_in = os.getpid()
            return self._s3fs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(AbstractFileSystem, name):
            raise AttributeError(name)
        return getattr(self.s3fs, name)

    def client(self, timeout_s: float | None) -> ObstoreClient | None:
        """Who asks by obstore; None where something of the options has no counterpart there.

        Args:
            timeout_s: Seconds that a request may take; None is as long as bytes come.
        """
        if self._settings is None:
            return None
        with self._making:
            client = self._clients.get(timeout_s)
            if client is None:
                client = self._clients[timeout_s] = ObstoreClient(s3_stores(self._settings, timeout_s))
            return client

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """What is at a path, as s3fs says it.

        Raises:
            FileNotFoundError: Nothing is.
        """
        path = self._strip_protocol(path)

        def ask(objects: Objects) -> dict[str, Any]:
            try:
                return objects.one(path)
            except FileNotFoundError:
                if not objects.has_some_below(path):
                    raise
                return {"name": path, "type": "directory", "size": 0}

        if options:
            return dict(self.s3fs.info(path, **options))
        return self._asked(ask, lambda: dict(self.s3fs.info(path)))

    def file(self, path: str) -> dict[str, Any]:
        """What is at a path, by one request: a directory is told as nothing where obstore is asked.

        Raises:
            FileNotFoundError: No file is.
        """
        path = self._strip_protocol(path)
        return self._asked(lambda objects: objects.one(path), lambda: dict(self.s3fs.info(path)))

    def listed(self, path: str, *, recursive: bool) -> dict[str, dict[str, Any]] | None:
        """What is below a directory, by paths; None is not known, and to be asked of s3fs."""
        path = self._strip_protocol(path)
        return self._asked(lambda objects: objects.below(path, recursive=recursive), lambda: None)

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return int(self.info(path)["size"])

    def whole(self, path: str, max_bytes: int) -> tuple[int, bytes] | None:
        """How many bytes a file has, and these where they are not too many; None is to be asked of s3fs."""
        path = self._strip_protocol(path)
        return self._asked(lambda objects: objects.whole(path, max_bytes), lambda: None)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Some bytes of a file; fewer where it ends before."""
        path = self._strip_protocol(path)

        def otherwise() -> bytes:
            return bytes(self.s3fs.cat_file(path, start=start, end=end, **options))

        if options or start is None or end is None or not 0 <= start < end:
            return otherwise()
        return self._asked(lambda objects: objects.part(path, start, end), otherwise)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Remembers no listing; obstore never does."""
        if self._s3fs is not None:
            self._s3fs.invalidate_cache(path)

    def _asked(self, ask: Callable[[Objects], _T], otherwise: Callable[[], _T]) -> _T:
        client = self.client(DEFAULT_STORAGE_TIMEOUT_S) if self._s3fs is None and is_usable() else None
        if client is None:
            return otherwise()
        try:
            return ask(Objects(client))
        except NoBucketError:
            return otherwise()
        except FileNotFoundError as problem:
            missing = problem
        except Exception:  # noqa: BLE001 - what it is, s3fs says
            return otherwise()
        raise missing

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, S3FileSystem):
            return NotImplemented
        return self.storage_options == other.storage_options

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.storage_options)))

    def __reduce__(self) -> Any:
        return _unpickled_s3, (type(self), dict(self.storage_options))

    def __repr__(self) -> str:
        return "S3FileSystem()"


class S3Handler(Handler):
    """Lists by one request: in a bucket there are no directories to ask for before."""

    def file_at(self, path: str) -> Any:
        """The file at a path; a directory is told as nothing."""
        return self._told(path, self.fs.file)

    def has_directory(self, path: str) -> bool:
        """Whether something is below a path: one request, where that of fsspec takes two."""
        entries = self.fs.listed(path, recursive=False)
        return super().has_directory(path) if entries is None else bool(entries)

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        """What is in a directory.

        Raises:
            FileNotFoundError: There is no such directory, and the selector does not allow that.
            NotADirectoryError: It is a file.
        """
        base = selector.base_dir
        entries = self.fs.listed(base, recursive=selector.recursive)
        if entries is None:
            return super().get_file_info_selector(selector)
        if not entries and not self._is_directory(base, missing_is_fine=selector.allow_not_found):
            return []
        return [self._listed(path, info) for path, info in entries.items()]


def s3_file_system(url: str, options: Mapping[str, Any]) -> S3FileSystem | None:
    """The file system of a URL; None where that of s3fs is to be made, or what somebody has put in its place.

    Args:
        url: Of the scheme `s3`.
        options: In the names of s3fs.
    """
    registered = registry.get("s3")
    named = known_implementations["s3"]["class"] if registered is None else f"{registered.__module__}.S3FileSystem"
    if (
        named not in {"s3fs.S3FileSystem", "s3fs.core.S3FileSystem"}
        or "::" in url
        or "versionId=" in url
        or not is_usable()
    ):
        return None
    try:
        is_there = importlib.util.find_spec("s3fs") is not None
    except ValueError:  # somebody forbids it
        is_there = False
    if not is_there:
        return None
    made = S3FileSystem(**options)
    return None if made.client(DEFAULT_STORAGE_TIMEOUT_S) is None else made


def _unpickled_s3(kind: type[S3FileSystem], options: Mapping[str, Any]) -> S3FileSystem:
    return kind(**options)
