"""Google Cloud Storage: options in gcsfs's names → how obstore reaches it, with the credentials that gcsfs found."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

from petastore.storage.obstores.credentials import Credentials
from petastore.storage.obstores.kept_stores import (
    NO_MATTER,
    Setting,
    Store,
    Stores,
    of_containers,
    requested_once,
)
from petastore.storage.requests.failure_kinds import attribute

__all__ = ["GoogleSettings", "google_settings", "google_stores"]

_OF_OTHERS = {
    # Of how gcsfs writes and lists; and who asks, which it has made credentials of already.
    "access", "cache_timeout", "check_connection", "consistency", "default_location", "finalize_on_close", "project",
    "requests_timeout", "secure_serialize", "timeout", "token",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class GoogleSettings:
    """How obstore reaches a bucket of Google's."""

    config: Mapping[str, Setting]
    """For the store itself; no credentials are among it."""

    client_options: Mapping[str, Setting]
    """For its HTTP client."""


def google_settings(options: Mapping[str, Any], endpoint: str | None = None) -> GoogleSettings | None:
    """Settings that do what the options of gcsfs do; None where one of them has no counterpart.

    Args:
        options: In gcsfs's names.
        endpoint: Where it sends its requests.

    Example:
        >>> google_settings({"token": "anon", "project": "p"}, "http://127.0.0.1:4443/")
        GoogleSettings(config={'base_url': 'http://127.0.0.1:4443'}, client_options={'allow_http': True})
        >>> google_settings({"requester_pays": "my-project"}) is None
        True
    """
    left = {name: value for name, value in options.items() if name not in NO_MATTER | _OF_OTHERS and value}
    place = (left.pop("endpoint_url", None) or endpoint or "").rstrip("/")
    if left:
        return None
    config: dict[str, Setting] = {"base_url": place} if place else {}
    return GoogleSettings(config, {"allow_http": True} if place.startswith("http://") else {})


def google_stores(settings: GoogleSettings, timeout_s: float | None, given: Any) -> Stores:
    """Stores of buckets, for paths such as `bucket/a/b.parquet`.

    Args:
        settings: How they are reached.
        timeout_s: Seconds that a request may take; None is as long as bytes come.
        given: gcsfs's credentials: it knows where they come from, and refreshes them.
    """
    credentials = None if attribute(given, "credentials") is None else Credentials(lambda: _token(given))
    signed: dict[str, Any] = {"credential_provider": credentials} if credentials else {}
    config: Any = {**settings.config, **({} if credentials else {"skip_signature": True})}

    def make(bucket: str) -> Store:
        from obstore.store import GCSStore

        return GCSStore(bucket, config=config, **signed, **requested_once(settings.client_options, timeout_s))

    return of_containers(make, credentials)


def _token(given: Any) -> tuple[dict[str, Any], dt.datetime | None]:
    given.maybe_refresh()
    expiry = given.credentials.expiry  # in UTC, without saying so
    return {"token": given.credentials.token}, None if expiry is None else expiry.replace(tzinfo=dt.UTC)
