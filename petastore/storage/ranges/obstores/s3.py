"""Options in fsspec's names → the settings of obstore's stores; None where one of them has no counterpart there. Pure.

What cannot be said to obstore is not left out: then fsspec reads, which the options were made for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

__all__ = ["HttpSettings", "S3Settings", "http_place", "http_settings", "s3_settings"]

# They say how fsspec lists, caches and writes; ranges of bytes are none of that.
_NO_MATTER = {
    "cache_regions", "default_block_size", "default_cache_type", "default_fill_cache", "fixed_upload_size",
    "listings_expiry_time", "max_concurrency", "max_paths", "skip_instance_cache", "use_listings_cache", "block_size",
    "cache_type", "cache_options", "size_policy", "simple_links", "same_scheme", "s3_additional_kwargs", "acl",
}  # fmt: skip
_NO_MATTER_TO_CLIENTS = {"connect_timeout", "read_timeout", "retries", "max_pool_connections", "tcp_keepalive"}


_Setting: TypeAlias = str | bool | Mapping[str, str]
"""What obstore is told."""


@dataclasses.dataclass(frozen=True)
class S3Settings:
    """How obstore reaches a bucket."""

    config: Mapping[str, _Setting]
    """For the store itself; no credentials are among it."""

    client_options: Mapping[str, _Setting]
    """For its HTTP client."""

    anonymous: bool = False
    """Whether requests are not signed."""

    keys: tuple[str, str, str | None] | None = dataclasses.field(default=None, repr=False)
    """Key, secret and token; None looks for them where Amazon's tools do."""

    profile: str | None = None
    """The section of Amazon's configuration files where they are looked for."""


@dataclasses.dataclass(frozen=True)
class HttpSettings:
    """How obstore reaches a web server."""

    client_options: Mapping[str, _Setting] = dataclasses.field(repr=False)
    """For its HTTP client; headers may hold a token."""


def s3_settings(options: Mapping[str, Any]) -> S3Settings | None:
    """Settings that do what the options of s3fs do.

    Example:
        >>> s3_settings({"key": "AKIA", "secret": "hush", "endpoint_url": "http://127.0.0.1:9000"})
        S3Settings(config={'endpoint': 'http://127.0.0.1:9000'}, client_options={'allow_http': True}, anonymous=False,
        profile=None)
        >>> s3_settings({"session": object()}) is None
        True
    """
    left = {name: value for name, value in options.items() if name not in _NO_MATTER and value is not None}
    client = dict(left.pop("client_kwargs", {}))
    botocore = {name: value for name, value in _config_kwargs(left).items() if name not in _NO_MATTER_TO_CLIENTS}
    key = _one_of(left, ("key", "username"), client, "aws_access_key_id")
    secret = _one_of(left, ("secret", "password"), client, "aws_secret_access_key")
    token = _one_of(left, ("token",), client, "aws_session_token")
    endpoint = _one_of(left, ("endpoint_url",), client, "endpoint_url")
    region = client.pop("region_name", None)
    secure = _one_of(left, ("use_ssl",), client, "use_ssl")
    verify = client.pop("verify", None)
    anonymous, profile = bool(left.pop("anon", False)), left.pop("profile", None)
    config: dict[str, _Setting] = {}
    if left.pop("requester_pays", False):
        config["request_payer"] = True
    addressing = dict(botocore.pop("s3", {})).pop("addressing_style", "auto")
    if left.pop("version_aware", False) or left or client or botocore or addressing not in {"auto", "path", "virtual"}:
        return None
    if not isinstance(verify, (bool, type(None))) or (key is None) != (secret is None):
        return None
    if endpoint is None and (addressing == "path" or secure is False):
        return None
    if endpoint is not None:
        if addressing == "virtual":
            return None  # obstore wants the bucket in the endpoint then
        config["endpoint"] = str(endpoint).rstrip("/")
    if region is not None:
        config["region"] = region
    client_options: dict[str, _Setting] = {"allow_http": True} if str(endpoint).startswith("http://") else {}
    if verify is False:
        client_options["allow_invalid_certificates"] = True
    keys = None if key is None or secret is None else (str(key), str(secret), None if token is None else str(token))
    return S3Settings(config, client_options, anonymous, keys, profile)


def _config_kwargs(left: dict[str, Any]) -> dict[str, Any]:
    return dict(left.pop("config_kwargs", {}))


def _one_of(options: dict[str, Any], names: tuple[str, ...], client: dict[str, Any], inner: str) -> Any:
    """What an option says that has several names; all are taken out."""
    found = [options.pop(name, None) for name in names] + [client.pop(inner, None)]
    return next((value for value in found if value is not None), None)


def http_settings(options: Mapping[str, Any]) -> HttpSettings | None:
    """Settings that do what the options of fsspec's web file system do.

    Example:
        >>> http_settings({"headers": {"Authorization": "Bearer abc"}})
        HttpSettings()
        >>> http_settings({"encoded": True}) is None
        True
    """
    left = {name: value for name, value in options.items() if name not in _NO_MATTER and value is not None}
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
