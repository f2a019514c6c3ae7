"""A URL → its filesystem, and the path in it. Nothing is asked of the storage but to be opened."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.storage.requests.failures import asking, foreign_text, raise_alone
from petastore.storage.requests.shown import secrets_in_options, secrets_in_url, shown_url
from petastore.storage.requests.under_way import DEFAULT_STORAGE_TIMEOUT_S

__all__ = ["filesystem_and_path", "full_url", "has_cheap_rename", "path_in", "scheme_and_host"]

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z][A-Za-z0-9+.-]+)*)://")
_USER_AND_PASSWORD = re.compile(r"//([^/@]*:[^/@]*)@")
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_HDFS = {"hdfs", "viewfs"}
# What the filesystems of these schemes need, and the extra of ours that brings it.
_EXTRAS = {
    "s3": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "abfs": ("adlfs", "azure"),
    "abfss": ("adlfs", "azure"),
    "az": ("adlfs", "azure"),
    "adl": ("adlfs", "azure"),
}
# Those that only fsspec knows of.
_PACKAGES = {"hf": "huggingface_hub"}
# A put replaces the object in one step there, and a rename is a copy.
_OBJECT_STORES = {*_EXTRAS, *_SAME_SCHEME, "gcs", "oss", "oci", "r2", "http", "https"}


def scheme_and_host(url: str) -> tuple[str, str]:
    """What the URLs of one dataset share; a plain path is a `file`, on no host.

    Example:
        >>> scheme_and_host("s3a://bucket/frames"), scheme_and_host("/data/frames")
        (('s3', 'bucket'), ('file', ''))
    """
    scheme = _scheme(url)
    return (scheme, "") if scheme == "file" else (scheme, urlsplit(url).netloc)


def _scheme(url: str) -> str:
    """The scheme in its one spelling; a plain path is a `file`."""
    match = _URL.match(url)
    if match is None:
        return "file"
    scheme = match["scheme"].lower()
    return _SAME_SCHEME.get(scheme, scheme)


def full_url(url: str) -> str:
    """The URL as it may be shown, and with a scheme."""
    if _scheme(url) == "file":
        local = f"file://{_local_path(url)}"
        return shown_url(local) if _URL.match(url) else local
    return shown_url(url if url.endswith("://") else url.rstrip("/"))


def filesystem_and_path(url: str, storage_options: Mapping[str, Any] | None, filesystem: Any) -> tuple[Any, str]:
    """The pyarrow filesystem of one URL, and the path in it.

    Raises:
        InvalidArgumentError: The URL cannot be understood.
        StorageError: The storage cannot be reached.
        MissingExtraError: The scheme needs a package that is not installed.
    """
    if filesystem is not None:
        opened = _wrapped(filesystem)
    elif _scheme(url) == "file":
        opened = fs.LocalFileSystem()
    else:
        opened = _from_fsspec(url, storage_options)
    path = path_in(opened, url, filesystem)
    match = _USER_AND_PASSWORD.search(url)
    if match and f"{match[1]}@" in f"{path}@":
        raise InvalidArgumentError(
            f"{full_url(url)}: this kind of URL takes no user and password; give them as storage_options instead"
        )
    return opened, path


def has_cheap_rename(filesystem: Any) -> bool:
    """Whether a rename is one step in a pyarrow filesystem; on object stores it is a copy, and a put is the one step.

    Example:
        >>> has_cheap_rename(fs.LocalFileSystem())
        True
    """
    name = str(filesystem.type_name)
    schemes = set(re.findall(r"[a-z0-9]+", name.partition("+")[2])) if name.startswith("py::fsspec") else {name}
    return not schemes & _OBJECT_STORES


def _wrapped(filesystem: Any) -> Any:
    if isinstance(filesystem, fs.FileSystem):
        handler: Any = getattr(filesystem, "handler", None)
        return _files(handler.fs) if type(handler) is fs.FSSpecHandler else filesystem
    inner = getattr(filesystem, "fs", None)
    if isinstance(inner, fs.FileSystem):  # fsspec's own wrapper of a pyarrow filesystem, as for hdfs
        return inner
    if not hasattr(filesystem, "protocol") or not hasattr(filesystem, "_strip_protocol"):
        raise InvalidArgumentError(
            f"filesystem is a pyarrow or fsspec filesystem, but a {type(filesystem).__name__} was given"
        )
    if "file" in ((filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol):
        return fs.LocalFileSystem()
    return _files(filesystem)


def _files(store: Any) -> Any:
    from petastore.storage.files.fsspec_handler import Files, Handler  # which imports fsspec, and that asyncio
    from petastore.storage.files.s3 import S3FileSystem, S3Handler

    return Files(S3Handler(store) if isinstance(store, S3FileSystem) else Handler(store))


def _from_fsspec(url: str, options: Mapping[str, Any] | None) -> Any:
    import fsspec

    scheme = _scheme(url)
    spelled = _URL.sub(f"{scheme}://", url, count=1)
    place = _Unopened(
        full_url(url), f"the file system of {scheme}://", secrets_in_url(url) | secrets_in_options(options)
    )

    of_hdfs = _hdfs_options(url) if scheme in _HDFS else None

    def open_it() -> Any:
        try:
            if of_hdfs is not None:
                return fsspec.filesystem("hdfs", **{**of_hdfs, **dict(options or {})})
            by_obstore = _of_s3(spelled, options or {}) if scheme == "s3" else None
            if by_obstore is not None:
                return by_obstore
            return fsspec.core.url_to_fs(spelled, **dict(options or {}))[0]
        except ImportError as problem:
            package, extra = _EXTRAS.get(scheme, (_PACKAGES.get(scheme, ""), ""))
            if package:
                raise_alone(MissingExtraError(f"a {scheme}:// URL", package=package, extra=extra))
            said = f"cannot be imported: {foreign_text(problem, place.secrets)}"
            raise_alone(InvalidArgumentError(f"{place.url}: {place.system} {said}"))
        except TypeError:
            names = ", ".join(sorted(map(str, options or {}))) or "none"
            raise_alone(InvalidArgumentError(f"{place.url}: {scheme}:// does not take these storage_options: {names}"))
        except ValueError as problem:
            raise_alone(InvalidArgumentError(f"{place.url}: {foreign_text(problem, place.secrets)}"))

    # In the caller's thread: fsspec keeps the file systems of each thread apart.
    with asking(place, "be opened"):
        return _wrapped(open_it())


def _of_s3(url: str, options: Mapping[str, Any]) -> Any:
    from petastore.storage.files.s3 import s3_file_system

    return s3_file_system(url, options)


def _hdfs_options(url: str) -> dict[str, Any]:
    from petastore.storage.files.hadoop import configuration, hdfs_options  # which imports a parser of XML

    return hdfs_options(url, configuration())


@dataclasses.dataclass(frozen=True, slots=True)
class _Unopened:
    """A place whose file system is being made."""

    url: str
    system: str
    secrets: frozenset[str]
    timeout_s: float | None = DEFAULT_STORAGE_TIMEOUT_S


def path_in(opened: Any, url: str, given: Any) -> str:
    """The path of a URL inside its filesystem, without a slash at its end."""
    scheme = _scheme(url)
    if isinstance(opened, fs.LocalFileSystem) and scheme == "file":
        return _local_path(url)
    handler = getattr(opened, "handler", None)
    if isinstance(handler, fs.FSSpecHandler):
        spelled = _URL.sub(f"{scheme}://", url, count=1)
        return str(handler.fs._strip_protocol(spelled)).rstrip("/") or "/"  # noqa: SLF001 - fsspec's documented way
    match = _URL.match(url)
    if match is None:
        return url.rstrip("/") or "/"
    parts = urlsplit(url)
    rest = url[match.end() :]  # with what looks like a query or a fragment: it belongs to the path
    path = rest[len(parts.netloc) :] if scheme in {*_HDFS, "file"} else rest
    if given is None and not path:
        raise InvalidArgumentError(f"{full_url(url)}: the URL names no path")
    return path.rstrip("/") or "/"


def _local_path(url: str) -> str:
    match = _URL.match(url)
    if match is None and not url.startswith("file:/"):
        return str(Path(url).expanduser().absolute()) if not url.startswith("/") else os.path.normpath(url)
    rest = url.partition(":")[2]
    host, slash, below = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    literal = slash + below
    if host not in {"", "localhost"}:
        right = shown_url(f"file://{host}{literal}").replace("://", ":///", 1)
        raise InvalidArgumentError(f"{shown_url(url)}: a file URL has three slashes; write {right}")
    if not literal:
        raise InvalidArgumentError(f"{shown_url(url)}: the URL names no path")
    decoded = unquote(literal)
    return os.path.normpath(decoded if not os.path.exists(literal) and os.path.exists(decoded) else literal)  # noqa: PTH110
