"""Options of fsspec's are said to obstore as they are meant, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.storage.ranges.obstores.azure import azure_settings
from petastore.storage.ranges.obstores.google import google_settings
from petastore.storage.ranges.obstores.s3 import s3_settings
from petastore.storage.ranges.obstores.web import http_place, http_settings


@pytest.mark.parametrize(
    "options",
    [
        {"key": "k", "secret": "s", "token": "t"},
        {"username": "k", "password": "s", "token": "t"},
        {"client_kwargs": {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_session_token": "t"}},
    ],
)
def test_credentials_are_found_under_each_name(options: dict[str, Any]) -> None:
    settings = s3_settings(options)
    assert settings is not None
    assert settings.keys == ("k", "s", "t")
    assert settings.config == {}


def test_no_credential_is_among_what_obstore_shows() -> None:
    settings = s3_settings({"key": "AKIAX", "secret": "hushhush", "token": "t0ken"})
    assert "hushhush" not in repr(settings)
    assert "AKIAX" not in repr(settings)
    assert "t0ken" not in repr(settings)
    assert "Bearer" not in repr(http_settings({"headers": {"Authorization": "Bearer x"}}))


@pytest.mark.parametrize(
    ("options", "config", "client"),
    [
        ({}, {}, {}),
        ({"endpoint_url": "https://host/"}, {"endpoint": "https://host"}, {}),
        ({"client_kwargs": {"endpoint_url": "http://host"}}, {"endpoint": "http://host"}, {"allow_http": True}),
        ({"client_kwargs": {"region_name": "eu-west-1"}}, {"region": "eu-west-1"}, {}),
        ({"client_kwargs": {"verify": False}}, {}, {"allow_invalid_certificates": True}),
        ({"requester_pays": True}, {"request_payer": True}, {}),
        (
            {"config_kwargs": {"s3": {"addressing_style": "path"}}, "endpoint_url": "https://h"},
            {"endpoint": "https://h"},
            {},
        ),
        ({"default_block_size": 5, "use_listings_cache": False}, {}, {}),
    ],
)
def test_what_says_where_is_said_to_obstore(
    options: dict[str, Any], config: dict[str, Any], client: dict[str, Any]
) -> None:
    settings = s3_settings(options)
    assert settings is not None
    assert (dict(settings.config), dict(settings.client_options)) == (config, client)


@pytest.mark.parametrize(
    "options",
    [
        {"session": object()},
        {"version_aware": True},
        {"asynchronous": True},
        {"client_kwargs": {"verify": "/etc/ca.pem"}},
        {"config_kwargs": {"proxies": {}}},
        {"config_kwargs": {"s3": {"addressing_style": "path"}}},
        {"endpoint_url": "https://bucket.host", "config_kwargs": {"s3": {"addressing_style": "virtual"}}},
        {"key": "k"},
        {"something": "new"},
    ],
)
def test_what_cannot_be_said_to_obstore_is_left_to_fsspec(options: dict[str, Any]) -> None:
    assert s3_settings(options) is None


def test_anonymous_and_profile() -> None:
    anonymous, profile = s3_settings({"anon": True}), s3_settings({"profile": "work"})
    assert anonymous is not None
    assert anonymous.anonymous
    assert profile is not None
    assert profile.profile == "work"


@pytest.mark.parametrize("options", [{"client_kwargs": {"auth": object()}}, {"get_client": print}, {"encoded": True}])
def test_ways_of_the_web_that_obstore_does_not_know(options: dict[str, Any]) -> None:
    assert http_settings(options) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://host/a?sig=x", "https://host/a#b", "https://me:pw@host/a", "https://host/a//b", "https://host/a/../b",
        "https://host/a%2fb", "https://host/", "https://host", "ftp://host/a", "https://host/a;b",
    ],
)  # fmt: skip
def test_addresses_that_obstore_would_write_in_another_way(url: str) -> None:
    assert http_place(url) is None


@pytest.mark.parametrize(
    ("options", "endpoint", "config", "client"),
    [
        ({}, "https://storage.googleapis.com", {"base_url": "https://storage.googleapis.com"}, {}),
        ({"endpoint_url": "http://h:1/"}, "http://h:1/", {"base_url": "http://h:1"}, {"allow_http": True}),
        ({"project": "p", "token": {"private_key": "hush"}, "consistency": "md5", "timeout": 3}, None, {}, {}),
        ({"requester_pays": False, "version_aware": False, "session_kwargs": {}}, None, {}, {}),
    ],
)
def test_what_google_is_told(options: dict[str, Any], endpoint: str | None, config: Any, client: Any) -> None:
    settings = google_settings(options, endpoint)
    assert settings is not None
    assert (dict(settings.config), dict(settings.client_options)) == (config, client)
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    "options",
    [{"requester_pays": True}, {"version_aware": True}, {"session_kwargs": {"trust_env": True}}, {"something": "new"}],
)
def test_what_cannot_be_said_of_google_is_left_to_gcsfs(options: dict[str, Any]) -> None:
    assert google_settings(options, None) is None


class Blobs:
    """What adlfs has made of its options."""

    account_name, account_key, sas_token, connection_string, credential, location_mode = (
        "me",
        None,
        None,
        None,
        None,
        None,
    )
    account_url = "https://me.blob.core.windows.net"

    def __init__(self, **found: Any) -> None:
        vars(self).update(found)


PLACE = {"account_name": "me", "endpoint": "https://me.blob.core.windows.net"}


class Tokens:
    def get_token(self, *scopes: str) -> None:
        """Give none."""


@pytest.mark.parametrize(
    ("found", "config", "signed"),
    [
        ({}, {**PLACE, "skip_signature": True}, (None, None, False)),
        ({"account_key": "hush"}, PLACE, ("hush", None, False)),
        ({"sas_token": "?sig=hush"}, PLACE, (None, "sig=hush", False)),
        ({"account_key": "hush", "sas_token": "sig=hush"}, PLACE, ("hush", None, False)),
        ({"credential": Tokens(), "account_key": "hush"}, PLACE, (None, None, True)),
        (
            {"connection_string": "AccountName=me;AccountKey=hush==;EndpointSuffix=core.windows.net"},
            PLACE,
            ("hush==", None, False),
        ),
        (
            {"connection_string": "BlobEndpoint=http://127.0.0.1:1/you/;SharedAccessSignature=sig=hush"},
            {"account_name": "127", "endpoint": "http://127.0.0.1:1/you"},
            (None, "sig=hush", False),
        ),
    ],
)  # fmt: skip
def test_what_azure_is_told(found: dict[str, Any], config: Any, signed: Any) -> None:
    settings = azure_settings({}, Blobs(**found))
    assert settings is not None
    assert dict(settings.config) == config
    assert (settings.key, settings.sas, settings.credential is not None) == signed
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"request_session": object()}, {}),
        ({"version_aware": True}, {}),
        ({"something": "new"}, {}),
        ({}, {"location_mode": "secondary"}),
        ({}, {"credential": "sig=hush"}),
        ({}, {"account_name": None}),
        ({}, {"connection_string": "UseDevelopmentStorage=true"}),
        ({}, {"connection_string": "AccountKey=hush"}),
        ({}, {"connection_string": "BlobEndpoint=https://h?sig=hush"}),
    ],
)
def test_what_cannot_be_said_of_azure_is_left_to_adlfs(options: dict[str, Any], found: dict[str, Any]) -> None:
    assert azure_settings(options, Blobs(**found)) is None
