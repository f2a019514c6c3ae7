"""Tests of converting s3fs options to obstore settings."""

from __future__ import annotations

import os
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import InvalidArgumentError
from petastore.storage.stores.cloud_settings import s3_settings
from petastore.storage.stores.store_settings import StoreSettings, request_limits


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def store_of(settings: StoreSettings) -> Any:
    limits = request_limits(3)
    limits["client_options"] |= settings.client_options
    return settings.make_store("bucket", limits, None)


@pytest.mark.parametrize(
    "options",
    [
        {"key": "AKIAX", "secret": "hushhush", "token": "t0ken"},
        {"username": "AKIAX", "password": "hushhush", "token": "t0ken"},
        {
            "client_kwargs": {
                "aws_access_key_id": "AKIAX", "aws_secret_access_key": "hushhush", "aws_session_token": "t0ken",
            }
        },
    ],
)  # fmt: skip
def test_s3_credentials_have_several_names_and_are_not_shown(options: dict[str, Any]) -> None:
    settings = s3_settings(options)
    store = store_of(settings)
    expected = {"access_key_id": "AKIAX", "secret_access_key": "hushhush", "token": "t0ken", "expires_at": None}
    assert store.credential_provider() == expected
    shown = repr(settings) + repr(store) + repr(store.config)
    assert not [secret for secret in ("hushhush", "AKIAX", "t0ken") if secret in shown]


@pytest.mark.parametrize(
    ("options", "config", "client"),
    [
        ({}, {}, {}),
        ({"endpoint_url": "https://host/"}, {"endpoint": "https://host"}, {}),
        ({"client_kwargs": {"endpoint_url": "http://host"}}, {"endpoint": "http://host"}, {"allow_http": True}),
        ({"client_kwargs": {"region_name": "eu-west-1"}}, {"region": "eu-west-1"}, {}),
        ({"client_kwargs": {"verify": False}}, {}, {"allow_invalid_certificates": True}),
        ({"requester_pays": True}, {"request_payer": "true"}, {}),
        ({"config_kwargs": {"proxies": {"https": "http://proxy:1"}}}, {}, {"proxy_url": "http://proxy:1"}),
        (
            {"config_kwargs": {"s3": {"addressing_style": "path"}}, "endpoint_url": "https://h"},
            {"endpoint": "https://h", "virtual_hosted_style_request": "false"},
            {},
        ),
        (
            {"config_kwargs": {"s3": {"addressing_style": "virtual"}}, "endpoint_url": "https://h"},
            {"endpoint": "https://bucket.h", "virtual_hosted_style_request": "true"},
            {},
        ),
        ({"default_block_size": 5, "use_listings_cache": False}, {}, {}),
    ],
)
def test_s3_storage_options_map_to_obstore_settings(
    options: dict[str, Any], config: dict[str, Any], client: dict[str, Any]
) -> None:
    settings = s3_settings({"anon": True, **options})
    assert dict(settings.client_options) == client
    found = {str(name).removeprefix("aws_"): str(value).lower() for name, value in store_of(settings).config.items()}
    assert config.items() <= found.items()


@pytest.mark.parametrize(
    "options",
    [
        {"session": object()},
        {"version_aware": True},
        {"config_kwargs": {"s3": {"addressing_style": "path"}}},
        {"key": "k"},
        {"something": "new"},
    ],
)
def test_s3_options_unknown_to_obstore_raise(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"storage_options of s3:// must be .*filesystem=s3fs"):
        s3_settings(options)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_s3_endpoint_of_the_environment_may_be_plain_http(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9000")
    settings = s3_settings({"key": "k", "secret": "s"})
    assert (settings.server, settings.client_options) == (("s3", "http://127.0.0.1:9000"), {"allow_http": True})
    assert s3_settings({"endpoint_url": "https://host"}).server == ("s3", "https://host")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert s3_settings({}).server == ("s3", "")


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
