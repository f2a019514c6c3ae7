"""Filesystem and path of a URL, and pickling of filesystems for worker processes.

Resolving a URL makes no request. A pickled filesystem contains no secrets, because pickles may be stored or sent, for
example by Spark. The exception is a pickle that `multiprocessing` passes through a pipe to a process that it starts,
because this pickle is not stored.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from petastore.errors import InvalidArgumentError, MissingExtraError, StorageAccessError
from petastore.storage.requests.failure_kinds import attribute
from petastore.storage.requests.failures import (
    asking,
    foreign_text,
    raise_alone,
    secrets_in_options,
    secrets_in_url,
    shown_url,
)
from petastore.storage.requests.retries import DEFAULT_STORAGE_TIMEOUT_S
from petastore.storage.stores.interface import Store

__all__ = ["WithoutSecrets", "filesystem_and_path", "full_url", "goes_to_a_child", "path_in", "scheme_and_host"]


_WORDS = {"anon", "browser", "cache", "cloud", "google_default"}
"""Values of gcsfs's option `token` that name a source of credentials, and contain no secret."""

_SAY_HOW = {"access", "account_host", "default_location", "location_mode", "profile"}
"""Names of filesystem options whose values are not secret, such as a host name or an access mode."""


def goes_to_a_child() -> bool:
    """Return whether `multiprocessing` is pickling objects for a process it starts."""
    from multiprocessing.context import get_spawning_popen  # imported on demand, because few filesystems are pickled

    return get_spawning_popen() is not None


class WithoutSecrets:
    """Wrapper that pickles a filesystem without its secrets.

    Unpickling it returns the filesystem, which then finds its credentials in the environment of the new process.

    Args:
        filesystem: Filesystem of Arrow.
        url: URL of the dataset, without secrets.

    Example:
        >>> import pickle
        >>> from pyarrow import fs
        >>> pickle.loads(pickle.dumps(WithoutSecrets(fs.LocalFileSystem(), "file:///x"))).type_name
        'local'
    """

    def __init__(self, filesystem: Any, url: str) -> None:
        self._filesystem = filesystem
        self._url = url

    def __reduce__(self) -> Any:
        make, arguments, given = _parts_of(self._filesystem)
        options, left_out = _shareable(given)
        if secrets_in_options(list(arguments)):
            arguments, left_out = (), [*left_out, "its arguments"]
        if not left_out:
            return self._filesystem.__reduce__()
        return _tried, (make, options, arguments, left_out, self._url)


def _parts_of(filesystem: Any) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """Return a filesystem's constructor, its positional arguments, and its options."""
    handler = attribute(filesystem, "handler") or filesystem
    store = attribute(handler, "fs")
    if store is not None:
        kinds = (*dict.fromkeys([type(filesystem), type(handler)]), type(store))
        options = attribute(store, "storage_options") or {}
        return functools.partial(_fsspec_files, kinds), attribute(store, "storage_args") or (), options
    if isinstance(filesystem, Store):
        state: Any = filesystem.__reduce__()
        make, (scheme, options, timeout_s) = state
        return functools.partial(_object_store, make, scheme, timeout_s), (), options
    make, arguments, *_ = filesystem.__reduce__()
    if not arguments or not isinstance(arguments[0], Mapping):
        return make, (), {}
    return make, arguments[1:], {name: value for name, value in arguments[0].items() if value}


