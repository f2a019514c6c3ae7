"""Tests of S3 through obstore: keys and paths, forked children, credentials, and errors without secrets."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from petastore.errors import (
    DatasetNotFoundError,
    FileMissingError,
    StorageAccessError,
    StorageConnectionError,
    StorageError,
)
from petastore.storage.ranges.fetch import ByteRange, RangeFetcher
from petastore.storage.stores.object_store import ObjectStore
from petastore.storage.stores.store_settings import request_limits
from tests.storage.ranges.conftest import Fetcher, location_of

pytestmark = pytest.mark.server
DATA = b"0123456789" * 1000
NEVER = 1 << 60
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
PATHS = ["plain.parquet", "day=2020-01-01 00%3A00/a b#ü?&+.parquet", "deep/er/x.y", "a//b.parquet"]


@pytest.fixture(scope="module")
def keys(moto: int) -> Iterator[dict[str, Any]]:
    """Storage options for the bucket `data`; moto checks signatures until the last test of this file."""
    url = f"http://127.0.0.1:{moto}"
    given = {
        "endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "y",
    }  # fmt: skip
    s3 = boto3.client("s3", **given)
    s3.create_bucket(Bucket="data")
    for path in PATHS:
        s3.put_object(Bucket="data", Key=path, Body=DATA)
    s3.close()
    iam = boto3.client("iam", **given)
    iam.create_user(UserName="me")
    iam.put_user_policy(UserName="me", PolicyName="all", PolicyDocument=json.dumps(POLICY))
    key = iam.create_access_key(UserName="me")["AccessKey"]
    iam.close()
    without_looking_at_signatures(moto, actions=0)
    yield {
        "endpoint_url": url, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"],
        "client_kwargs": {"region_name": "us-east-1"},
    }  # fmt: skip
    without_looking_at_signatures(moto, actions=NEVER)


def without_looking_at_signatures(moto: int, *, actions: int) -> None:
    """Let moto skip the signature check for this many requests, and check all later ones."""
    connection = http.client.HTTPConnection("127.0.0.1", moto)
    connection.request("POST", "/moto-api/reset-auth", body=str(actions).encode())
    assert connection.getresponse().status == 200
    connection.close()


@pytest.fixture(autouse=True)
def _no_keys_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def read(fetcher: RangeFetcher, path: str) -> bytes:
    version = fetcher.version_of(path)
    found: bytes = fetcher.fetch(path, version, [ByteRange(3, 4)]).read(3, 4).to_pybytes()
    return found


@pytest.mark.parametrize("path", PATHS[:3])
def test_s3_paths_are_interpreted_like_fsspec(path: str, keys: dict[str, Any], fetcher: Fetcher) -> None:
    opened = fetcher(location_of("s3://data", **keys))
    assert read(opened, path) == b"3456"
    assert opened.client.system == "obstore"


def test_s3_key_with_an_empty_path_segment_raises(keys: dict[str, Any], fetcher: Fetcher) -> None:
    with pytest.raises(StorageError, match="empty path segment"):
        read(fetcher(location_of("s3://data", **keys)), PATHS[3])


@pytest.mark.leaves_running("Arrow's S3 keeps its threads")
def test_forked_child_reads_s3_by_arrow_after_obstore_was_used(keys: dict[str, Any], fetcher: Fetcher) -> None:
    opened = fetcher(location_of("s3://data", **keys))
    assert read(opened, PATHS[0]) == b"3456"
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            outcome = 0 if read(opened, PATHS[0]) == b"3456" and opened.client.system == "S3FileSystem" else 2
        finally:
            os._exit(outcome)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def failures(keys: dict[str, Any], fetcher: Fetcher, free_port: int) -> dict[str, StorageError]:
    asked = {
        "wrong keys": ("s3://data", {**keys, "key": "AKIAWRONG", "secret": "hush-hush-hush"}),
        "wrong secret": ("s3://data", {**keys, "secret": "hush-hush-hush"}),
        "no credentials": ("s3://data", {**keys, "key": None, "secret": None}),
        "no bucket": ("s3://no-such-bucket", keys),
        "no file": ("s3://data", keys),
        "no answer": ("s3://data", {**keys, "endpoint_url": f"http://127.0.0.1:{free_port}"}),
    }
    found: dict[str, StorageError] = {}
    for name, (url, options) in asked.items():
        given = {option: value for option, value in options.items() if value is not None}
        with pytest.raises(StorageError) as raised:
            fetcher(location_of(url, **given)).version_of("none.parquet" if name == "no file" else PATHS[0])
        found[name] = raised.value
    return found


@pytest.fixture
def free_port() -> Iterator[int]:
    """Yield a port on which no process listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_s3_invalid_settings_raise_without_secrets(keys: dict[str, Any], fetcher: Fetcher, free_port: int) -> None:
    found = failures(keys, fetcher, free_port)
    assert {name: type(problem) for name, problem in found.items()} == {
        "wrong keys": StorageAccessError,
        "wrong secret": StorageAccessError,
        "no credentials": StorageAccessError,
        "no bucket": DatasetNotFoundError,
        "no file": FileMissingError,
        "no answer": StorageConnectionError,
    }
    texts = {name: str(problem) for name, problem in found.items()}
    assert "InvalidAccessKeyId" in texts["wrong keys"]
    assert "SignatureDoesNotMatch" in texts["wrong secret"]
    assert "no credentials were found" in texts["no credentials"]
    assert "NoSuchBucket" in texts["no bucket"]
    assert "none.parquet is missing" in texts["no file"]
    assert "Connection refused" in texts["no answer"]
    assert len({text.partition("raised")[2] for text in texts.values()}) == 6
    shown = repr(found) + "".join(repr(problem.__context__) + repr(problem.__cause__) for problem in found.values())
    for secret in ("hush-hush-hush", "AKIAWRONG", keys["secret"], keys["key"]):
        assert secret not in shown


