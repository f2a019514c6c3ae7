"""Web servers: options of fsspec's web file system → how obstore reaches them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from petastore.storage.obstores.kept_stores import NO_MATTER, KeptStores, Setting, Store, Stores, requested_once
from petastore.storage.requests.client import UnsuitedError

__all__ = ["HttpSettings", "http_place", "http_settings", "http_stores"]


@dataclasses.dataclass(frozen=True)
class HttpSettings:
    """How obstore reaches a web server."""

    client_options: Mapping[str, Setting] = dataclasses.field(repr=False)
    """For its HTTP client; headers may hold a token."""


def http_settings(options: Mapping[str, Any]) -> HttpSettings | None:
    """Settings that do what the options of fsspec's web file system do.

    Example:
        >>> http_settings({"headers": {"Authorization": "Bearer abc"}})
        HttpSettings()
        >>> http_settings({"encoded": True}) is None
        True
    """
    left = {name: value for name, value in options.items() if name not in NO_MATTER and value is not None}
    client = dict(left.pop("client_kwargs", {}))
    headers = {**dict(client.pop("headers", {})), **dict(left.pop("headers", {}))}
    if left or client or not all(isinstance(part, str) for pair in headers.items() for part in pair):
        return None
    return HttpSettings({"allow_http": True, **({"default_headers": headers} if headers else {})})


def http_place(url: str) -> tuple[str, str] | None:
    """The server and the path of a web address; None where obstore would ask for another one.

    Example:
        >>> http_place("https://host:8443/a%20b/part-0.parquet")
        ('https://host:8443', 'a b/part-0.parquet')
        >>> http_place("https://host/part-0.parquet?sig=abc") is None
        True
    """
    parts = urlsplit(url)
    is_plain = parts.scheme in {"http", "https"} and parts.netloc and "@" not in parts.netloc
    segments = parts.path.split("/")[1:]
    strange = {"", ".", ".."}.intersection(map(unquote, segments)) or "%2f" in parts.path.lower() or ";" in parts.path
    if not is_plain or parts.query or parts.fragment or strange or not segments:
        return None
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path[1:])


def http_stores(settings: HttpSettings, timeout_s: float | None) -> Stores:
    """Stores of web servers, for paths that are addresses.

    Args:
        settings: How they are reached.
        timeout_s: Seconds that a request may take; None is as long as bytes come.
    """

    def make(server: str) -> Store:
        from obstore.store import HTTPStore

        return HTTPStore(server, **requested_once(settings.client_options, timeout_s))

    return _Servers(KeptStores(make))


class _Servers:
    def __init__(self, kept: KeptStores) -> None:
        self._kept = kept

    def __call__(self, path: str) -> tuple[Store, str]:
        place = http_place(path)
        if place is None:
            raise UnsuitedError("an address with a query, or one that is not written in the usual way")
        return self._kept(place[0]), place[1]

    def refused(self, path: str, store: Store) -> bool:  # noqa: ARG002 - what signs requests was given
        return False