def _shareable(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the options without secrets, and the names of the omitted options."""
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in options.items():
        if name in _SAY_HOW or (isinstance(value, str) and value in _WORDS) or not secrets_in_options({name: value}):
            kept[name] = value
        elif isinstance(value, Mapping):
            kept[name], inner = _shareable(value)
            left_out += [f"{name}.{one}" for one in inner]
        else:
            left_out.append(name)
    return kept, left_out


def _object_store(make: Any, scheme: str, timeout_s: float | None, options: Mapping[str, Any]) -> Any:
    return make(scheme, options, timeout_s)


def _fsspec_files(kinds: tuple[Any, ...], options: Mapping[str, Any], *arguments: Any) -> Any:
    """Create an fsspec filesystem, and wrap it in the classes in which it was pickled.

    Args:
        kinds: Classes from the outermost wrapper to the fsspec filesystem itself.
        options: Keyword arguments of the fsspec filesystem.
        *arguments: Positional arguments of the fsspec filesystem.
    """
    return functools.reduce(lambda inner, kind: kind(inner), kinds[-2::-1], kinds[-1](*arguments, **options))


def _tried(make: Callable[..., Any], options: Mapping[str, Any], arguments: Any, left_out: list[str], url: str) -> Any:
    """Rebuild an unpickled filesystem, and return it.

    Args:
        make: Constructor of the filesystem.
        options: Options without secrets.
        arguments: Positional arguments of the constructor.
        left_out: Names of the options that the pickle does not contain, for the error.
        url: URL of the dataset, for the error.

    Raises:
        StorageAccessError: The filesystem cannot be created, usually because this process has no credentials.
    """
    try:
        return make(options, *arguments)
    except Exception:  # noqa: BLE001 - filesystems raise any exception
        names = ", ".join(left_out) or "nothing"
        raise_alone(
            StorageAccessError(
                f"{url} cannot be opened in this process, because a pickled dataset does not contain the credentials "
                f"of its file system ({names}). Open the dataset in this process, with storage_options"
            )
        )


_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z][A-Za-z0-9+.-]+)*)://")
_USER_AND_PASSWORD = re.compile(r"//([^/@]*:[^/@]*)@")
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_HDFS = {"hdfs", "viewfs"}
_AZURE = {"abfs", "abfss", "az"}
_PACKAGES = {"hf": "huggingface_hub", "adl": "adlfs"}
"""Packages that fsspec needs for some schemes."""
_BY_OBSTORE = {"s3", "gs", "http", "https", *_AZURE}
"""Schemes of URLs that obstore reads."""


def scheme_and_host(url: str) -> tuple[str, str]:
    """Return scheme and host, which all URLs of a dataset share.

    For a plain path, return `"file"` and an empty host.

    Example:
        >>> scheme_and_host("s3a://bucket/frames"), scheme_and_host("/data/frames")
        (('s3', 'bucket'), ('file', ''))
    """
    scheme = _scheme(url)
    return (scheme, "") if scheme == "file" else (scheme, urlsplit(url).netloc)


def _scheme(url: str) -> str:
    """Return the canonical scheme of a URL (`s3` for `s3a`); `"file"` for plain paths."""
    match = _URL.match(url)
    if match is None:
        return "file"
    scheme = match["scheme"].lower()
    return _SAME_SCHEME.get(scheme, scheme)


def full_url(url: str) -> str:
    """Return the URL with a scheme and without secrets."""
    if _scheme(url) == "file":
        local = f"file://{_local_path(url)}"
        return shown_url(local) if _URL.match(url) else local
    return shown_url(url if url.endswith("://") else url.rstrip("/"))


def filesystem_and_path(
    url: str,
    storage_options: Mapping[str, Any] | None,
    filesystem: Any,
    timeout_s: float | None = DEFAULT_STORAGE_TIMEOUT_S,
) -> tuple[Any, str]:
    """Return the filesystem of a URL (pyarrow's, or a `Store`), and the path in it.

    Args:
        url: URL of the dataset.
        storage_options: Options of the filesystem.
        filesystem: Filesystem to use instead of the URL's.
        timeout_s: Timeout of a request to an object store in seconds.

    Raises:
        InvalidArgumentError: The URL is invalid.
        StorageError: The storage cannot be reached.
        MissingExtraError: The scheme needs a package that is not installed.
    """
    if filesystem is not None:
        opened = _wrapped(filesystem)
    elif _scheme(url) == "file":
        opened = fs.LocalFileSystem()
    elif _scheme(url) in _BY_OBSTORE:
        opened = _from_obstore(url, storage_options or {}, timeout_s)
    else:
        opened = _from_fsspec(url, storage_options)
    path = path_in(opened, url, filesystem)
    match = _USER_AND_PASSWORD.search(url)
    if match and f"{match[1]}@" in f"{path}@":
        raise InvalidArgumentError(
            f"the URL must not contain user and password for this scheme, got {full_url(url)}. Pass them as "
            "storage_options"
        )
    return opened, path


def _wrapped(filesystem: Any) -> Any:
    if isinstance(filesystem, fs.FileSystem):
        handler: Any = getattr(filesystem, "handler", None)
        return _fsspec_store(handler.fs) if type(handler) is fs.FSSpecHandler else filesystem
    inner = getattr(filesystem, "fs", None)
    if isinstance(inner, fs.FileSystem):  # fsspec wraps some pyarrow filesystems itself, such as HDFS
        return inner
    if not hasattr(filesystem, "protocol") or not hasattr(filesystem, "_strip_protocol"):
        raise InvalidArgumentError(
            f"filesystem must be a pyarrow or fsspec filesystem, got {type(filesystem).__name__}"
        )
    if "file" in ((filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol):
        return fs.LocalFileSystem()
    return _fsspec_store(filesystem)


def _fsspec_store(filesystem: Any) -> Any:
    # Imported on demand, because it imports fsspec and asyncio.
    from petastore.storage.stores.fsspec_store import FsspecStore

    return FsspecStore(filesystem)


def _from_obstore(url: str, options: Mapping[str, Any], timeout_s: float | None) -> Any:
    from petastore.storage.stores.object_store import ObjectStore  # local files do not need it

    scheme, host = _scheme(url), urlsplit(url).netloc.rpartition("@")[2]
    if scheme in _AZURE and "." in host and "@" in urlsplit(url).netloc:
        options = {
            "account_name": host.partition(".")[0],
            "account_host": host.replace(".dfs.", ".blob.", 1),
            **options,
        }
    return ObjectStore(scheme, options, timeout_s)


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
            return fsspec.core.url_to_fs(spelled, **dict(options or {}))[0]
        except ImportError as problem:
            if scheme in _PACKAGES:
                raise_alone(MissingExtraError(f"a {scheme}:// URL", package=_PACKAGES[scheme], extra=""))
            said = f"cannot be imported: {foreign_text(problem, place.secrets)}"
            raise_alone(InvalidArgumentError(f"{place.url}: {place.system} {said}"))
        except TypeError:
            names = ", ".join(sorted(map(str, options or {}))) or "none"
            raise_alone(
                InvalidArgumentError(
                    f"{place.url}: storage_options must be options of the file system of {scheme}://, got {names}. "
                    "Correct the names"
                )
            )
        except ValueError as problem:
            if of_hdfs is None and not {*fsspec.available_protocols(), *fsspec.registry}.issuperset(scheme.split("::")):
                raise_alone(
                    InvalidArgumentError(
                        f"dataset URL must be a local path, or have a scheme such as s3, gs, abfs, hdfs, hf, https or "
                        f"file, got {place.url}. Correct the scheme, or pass filesystem="
                    )
                )
            raise_alone(InvalidArgumentError(f"{place.url}: {foreign_text(problem, place.secrets)}"))

    # Created in this thread, because fsspec caches filesystems by thread.
    with asking(place, "be opened"):
        return _wrapped(open_it())


def _hdfs_options(url: str) -> dict[str, Any]:
    from petastore.storage.files.hadoop import configuration, hdfs_options  # lazy, because it imports an XML parser

    return hdfs_options(url, configuration())


@dataclasses.dataclass(frozen=True, slots=True)
class _Unopened:
    """Names for error messages, used until a `Location` exists: while its filesystem is created."""

    url: str
    system: str
    secrets: frozenset[str]
    timeout_s: float | None = DEFAULT_STORAGE_TIMEOUT_S


def path_in(opened: Any, url: str, given: Any) -> str:
    """Return the path of a URL inside its filesystem, without a trailing slash.

    Args:
        opened: Filesystem of the URL.
        url: URL or path.
        given: The `filesystem` that the user passed; None means that the URL selected it.

    Raises:
        InvalidArgumentError: The URL has no path, and the user did not pass a filesystem.
    """
    scheme = _scheme(url)
    if isinstance(opened, fs.LocalFileSystem) and scheme == "file":
        return _local_path(url)
    if str(opened.type_name).startswith("py::objects+"):
        return _path_in_store(url, scheme)
    of_fsspec = getattr(getattr(opened, "handler", opened), "fs", None)
    if of_fsspec is not None:
        spelled = _URL.sub(f"{scheme}://", url, count=1)
        return str(of_fsspec._strip_protocol(spelled)).rstrip("/") or "/"  # noqa: SLF001 - documented by fsspec
    match = _URL.match(url)
    if match is None:
        return url.rstrip("/") or "/"
    parts = urlsplit(url)
    rest = url[match.end() :]  # a `?` or `#` is a character of the path, not the start of a query or fragment
    path = rest[len(parts.netloc) :] if scheme in {*_HDFS, "file"} else rest
    if given is None and not path:
        raise InvalidArgumentError(f"the URL must have a path, got {full_url(url)}")
    return path.rstrip("/") or "/"


def _path_in_store(url: str, scheme: str) -> str:
    """Return bucket and key; for a web server, the whole address."""
    if scheme.startswith("http"):
        return url.rstrip("/")
    place = _URL.sub("", url, count=1)
    host = place.partition("/")[0]
    if scheme in _AZURE and "@" in host:
        place = host.partition("@")[0] + place[len(host) :]
    return place.rstrip("/") or "/"


def _local_path(url: str) -> str:
    match = _URL.match(url)
    if match is None and not url.startswith("file:/"):
        return str(Path(url).expanduser().absolute()) if not url.startswith("/") else os.path.normpath(url)
    rest = url.partition(":")[2]
    host, slash, below = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    literal = slash + below
    if host not in {"", "localhost"}:
        right = shown_url(f"file://{host}{literal}").replace("://", ":///", 1)
        raise InvalidArgumentError(f"a file URL must have three slashes, got {shown_url(url)}. Write {right}")
    if not literal:
        raise InvalidArgumentError(f"the URL must have a path, got {shown_url(url)}")
    decoded = unquote(literal)
    return os.path.normpath(decoded if not os.path.exists(literal) and os.path.exists(decoded) else literal)  # noqa: PTH110
