"""Tests of converting adlfs options to obstore settings."""

from __future__ import annotations

import datetime as dt
import types
from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.storage.stores.cloud_settings import azure_settings
from petastore.storage.stores.store_settings import StoreSettings, request_limits

ENDPOINT = "https://me.blob.core.windows.net"
LATER = 2_524_608_000


class Tokens:
    def get_token(self, *_: str, **__: Any) -> Any:
        return types.SimpleNamespace(token="hush-token", expires_on=LATER)  # noqa: S106 - it is none


class AsynchronousTokens:
    async def get_token(self, *scopes: str) -> None:
        """Return None."""


def store_of(settings: StoreSettings) -> Any:
    limits = request_limits(3)
    limits["client_options"] |= settings.client_options
    return settings.make_store("container", limits, None)


def test_azure_store_has_a_container_name() -> None:
    assert "container" in repr(store_of(azure_settings({"account_name": "me", "anon": True})))


@pytest.mark.parametrize(
    ("options", "signed"),
    [
        ({"account_key": "hush"}, {"access_key": "hush"}),
        ({"sas_token": "?sig=hush"}, {"sas_token": "sig=hush"}),
        ({"account_key": "hush", "sas_token": "sig=hush"}, {"access_key": "hush"}),
        ({"credential": "sig=hush"}, {"sas_token": "sig=hush"}),
        ({"credential": Tokens()}, {"token": "hush-token"}),
    ],
)
def test_azure_credentials_are_passed_as_a_function(options: dict[str, Any], signed: dict[str, str]) -> None:
    settings = azure_settings({"account_name": "me", **options})
    store = store_of(settings)
    given = {name: value for name, value in store.credential_provider().items() if name != "expires_at"}
    assert given == signed
    assert settings.server == ("abfs", ENDPOINT)
    assert not settings.is_anonymous
    assert "hush" not in repr(settings) + repr(store) + repr(store.config)


def test_azure_tokens_expire_when_the_credential_says() -> None:
    store = store_of(azure_settings({"account_name": "me", "credential": Tokens()}))
    assert store.credential_provider()["expires_at"] == dt.datetime.fromtimestamp(LATER, dt.UTC)


@pytest.mark.parametrize(
    ("text", "endpoint", "anonymous"),
    [
        ("AccountName=me;AccountKey=aHVzaA==;EndpointSuffix=core.windows.net", ENDPOINT, False),
        ("BlobEndpoint=http://127.0.0.1:1/you/;SharedAccessSignature=sig=hush", "http://127.0.0.1:1/you", False),
        ("BlobEndpoint=http://127.0.0.1:1/you/", "http://127.0.0.1:1/you", True),
    ],
)
def test_azure_connection_string_gives_endpoint_and_credentials(text: str, endpoint: str, anonymous: bool) -> None:
    settings = azure_settings({"connection_string": text})
    assert (settings.server, settings.is_anonymous) == (("abfs", endpoint), anonymous)
    assert store_of(settings).config["endpoint"] == endpoint


@pytest.mark.parametrize(
    "options",
    [
        {"account_name": "me", "request_session": object()},
        {"account_name": "me", "version_aware": True},
        {"account_name": "me", "location_mode": "secondary"},
        {"account_name": "me", "credential": AsynchronousTokens()},
        {},
        {"connection_string": "UseDevelopmentStorage=true"},
        {"connection_string": "AccountKey=hush"},
    ],
)
def test_azure_options_unknown_to_obstore_raise(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"storage_options of abfs:// must be .*filesystem=adlfs"):
        azure_settings(options)
