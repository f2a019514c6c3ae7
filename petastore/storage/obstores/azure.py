"""Azure's blobs: options in adlfs's names → how obstore reaches them, with the credentials that adlfs found."""

from __future__ import annotations

import dataclasses
import datetime as dt
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
from petastore.storage.requests.failure_kinds import attribute

__all__ = ["AzureSettings", "azure_settings", "azure_stores"]

# What says where and who is asked of the file system itself, which looks at the environment, too.
_UNDERSTOOD = {
    "account_host", "account_key", "account_name", "anon", "assume_container_exists", "blocksize", "client_id",
    "client_secret", "connection_string", "connection_timeout", "credential", "location_mode", "read_timeout",
    "sas_token", "socket_timeout", "tenant_id", "timeout",
}  # fmt: skip
_SCOPE = "https://storage.azure.com/.default"
_OF_CONNECTION_STRINGS = {
    "accountkey", "accountname", "blobendpoint", "defaultendpointsprotocol", "endpointsuffix", "sharedaccesssignature",
    # Of other services.
    "fileendpoint", "queueendpoint", "tableendpoint",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class AzureSettings:
    """How obstore reaches a container."""

    config: Mapping[str, Setting]
    """For the store itself; no credentials are among it."""

    client_options: Mapping[str, Setting]
    """For its HTTP client."""

    key: str | None = dataclasses.field(default=None, repr=False)
    """The account's key."""

    sas: str | None = dataclasses.field(default=None, repr=False)
    """A shared access signature, without a question mark."""

    credential: Any = dataclasses.field(default=None, repr=False)
    """An asynchronous credential of Azure's SDK, which gives tokens and refreshes them."""


def azure_settings(options: Mapping[str, Any], store: Any) -> AzureSettings | None:
    """Settings that do what adlfs does; None where something of it has no counterpart.

    Args:
        options: In adlfs's names.
        store: The file system, or what has its attributes.

    Example:
        >>> import types
        >>> store = types.SimpleNamespace(account_name="me", account_key="hush", account_url="https://me.host")
        >>> azure_settings({"account_name": "me", "account_key": "hush"}, store)
        AzureSettings(config={'account_name': 'me', 'endpoint': 'https://me.host'}, client_options={})
        >>> azure_settings({"request_session": object()}, store) is None
        True
    """
    left = {name for name, value in options.items() if name not in NO_MATTER | _UNDERSTOOD and value}
    if left or (attribute(store, "location_mode") or "primary") != "primary":
        return None
    text = attribute(store, "connection_string")
    if text is not None:
        return _of_connection_string(text)
    endpoint, account, credential = (attribute(store, name) for name in ("account_url", "account_name", "credential"))
    if not endpoint or not account or (credential is not None and not hasattr(credential, "get_token")):
        return None
    key = None if credential is not None else attribute(store, "account_key")
    sas = None if credential is not None or key is not None else attribute(store, "sas_token")
    return _settings(account, endpoint, key, sas, credential)


def _of_connection_string(text: str) -> AzureSettings | None:
    parts = {name.strip().lower(): value for name, _, value in (part.partition("=") for part in text.split(";"))}
    parts.pop("", None)
    if not parts.keys() <= _OF_CONNECTION_STRINGS:
        return None
    account, endpoint = parts.get("accountname"), parts.get("blobendpoint")
    if endpoint is None:
        if account is None:
            return None
        scheme = parts.get("defaultendpointsprotocol", "https")
        endpoint = f"{scheme}://{account}.blob.{parts.get('endpointsuffix', 'core.windows.net')}"
    endpoint = endpoint.rstrip("/")
    # Whoever does not sign needs no name of an account, but obstore wants one.
    account = account or endpoint.partition("://")[2].partition(".")[0]
    return _settings(account, endpoint, parts.get("accountkey"), parts.get("sharedaccesssignature"), None)


def _settings(account: str, endpoint: str, key: str | None, sas: str | None, credential: Any) -> AzureSettings | None:
    if "?" in endpoint:
        return None
    config: dict[str, Setting] = {"account_name": account, "endpoint": endpoint}
    if not key and not sas and credential is None:
        config["skip_signature"] = True
    client_options: dict[str, Setting] = {"allow_http": True} if endpoint.startswith("http://") else {}
    return AzureSettings(config, client_options, key or None, (sas or "").removeprefix("?") or None, credential)


def azure_stores(settings: AzureSettings, timeout_s: float | None, wait_for: Callable[[Any], Any]) -> Stores:
    """Stores of containers, for paths such as `container/a/b.parquet`.

    Args:
        settings: How they are reached.
        timeout_s: Seconds that a request may take; None is as long as bytes come.
        wait_for: Gives what a coroutine of the file system's comes to.
    """
    credentials = None

    def token() -> tuple[dict[str, Any], dt.datetime]:
        token = wait_for(settings.credential.get_token(_SCOPE))
        return {"token": token.token}, dt.datetime.fromtimestamp(token.expires_on, dt.UTC)

    signed: dict[str, Any] = {}
    if settings.credential is not None:
        credentials = Credentials(token)
        signed = {"credential_provider": credentials}
    elif settings.key is not None:
        signed = {"credential_provider": given(access_key=settings.key)}
    elif settings.sas is not None:
        signed = {"credential_provider": given(sas_token=settings.sas)}

    def make(container: str) -> Store:
        from obstore.store import AzureStore

        config: Any = settings.config
        return AzureStore(container, config=config, **signed, **requested_once(settings.client_options, timeout_s))

    return of_containers(make, credentials)
