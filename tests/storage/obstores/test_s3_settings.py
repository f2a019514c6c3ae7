"""Options of s3fs are said to obstore as they are meant, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.storage.obstores.s3 import s3_settings


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
