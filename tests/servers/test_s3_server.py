"""Tests of the fast S3 server: the clients that are measured with it get S3's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from petastore.storage.stores.object_store import ObjectStore
from tests.servers.fixtures import MOTO_KEYS
from tests.servers.s3_server import S3Server

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("obstore keeps its threads")]
DATA = bytes(range(256)) * 40
KEYS = ["a.bin", "folder/b c.bin", "folder/deep/d.bin", "folder/deeper/e.bin"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    for key in KEYS:
        place = tmp_path / "bucket" / key
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(DATA)
    with S3Server(tmp_path) as standing:
        yield standing


@pytest.fixture
def by_boto(server: S3Server) -> Iterator[Any]:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=MOTO_KEYS["key"],
        aws_secret_access_key=MOTO_KEYS["secret"],
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


def test_s3_server_lists_reads_and_puts(server: S3Server, tmp_path: Path) -> None:
    store = ObjectStore("s3", {**MOTO_KEYS, "endpoint_url": server.url})
    found = store.get_file_info(fs.FileSelector("bucket", recursive=True, allow_not_found=True))
    assert sorted(one.path for one in found if one.is_file) == [f"bucket/{key}" for key in sorted(KEYS)]
    assert sorted(
        one.path for one in store.get_file_info(fs.FileSelector("bucket/folder", recursive=False, allow_not_found=True))
    ) == [
        "bucket/folder/b c.bin",
        "bucket/folder/deep",
        "bucket/folder/deeper",
    ]
    assert store.version("bucket/folder/b c.bin").size == len(DATA)
    assert bytes(store.get("bucket/folder/b c.bin", 10, 10, None).data) == DATA[10:20]
    assert store.bucket_is_missing("other")
    store.put("bucket/new/f.bin", DATA[:1000])
    assert (tmp_path / "bucket/new/f.bin").read_bytes() == DATA[:1000]


def test_s3_server_accepts_boto_chunked_uploads(by_boto: Any, tmp_path: Path) -> None:
    by_boto.download_file("bucket", "folder/deep/d.bin", str(tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == DATA
    (tmp_path / "large").write_bytes(DATA * 20)
    with (tmp_path / "large").open("rb") as file:
        put = by_boto.put_object(Bucket="bucket", Key="put.bin", Body=file)
    assert (tmp_path / "bucket/put.bin").read_bytes() == DATA * 20
    assert by_boto.head_object(Bucket="bucket", Key="put.bin")["ETag"] == put["ETag"]


def test_s3_server_lists_in_pages(by_boto: Any) -> None:
    pages = by_boto.get_paginator("list_objects_v2").paginate(Bucket="bucket", PaginationConfig={"PageSize": 1})
    assert [one["Key"] for page in pages for one in page["Contents"]] == sorted(KEYS)
    pages = by_boto.get_paginator("list_objects_v2").paginate(
        Bucket="bucket", Prefix="folder/", Delimiter="/", PaginationConfig={"PageSize": 2}
    )
    assert [
        [[one["Prefix"] for one in page.get("CommonPrefixes", [])], [one["Key"] for one in page.get("Contents", [])]]
        for page in pages
    ] == [[["folder/deep/"], ["folder/b c.bin"]], [["folder/deeper/"], []]]


def test_s3_server_supports_conditional_requests_of_obstore(server: S3Server) -> None:
    import obstore
    from obstore.exceptions import PreconditionError
    from obstore.store import S3Store

    plain: Any = {"allow_http": True}
    store = S3Store(
        "bucket",
        endpoint=server.url,
        region="us-east-1",
        access_key_id=MOTO_KEYS["key"],
        secret_access_key=MOTO_KEYS["secret"],
        client_options=plain,
    )
    found = obstore.get(store, "a.bin", options={"range": (5, 9)})
    assert (bytes(found.bytes()), found.meta["size"]) == (DATA[5:9], len(DATA))
    with pytest.raises(PreconditionError):
        obstore.get(store, "a.bin", options={"if_match": '"another"'})


def test_s3_server_returns_404_for_missing_objects(by_boto: Any) -> None:
    from botocore.exceptions import ClientError

    calls: dict[str, Callable[[], Any]] = {
        "NoSuchKey": lambda: by_boto.get_object(Bucket="bucket", Key="none"),
        "NoSuchBucket": lambda: by_boto.list_objects_v2(Bucket="none"),
        "NotImplemented": lambda: by_boto.get_bucket_versioning(Bucket="bucket"),
    }
    for code, call in calls.items():
        with pytest.raises(ClientError) as failed:
            call()
        assert failed.value.response["Error"]["Code"] == code