def test_s3_credentials_are_found_like_in_aws_tools(
    keys: dict[str, Any], fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    place = {name: value for name, value in keys.items() if name not in {"key", "secret"}}
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = {keys['key']}\naws_secret_access_key = {keys['secret']}\n"
    )
    assert read(fetcher(location_of("s3://data", profile="work", **place)), PATHS[0]) == b"3456"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["secret"])
    opened = fetcher(location_of("s3://data", **place))
    assert read(opened, PATHS[0]) == b"3456"
    assert opened.client.system == "obstore"


def test_s3_rotated_credentials_are_used(keys: dict[str, Any], moto: int, fetcher: Fetcher, tmp_path: Any) -> None:
    place = {name: value for name, value in keys.items() if name not in {"key", "secret"}}
    given = {
        "endpoint_url": keys["endpoint_url"], "region_name": "us-east-1",
        "aws_access_key_id": "x", "aws_secret_access_key": "y",
    }  # fmt: skip
    iam = boto3.client("iam", **given)

    def write(key: dict[str, str]) -> None:
        lines = f"aws_access_key_id = {key['AccessKeyId']}\naws_secret_access_key = {key['SecretAccessKey']}\n"
        (tmp_path / "credentials").write_text(f"[default]\n{lines}")

    without_looking_at_signatures(moto, actions=4)
    iam.create_user(UserName="rotated")
    iam.put_user_policy(UserName="rotated", PolicyName="all", PolicyDocument=json.dumps(POLICY))
    first, second = (iam.create_access_key(UserName="rotated")["AccessKey"] for _ in range(2))
    write(first)
    opened = fetcher(location_of("s3://data", **place))
    assert read(opened, PATHS[0]) == b"3456"
    write(second)
    without_looking_at_signatures(moto, actions=1)
    iam.delete_access_key(UserName="rotated", AccessKeyId=first["AccessKeyId"])
    assert read(opened, PATHS[0]) == b"3456"
    without_looking_at_signatures(moto, actions=1)
    iam.delete_access_key(UserName="rotated", AccessKeyId=second["AccessKeyId"])
    with pytest.raises(StorageAccessError, match="InvalidAccessKeyId"):
        read(opened, PATHS[0])
    assert opened.client.system == "obstore"
    iam.close()


def test_s3_given_credentials_are_not_mixed_with_the_environment(
    keys: dict[str, Any], fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASOMEBODY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert read(fetcher(location_of("s3://data", **keys)), PATHS[0]) == b"3456"


def test_s3_credentials_are_never_printed(keys: dict[str, Any], fetcher: Fetcher) -> None:
    opened = fetcher(location_of("s3://data", **keys))
    read(opened, PATHS[0])
    objects = ObjectStore("s3", keys)
    store = objects.settings.make_store("data", request_limits(objects.timeout_s, writes=False), None)
    shown = repr(opened) + repr(vars(opened)) + repr(objects.settings) + repr(store) + repr(store.config)
    assert keys["secret"] not in shown
    assert keys["key"] not in shown
