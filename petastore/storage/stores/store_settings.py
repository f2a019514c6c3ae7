"""Convert `storage_options` of fsspec filesystems to settings of obstore.

The options are those of s3fs, gcsfs, adlfs, and fsspec's HTTP filesystem.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict
from urllib.parse import unquote, urljoin, urlsplit

from petastore.errors import InvalidArgumentError

__all__ = [
    "StoreOptions",
    "StoreSettings",
    "constant_credentials",
    "http_settings",
    "linked_addresses",
    "request_limits",
    "server_and_key",
    "store_maker",
]


# These options of fsspec are ignored: they are for listing, caching and uploading, or for connections, which obstore
# manages itself.
_WITHOUT_EFFECT = frozenset({
    "acl", "asynchronous", "block_size", "blocksize", "cache_options", "cache_regions", "cache_type", "connect_timeout",
    "connection_timeout", "default_block_size", "default_cache_type", "default_fill_cache", "encoded",
    "fixed_upload_size", "listings_expiry_time", "max_concurrency", "max_paths", "max_pool_connections", "read_timeout",
    "retries", "s3_additional_kwargs", "same_scheme", "signature_version", "simple_links", "size_policy",
    "skip_instance_cache", "socket_timeout", "tcp_keepalive", "timeout", "use_listings_cache",
})  # fmt: skip
_CONNECT_S, _READ_S = 10.0, 30.0
_UPLOAD_RETRIES = 5


class StoreArguments(TypedDict):
    """Arguments that all stores of obstore have."""

    client_options: Any
    """Options of the HTTP client."""

    retry_config: Any
    """How often and how long a request is retried."""


@dataclasses.dataclass(frozen=True)
class StoreSettings:
    """Connection settings of an object store; the repr shows no credentials."""

    make_store: Callable[[str, StoreArguments, str | None], Any]
    """Function that creates obstore's client of a bucket.

    It takes the bucket's name, the arguments, and the S3 region or None.
    """

    make_child_filesystem: Callable[[], Any]
    """Function that creates the filesystem for a forked child.

    obstore's threads are missing in the child.
    """

    server: tuple[str, ...]
    """Kind and address of the storage."""

    client_options: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    """Options of obstore's HTTP client; headers may hold a token."""

    is_anonymous: bool = False
    """Whether requests are unsigned."""

    finds_credentials: bool = False
    """Whether credentials come from the environment, and may be replaced there."""


class StoreOptions:
    """Reader of `storage_options`: take options one by one, then reject the rest.

    Nested options in `client_kwargs`, `config_kwargs` and `session_kwargs` are included.

    Args:
        scheme: Scheme of the URL; fsspec's configuration for it is included.
        options: The caller's `storage_options`.
        backend: fsspec filesystem whose option names are used.

    Example:
        >>> options = StoreOptions("s3", {"key": "AKIA", "client_kwargs": {"region_name": "x"}, "anon": None}, "s3fs")
        >>> options.take("key", "username"), options.take("region_name"), options.take("anon")
        ('AKIA', 'x', None)
        >>> options.reject_others()
    """

    def __init__(self, scheme: str, options: Mapping[str, Any], backend: str) -> None:
        from fsspec.config import conf

        flat = {**conf.get(scheme, {}), **options}
        for nested in ("client_kwargs", "config_kwargs", "session_kwargs"):
            flat = {**(flat.pop(nested, None) or {}), **flat}
        self._left = {
            name: value for name, value in flat.items() if name not in _WITHOUT_EFFECT and value not in (None, {})
        }
        self._scheme, self._backend = scheme, backend

    def take(self, *names: str) -> Any:
        """Remove an option, which may have several names, and return its value.

        Return None if the option was not passed.
        """
        values = [self._left.pop(name, None) for name in names]
        return next((value for value in values if value is not None), None)

    def reject_others(self) -> None:
        """Raise an error if options are left that `take` has not removed.

        Raises:
            InvalidArgumentError: An option has no counterpart.
        """
        names = sorted(name for name, value in self._left.items() if value is not False)
        if names:
            raise self.error(f"options that obstore knows, got {', '.join(names)}")

    def error(self, rule: str) -> InvalidArgumentError:
        """Return the error for an invalid option.

        `rule` completes the sentence "storage_options must be".
        """
        return InvalidArgumentError(
            f"storage_options of {self._scheme}:// must be {rule}. Correct them, or pass a file system of your own, "
            f"such as filesystem={self._backend}(…)"
        )


def constant_credentials(**credentials: Any) -> Callable[[], dict[str, Any]]:
    """Return a credential provider: a function that always returns these credentials.

    A function hides credentials from obstore's repr, which shows all other settings.
    """

    def provide() -> dict[str, Any]:
        return {**credentials, "expires_at": None}

    return provide


