"""S3, Google Cloud Storage and Azure on loopback, all with authentication, for tests of all three."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.servers.azure_server import AZURITE
from tests.servers.child import child_server

__all__ = ["CLOUDS", "Cloud", "cloud_of", "without_credentials_around"]

CLOUDS = ["s3", "gs", "abfs"]
_POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
# The default key of Azurite.
_AZURES_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclasses.dataclass(frozen=True)
class Cloud:
    """A storage with a bucket `data`, and a bucket `public` that is readable without credentials."""

    scheme: str
    """The scheme of its URLs."""

    options: Mapping[str, Any]
    """`storage_options` with full access."""

    wrong: Mapping[str, Any]
    """`storage_options` with unknown or invalid keys."""

    nobody: Mapping[str, Any]
    """`storage_options` without keys."""

    gone: Mapping[str, Any]
    """`storage_options` with an address on which no server listens."""

    anonymous: Mapping[str, Any]
    """`storage_options` for unsigned requests."""

    secrets: tuple[str, ...]
    """Values of these options that must not be shown."""

    port: int
    """The port of the server."""

    @contextlib.contextmanager
    def public(self) -> Iterator[None]:
        """Make `public` readable within the block: moto rejects unsigned requests, so its signature check is off."""
        if self.scheme == "s3":
            _look_at_signatures(self.port, 1_000_000)
        try:
            yield
        finally:
            if self.scheme == "s3":
                _look_at_signatures(self.port)


@contextlib.contextmanager
def cloud_of(scheme: str, folder: Path) -> Iterator[Cloud]:
    """Start a storage, chosen by the scheme of its URLs.

    Args:
        scheme: One of `CLOUDS`.
        folder: A folder for key files.
    """
    with {"s3": _amazon, "gs": _google, "abfs": _azure}[scheme](folder) as cloud, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        gone = _elsewhere(cloud.options, cloud.port, bound.getsockname()[1])
        yield dataclasses.replace(cloud, gone=gone)


def _elsewhere(options: Any, port: int, other: int) -> Any:
    if isinstance(options, dict):
        return {name: _elsewhere(value, port, other) for name, value in options.items()}
    return options.replace(f":{port}", f":{other}") if isinstance(options, str) else options


@contextlib.contextmanager
def _amazon(folder: Path) -> Iterator[Cloud]:
    import boto3

    with child_server("tests.servers.moto_server") as port:
        url = f"http://127.0.0.1:{port}"
        given = {
            "endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "y",
        }  # fmt: skip
        s3, iam = boto3.client("s3", **given), boto3.client("iam", **given)
        s3.create_bucket(Bucket="data")
        s3.create_bucket(Bucket="public", ACL="public-read-write")
        iam.create_user(UserName="me")
        iam.put_user_policy(UserName="me", PolicyName="all", PolicyDocument=json.dumps(_POLICY))
        key = iam.create_access_key(UserName="me")["AccessKey"]
        s3.close()
        iam.close()
        _look_at_signatures(port)
        place = {"endpoint_url": url, "client_kwargs": {"region_name": "us-east-1"}}
        right = {**place, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}
        wrong = {**place, "key": "AKIAWRONGWRONGWRONG0", "secret": "hush-hush-hush-hush"}
        secrets: tuple[str, ...] = (key["AccessKeyId"], key["SecretAccessKey"], str(wrong["key"]), str(wrong["secret"]))
        yield Cloud("s3", right, wrong, place, {}, {**place, "anon": True}, secrets, port)


def _look_at_signatures(port: int, after: int = 0) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/moto-api/reset-auth", body=str(after).encode())
    assert connection.getresponse().status == 200
    connection.close()


@contextlib.contextmanager
def _google(folder: Path) -> Iterator[Cloud]:
    import requests

    from tests.servers.google_server import service_account

    with child_server("tests.servers.google_server", str(folder)) as port:
        url = f"http://127.0.0.1:{port}"
        account = json.loads((folder / "service-account.json").read_text(encoding="utf-8"))
        another, _ = service_account(url)
        from google.oauth2 import service_account as google

        found = google.Credentials.from_service_account_info(account, scopes=["x"])
        with requests.Session() as session:
            from google.auth.transport.requests import Request

            found.refresh(Request(session))
            for bucket in ("data", "public"):
                fields = {"Authorization": f"Bearer {found.token}"}
                answer = session.post(f"{url}/storage/v1/b?project=petastore", json={"name": bucket}, headers=fields)
                assert answer.status_code == 200, answer.text
        place = {"endpoint_url": url, "project": "petastore"}
        secrets = tuple(line for one in (account, another) for line in one["private_key"].split("\n")[1:-2])
        nobody = {**place, "token": "anon"}
        yield Cloud(
            "gs", {**place, "token": account}, {**place, "token": another}, nobody, {}, nobody, secrets, port,
        )  # fmt: skip


@contextlib.contextmanager
def _azure(folder: Path) -> Iterator[Cloud]:
    from azure.storage.blob import BlobServiceClient

    if not AZURITE.is_file():
        pytest.fail(f"there is no azurite at {AZURITE}: `make test-all` installs it", pytrace=False)
    with child_server("tests.servers.azure_server") as port:
        place = f"DefaultEndpointsProtocol=http;BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
        right = f"{place}AccountName=devstoreaccount1;AccountKey={_AZURES_KEY};"
        wrong_key = base64.b64encode(b"hush" * 16).decode()
        wrong = f"{place}AccountName=devstoreaccount1;AccountKey={wrong_key};"
        with BlobServiceClient.from_connection_string(right) as service:
            service.create_container("data")
            service.create_container("public", public_access="container")
        nobody = {"connection_string": place, "anon": True}
        yield Cloud(
            "abfs", {"connection_string": right}, {"connection_string": wrong}, nobody, {}, nobody,
            (_AZURES_KEY, wrong_key), port,
        )  # fmt: skip


def without_credentials_around(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Hide all credentials of the environment, the user's files and the machine."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        patch.delenv(name)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("AWS_MAX_ATTEMPTS", "1")
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
