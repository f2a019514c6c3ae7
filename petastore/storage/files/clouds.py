"""Object stores, as their file systems of fsspec know them: whose buckets there are, and who asks."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from petastore.storage.requests.failure_kinds import attribute, is_unknown_host
from petastore.storage.requests.shown import shown_url

__all__ = ["bucket_is_missing", "has_buckets", "is_anonymous", "refuse_unknown_host", "server_of", "sign_on"]

_SERVERS = ("endpoint_url", "endpoint", "endpoint_override", "account_name", "account_host", "host", "port")
"""Options of file systems that say which of several servers is asked, where URLs do not."""

_WITH_BUCKETS = frozenset({
    "abfs", "abfss", "adl", "az", "gcs", "gs", "oci", "oss", "r2", "s3", "s3a", "tos", "wasb", "wasbs",
})  # fmt: skip
_SIGNS = ("credential", "account_key", "sas_token")
_SIGNS_IN_TEXT = ("accountkey=", "sharedaccesssignature=")


def has_buckets(filesystem: Any) -> bool:
    """Whether paths in a file system of Arrow's begin with a bucket, below which there are no directories to make.

    Example:
        >>> from pyarrow import fs
        >>> has_buckets(fs.LocalFileSystem())
        False
    """
    store = attribute(attribute(filesystem, "handler"), "fs")
    protocols = filesystem.type_name if store is None else attribute(store, "protocol") or ()
    return not _WITH_BUCKETS.isdisjoint([protocols] if isinstance(protocols, str) else protocols)


def bucket_is_missing(store: Any, bucket: str) -> bool:
    """Whether a file system of fsspec's does not see a bucket; asks it, and raises what it raises."""
    return not store.exists(bucket)


def refuse_unknown_host(store: Any, bucket: str) -> None:
    """Says at once that there is no host of the name that a file system of fsspec's was told to ask.

    Clients of clouds ask for it several times, for some ten seconds. Where nobody can tell just now, or a proxy looks
    it up, nothing is said.

    Raises:
        ConnectionError: There is none, and none that has the bucket in its name.
    """
    options = attribute(store, "storage_options") or {}
    told = {**options, **(options.get("client_kwargs") or {})}
    address = urlsplit(str(attribute(store, "account_url") or told.get("endpoint_url") or ""))
    host = address.hostname
    if not host:
        return
    from urllib.request import getproxies, proxy_bypass  # 30 ms, which who reads local files does not spend

    if getproxies().get(address.scheme) and not proxy_bypass(host):
        return
    if all(_is_unknown(name) for name in (host, f"{bucket}.{host}")):
        raise ConnectionError(f"Name or service not known: {host}")


def _is_unknown(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError as problem:
        return is_unknown_host(problem)
    except UnicodeError:  # it is no name; whoever asks says so
        return False
    return False


def is_anonymous(store: Any) -> bool:
    """Whether a file system of fsspec's signs nothing, as far as it says so.

    Example:
        >>> import fsspec
        >>> is_anonymous(fsspec.filesystem("memory"))
        False
    """
    module = type(store).__module__.partition(".")[0]
    if module in {"s3fs", "petastore"}:
        return bool(attribute(store, "anon"))
    if module == "gcsfs":
        return attribute(attribute(store, "credentials"), "credentials") is None
    if module == "adlfs":
        text = str(attribute(store, "connection_string") or "").lower()
        given = any(attribute(store, name) for name in _SIGNS) and not text
        return not given and not any(sign in text for sign in _SIGNS_IN_TEXT)
    return False


def server_of(filesystem: Any) -> tuple[str, ...]:
    """The kind of a file system of Arrow's, and what says which server it asks; no credentials are in it.

    Example:
        >>> import fsspec
        >>> from petastore.storage.files.fsspec_handler import Files, Handler
        >>> server_of(Files(Handler(fsspec.filesystem("memory"))))
        ('memory', 'None')
        >>> from pyarrow import fs
        >>> server_of(fs.SubTreeFileSystem("/data", fs.LocalFileSystem()))
        ('below /data/', 'local')
    """
    store = attribute(attribute(filesystem, "handler"), "fs")
    if store is not None:
        options = attribute(store, "storage_options") or {}
        kind = (str(attribute(store, "protocol")), str(attribute(store, "account_name")))
        return (*kind, *_servers_in({**options, **(options.get("client_kwargs") or {})}))
    if isinstance(filesystem, fs.SubTreeFileSystem):
        return (f"below {filesystem.base_path}", *server_of(filesystem.base_fs))
    _, made_with = filesystem.__reduce__()  # those of Arrow say nowhere else what they were made with
    options = next((given for given in made_with if isinstance(given, dict)), {})
    return (str(filesystem.type_name), *_servers_in(options))


def _servers_in(options: Mapping[str, Any]) -> list[str]:
    told = {name: options.get(name) for name in _SERVERS}
    return sorted(f"{name}={shown_url(str(value))}" for name, value in told.items() if value is not None)


def sign_on(store: Any) -> None:
    """Has a file system look for its credentials now, and raises why it finds none that are good.

    gcsfs does so in each request, and tries again for half a minute when it is refused.
    """
    refresh = attribute(attribute(store, "credentials"), "maybe_refresh")
    if type(store).__module__.partition(".")[0] == "gcsfs" and refresh is not None:
        refresh()