def store_maker(
    kind: str, config: Mapping[str, Any], make_provider: Callable[[], Any] | None = None
) -> Callable[[str, StoreArguments, str | None], Any]:
    """Return a function that creates obstore's client of a bucket (`StoreSettings`).

    Args:
        kind: Class of obstore.
        config: Settings for the class; `{bucket}` in an endpoint stands for the bucket.
        make_provider: Function that returns the credential provider; None if the settings have the credentials.
    """

    def make_store(bucket: str, arguments: StoreArguments, region: str | None) -> Any:
        import obstore.store

        own = {**config, **({"region": region} if region else {})}
        if "endpoint" in own:
            own["endpoint"] = own["endpoint"].replace("{bucket}", bucket)
        signed = {} if make_provider is None else {"credential_provider": make_provider()}
        return getattr(obstore.store, kind)(bucket, config=own, **signed, **arguments)

    return make_store


def request_limits(timeout_s: float | None, *, writes: bool = False) -> StoreArguments:
    """Return the timeouts and retries of requests, as arguments of an obstore client.

    `petastore.storage.requests.retries` retries reads. The connect and read timeouts are at most a quarter of the
    request's timeout, which leaves time for another attempt. obstore itself retries the parts of an upload.

    Args:
        timeout_s: Timeout of a request in seconds; None means no limit while bytes arrive.
        writes: Whether the store writes.
    """
    whole = timeout_s or 86400.0
    times = {"timeout": whole, "connect_timeout": min(_CONNECT_S, whole / 4), "read_timeout": min(_READ_S, whole / 4)}
    retries = {"max_retries": _UPLOAD_RETRIES, "retry_timeout": dt.timedelta(seconds=whole)}
    return {
        "client_options": {name: dt.timedelta(seconds=seconds) for name, seconds in times.items()},
        "retry_config": retries if writes else {"max_retries": 0},
    }


_LINK = re.compile(r"""<a\s[^>]*?href=["']([^"'#?]+)["'#?]""", re.IGNORECASE)


def http_settings(options: Mapping[str, Any]) -> StoreSettings:
    """Return obstore's connection settings for options of fsspec's HTTP filesystem.

    Raises:
        InvalidArgumentError: An option has no counterpart in obstore.

    Example:
        >>> http_settings({"headers": {"Authorization": "Bearer abc"}}).server
        ('http',)
    """
    given = StoreOptions("http", options, "fsspec.filesystem")
    headers, auth = dict(given.take("headers") or {}), given.take("auth")
    given.reject_others()
    # `client_kwargs={"headers": …}` and `headers=` are two options of fsspec.
    headers = {**((options.get("client_kwargs") or {}).get("headers") or {}), **headers}
    if auth is not None:
        signed = base64.b64encode(f"{auth.login}:{auth.password}".encode()).decode()
        headers["Authorization"] = f"Basic {signed}"
    if not all(isinstance(part, str) for pair in headers.items() for part in pair):
        raise given.error("given with headers whose names and values are text, got other values")

    def make_store(server: str, arguments: StoreArguments, region: str | None) -> Any:  # noqa: ARG001 - only for S3
        from obstore.store import HTTPStore

        return HTTPStore(server, **arguments)

    def make_child_filesystem() -> Any:
        import fsspec

        from petastore.storage.stores.fsspec_store import FsspecStore

        try:
            return FsspecStore(fsspec.filesystem("http", skip_instance_cache=True, **options))
        except ImportError:
            raise OSError(
                "a forked process needs the package 'aiohttp' to read from web servers, which is not installed here: "
                "pip install aiohttp, or start processes with spawn"
            ) from None

    client: dict[str, Any] = {"allow_http": True, **({"default_headers": headers} if headers else {})}
    return StoreSettings(make_store, make_child_filesystem, ("http",), client)


def server_and_key(url: str) -> tuple[str, str]:
    """Split a web address into the server and the key, for obstore.

    If obstore would change the key, for example because of a query, return the whole address and an empty key.

    Example:
        >>> server_and_key("https://host:8443/a%20b/part-0.parquet")
        ('https://host:8443', 'a b/part-0.parquet')
        >>> server_and_key("https://host/part-0.parquet?sig=abc")
        ('https://host/part-0.parquet?sig=abc', '')
    """
    parts = urlsplit(url)
    segments = parts.path.split("/")[1:]
    strange = {"", ".", ".."}.intersection(map(unquote, segments)) or "%2f" in parts.path.lower() or ";" in parts.path
    if parts.query or parts.fragment or strange or not segments or "@" in parts.netloc:
        return url, ""
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path[1:])


def linked_addresses(url: str, page: bytes) -> list[str]:
    """Return the addresses directly below a directory to which its web page links.

    Addresses of directories end with a slash.

    Example:
        >>> linked_addresses("http://host/data/", b'<a href="../">up</a> <a href="a.parquet">a</a> <a href="b/">b</a>')
        ['http://host/data/a.parquet', 'http://host/data/b/']
    """
    found = [urljoin(url, link) for link in _LINK.findall(page.decode("utf-8", "replace"))]
    return [one for one in dict.fromkeys(found) if one.startswith(url) and "/" not in one[len(url) : -1] and one != url]
