"""S3: options in s3fs's names → how obstore reaches it, with credentials from where Amazon's tools have them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Callable, Mapping
from typing import Any

from petastore.storage.obstores.credentials import Credentials, given
from petastore.storage.obstores.kept_stores import (
    NO_MATTER,
    Setting,
    Store,
    Stores,
    of_containers,
    requested_once,
)
from petastore.storage.requests.client import UnsuitedError
from petastore.storage.requests.failure_kinds import attribute

__all__ = ["S3Settings", "s3_settings", "s3_stores"]

_NO_MATTER_TO_CLIENTS = {"connect_timeout", "read_timeout", "retries", "max_pool_connections", "tcp_keepalive"}


@dataclasses.dataclass(frozen=True)
class S3Settings:
    """How obstore reaches a bucket."""

    config: Mapping[str, Setting]
    """For the store itself; no credentials are among it."""

    client_options: Mapping[str, Setting]
    """For its HTTP client."""

    anonymous: bool = False
    """Whether requests are not signed."""

    keys: tuple[str, str, str | None] | None = dataclasses.field(default=None, repr=False)
    """Key, secret and token; None looks for them where Amazon's tools do."""

    profile: str | None = None
    """The section of Amazon's configuration files where they are looked for."""


def s3_settings(options: Mapping[str, Any]) -> S3Settings | None:
    """Settings that do what the options of s3fs do.

    Example:
        >>> s3_settings({"key": "AKIA", "secret": "hush", "endpoint_url": "http://127.0.0.1:9000"})
        S3Settings(config={'endpoint': 'http://127.0.0.1:9000'}, client_options={'allow_http': True}, anonymous=False,
        profile=None)
        >>> s3_settings({"session": object()}) is None
        True
    """
    left = {name: value for name, value in options.items() if name not in NO_MATTER and value is not None}
    client = dict(left.pop("client_kwargs", {}))
    botocore = {name: value for name, value in _config_kwargs(left).items() if name not in _NO_MATTER_TO_CLIENTS}
    key = _one_of(left, ("key", "username"), client, "aws_access_key_id")
    secret = _one_of(left, ("secret", "password"), client, "aws_secret_access_key")
    token = _one_of(left, ("token",), client, "aws_session_token")
    endpoint = _one_of(left, ("endpoint_url",), client, "endpoint_url")
    if endpoint is None and os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = client.pop("region_name", None)
    secure = _one_of(left, ("use_ssl",), client, "use_ssl")
    verify = client.pop("verify", None)
    anonymous, profile = bool(left.pop("anon", False)), left.pop("profile", None)
    config: dict[str, Setting] = {}
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
    client_options: dict[str, Setting] = {"allow_http": True} if str(endpoint).startswith("http://") else {}
    if verify is False:
        client_options["allow_invalid_certificates"] = True
    keys = None if key is None or secret is None else (str(key), str(secret), None if token is None else str(token))
    return S3Settings(config, client_options, anonymous, keys, profile)


def _config_kwargs(left: dict[str, Any]) -> dict[str, Any]:
    return dict(left.pop("config_kwargs", {}))


def _one_of(options: dict[str, Any], names: tuple[str, ...], client: dict[str, Any], inner: str) -> Any:
    """What an option says that has several names; all are taken out."""
    values = [options.pop(name, None) for name in names] + [client.pop(inner, None)]
    return next((value for value in values if value is not None), None)


def s3_stores(settings: S3Settings, timeout_s: float | None) -> Stores:
    """Stores of buckets, for paths such as `bucket/a/b.parquet`.

    Args:
        settings: How they are reached.
        timeout_s: Seconds that a request may take; None is as long as bytes come.
    """
    credentials: Credentials | None = None
    signed: dict[str, Any] = {"skip_signature": True}
    if settings.keys is not None and not settings.anonymous:
        key, secret, token = settings.keys
        signed = {"credential_provider": given(access_key_id=key, secret_access_key=secret, token=token)}
    elif not settings.anonymous:
        credentials = Credentials(_looked_for(settings.profile))
        signed = {"credential_provider": credentials}

    def make(bucket: str) -> Store:
        from obstore.store import S3Store

        config: Any = settings.config
        return S3Store(bucket, config=config, **signed, **requested_once(settings.client_options, timeout_s))

    return of_containers(make, credentials)


def _looked_for(profile: str | None) -> Callable[[], tuple[dict[str, Any], dt.datetime | None]]:
    """Looks where Amazon's tools have them: the environment, files, the machine.

    Those that end are refreshed there in time. Others are looked for each time: somebody may have written new ones.
    """
    known: list[Any] = []

    def look() -> tuple[dict[str, Any], dt.datetime | None]:
        there = _in_environment() if profile is None else None
        if there is not None:
            return there, None
        try:
            from botocore.session import Session
        except ImportError:
            raise UnsuitedError("credentials are looked for by botocore, which is not installed") from None
        credentials = known[0] if known else Session(profile=profile).get_credentials()
        if credentials is None:
            raise PermissionError("no credentials were found in the environment, in files, or by the machine")
        if attribute(credentials, "refresh_needed") is not None:
            known[:] = [credentials]
        frozen = credentials.get_frozen_credentials()
        keys = {"access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key, "token": frozen.token}
        return keys, None

    return look


def _in_environment() -> dict[str, Any] | None:
    """Keys without an end, where Amazon's tools look first; else botocore looks, which takes longer than a request."""
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret or os.environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    token = os.environ.get("AWS_SECURITY_TOKEN") or os.environ.get("AWS_SESSION_TOKEN")
    return {"access_key_id": key, "secret_access_key": secret, "token": token}
