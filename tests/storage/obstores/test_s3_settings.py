"""Options of s3fs are said to obstore as they are meant, or not at all."""

from __future__ import annotations

import os
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
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


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_endpoint_of_the_environment_may_be_plain_http(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9000")
    settings = s3_settings({"key": "k", "secret": "s"})
    assert settings is not None
    assert (settings.config, settings.client_options) == ({"endpoint": "http://127.0.0.1:9000"}, {"allow_http": True})
    given = s3_settings({"endpoint_url": "https://host"})
    assert given is not None
    assert (given.config, given.client_options) == ({"endpoint": "https://host"}, {})
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    ignored = s3_settings({})
    assert ignored is not None
    assert ignored.config == {}


def test_dataset_opens_at_a_plain_http_endpoint_of_the_environment(moto: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{moto}",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "hush-hush-hush",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="environment")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2]}), sink)
    s3.put_object(Bucket="environment", Key="ds/a.parquet", Body=sink.getvalue().to_pybytes())
    s3.close()
    with petastore.make_reader("s3://environment/ds", shuffle_row_groups=False) as reader:
        assert [row.id for row in reader] == [1, 2]
