"""Tests of opening datasets over an unreliable network: the first request of each kind fails and is retried."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest

import petastore
from petastore.errors import MetadataError, StorageError
from petastore.storage.files.location import open_location
from petastore.storage.requests.failures import answered, answered_once
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("fsspec keeps its web session")]
SCHEMA = petastore.Unischema("Numbers", [petastore.UnischemaField("id", "int64")])
ROWS = 100
KEYS = {"key": "AKIAEXAMPLE", "secret": "hush-hush-hush", "client_kwargs": {"region_name": "us-east-1"}}


@pytest.fixture
def folder(served: Served) -> Path:
    """Write a dataset of two files behind the proxy."""
    path = served.root / uuid.uuid4().hex
    rows = ({"id": number} for number in range(ROWS))
    petastore.write_dataset(str(path), SCHEMA, rows, rows_per_file=ROWS // 2, rows_per_row_group=10)
    return path


@pytest.fixture(autouse=True)
def _new_file_systems() -> Iterator[None]:
    """Clear fsspec's instance cache, because instances remember listings."""
    yield
    fsspec.filesystem("http").clear_instance_cache()


@pytest.mark.parametrize("fault", ["throttled", "failed", "dropped"])
def test_http_open_retries_a_failed_request(folder: Path, proxy: FaultProxy, fault: str) -> None:
    urls = [f"{proxy.url}/{folder.name}/{path.name}" for path in sorted(folder.glob("*.parquet"))]
    proxy.begin(Faults(first=fault))
    with petastore.make_batch_reader(urls, shuffle_row_groups=False) as reader:
        assert [number for batch in reader for number in batch.id.tolist()] == list(range(ROWS))
    assert proxy.counted.faults[fault] > len(urls)


@pytest.mark.parametrize("place", [-9, -5, -1])
def test_open_fetches_a_footer_with_a_flipped_bit_again(folder: Path, proxy: FaultProxy, place: int) -> None:
    """The bit flips in the last byte of the footer, in its length, or in the magic number."""
    paths = sorted(folder.glob("*.parquet"))
    urls = [f"{proxy.url}/{folder.name}/{path.name}" for path in paths]
    proxy.begin(Faults(flipped=1.0, flip_at=place, most_flipped=1))
    with petastore.make_batch_reader(urls, shuffle_row_groups=False) as reader:
        assert [number for batch in reader for number in batch.id.tolist()] == list(range(ROWS))
    assert proxy.counted.flipped > 1
    data = bytearray(paths[1].read_bytes())
    data[place] ^= 1
    paths[1].write_bytes(data)
    proxy.begin(Faults())
    with pytest.raises(
        MetadataError,
        match=rf"{paths[1].name}.*(at byte|must declare a footer|truncated or damaged Parquet file: it must end)",
    ):
        petastore.open_dataset(urls)
    assert sum(f"{paths[1].name} HTTP/1.1 bytes=" in head for head in proxy.counted.heads) >= 2


# botocore waits up to a second before it retries a 500 or 503 response.
@pytest.mark.parametrize(
    "fault",
    [pytest.param("throttled", marks=pytest.mark.slow), pytest.param("failed", marks=pytest.mark.slow), "dropped"],
)
def test_s3_dataset_opens_with_and_without_a_manifest(moto: int, fault: str) -> None:
    name = uuid.uuid4().hex
    near: dict[str, Any] = {**KEYS, "endpoint_url": f"http://127.0.0.1:{moto}"}
    keys = {"aws_access_key_id": KEYS["key"], "aws_secret_access_key": KEYS["secret"]}
    bucket = boto3.resource("s3", endpoint_url=near["endpoint_url"], region_name="us-east-1", **keys).Bucket(name)
    bucket.create()
    rows = ({"id": number} for number in range(ROWS))
    petastore.write_dataset(f"s3://{name}/frames", SCHEMA, rows, storage_options=near)
    with FaultProxy(moto, Faults(first=fault)) as bad:
        options: dict[str, Any] = {**KEYS, "endpoint_url": bad.url}
        assert petastore.open_dataset(f"s3://{name}/frames", storage_options=options).inventory.num_rows == ROWS
        bucket.objects.filter(Prefix="frames/_petastore/").delete()
        options["skip_instance_cache"] = True
        assert petastore.open_dataset(f"s3://{name}/frames", storage_options=options).inventory.num_rows == ROWS
        assert bad.counted.faults[fault] > 4


def test_open_dataset_error_tells_the_number_of_attempts(folder: Path, proxy: FaultProxy) -> None:
    (url, *_) = (f"{proxy.url}/{folder.name}/{path.name}" for path in folder.glob("*.parquet"))
    proxy.begin(Faults(throttled=1.0))
    with pytest.raises(
        StorageError, match=r"503.*throttles requests.* \(it was tried \d+ times within .* s\)$"
    ) as caught:
        petastore.open_dataset(url)
    tried, _ = re.findall(r"[\d.]+", str(caught.value).rpartition("(it was tried")[2])
    assert 1 < int(tried) <= 10


def test_lost_requests_are_retried_but_writes_never(tmp_path: Path) -> None:
    far, near = open_location("memory://bucket/frames"), open_location(tmp_path)
    made: list[str] = []

    def call() -> int:
        made.append("asked")
        if len(made) % 3:
            raise ConnectionResetError("reset")
        return 7

    assert answered(far, call, "list the directory") == 7
    assert len(made) == 3
    for place, asking in ((far, answered_once), (near, answered)):
        made.clear()
        with pytest.raises(StorageError, match="reset"):
            asking(place, call, "be asked")
        assert len(made) == 1
