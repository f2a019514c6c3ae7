"""Tests of the S3 filesystem on obstore: list, read, write and delete with few requests and without s3fs."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import fsspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

import petastore
from petastore.errors import DatasetNotFoundError, FileMissingError, StorageError
from petastore.storage.files.file_systems import filesystem_and_path
from petastore.storage.files.listing import list_etags
from petastore.storage.files.location import open_location
from petastore.storage.files.whole_files import read_range, read_whole
from petastore.storage.stores.object_store import ObjectStore
from tests.servers.child import child_server
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import MOTO_KEYS

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("s3fs and obstore keep their threads")]
ROWS = 100
READ = """
import json, sys
import petastore
options = json.loads(sys.argv[1])
with petastore.make_reader("s3://bucket/frames", storage_options=options, workers_count=1) as reader:
    rows = sum(1 for _ in reader)
imported = [name for name in ("s3fs", "aiobotocore", "botocore") if name in sys.modules]
print(json.dumps({"rows": rows, "imported": imported}))
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield the port of an S3 server that has a dataset in its bucket."""
    root = tmp_path_factory.mktemp("s3")
    (root / "bucket").mkdir()
    petastore.write_dataset(root / "bucket/frames", pa.table({"id": np.arange(ROWS)}), rows_per_file=25)
    with child_server("tests.servers.s3_server", str(root)) as port:
        yield port


@pytest.fixture
def line(port: int) -> Iterator[FaultProxy]:
    """Yield a proxy that counts the requests to that server."""
    with FaultProxy(port) as standing:
        yield standing


def options_of(line: FaultProxy, **more: Any) -> dict[str, Any]:
    return {**MOTO_KEYS, "endpoint_url": line.url, "client_kwargs": {"region_name": "us-east-1"}, **more}


def asked(line: FaultProxy) -> list[str]:
    """Return the requests: the method, and `list` or the path."""
    heads = [head.split(" ", 2) for head in line.counted.heads]
    return [f"{method} {'list' if 'list-type' in target else target}" for method, target, *_ in heads]


@pytest.mark.parametrize("are_around", [False, True])
def test_s3_reading_imports_no_s3fs_and_lists_once(line: FaultProxy, *, are_around: bool) -> None:
    options, around = options_of(line), {**os.environ}
    if are_around:
        around |= {"AWS_ACCESS_KEY_ID": options.pop("key"), "AWS_SECRET_ACCESS_KEY": options.pop("secret")}
    command = [sys.executable, "-c", READ, json.dumps(options)]
    ended = subprocess.run(command, env=around, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout.splitlines()[-1]) == {"rows": ROWS, "imported": []}
    assert asked(line).count("GET list") == 1
    assert sum(one.startswith("HEAD") for one in asked(line)) == 1


def test_object_store_filesystem_lists_files_and_directories(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    assert len(list_etags(location)) == ROWS // 25
    assert all(size and etag for size, etag in list_etags(location).values())
    found = location.filesystem.get_file_info(fs.FileSelector("bucket/frames", recursive=True))
    directories = {info.path for info in found if info.type == fs.FileType.Directory}
    assert directories == {"bucket/frames/_petastore"}


def test_object_store_filesystem_reads_a_small_file_by_one_request(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    line.begin(Faults())
    assert (read_whole(location, "_petastore/inventory.arrow", max_bytes=1 << 20) or b"")[:6] == b"ARROW1"
    assert asked(line) == ["GET /bucket/frames/_petastore/inventory.arrow"]
    assert read_whole(location, "_petastore/nothing", max_bytes=1 << 20) is None


def test_object_store_filesystem_reports_the_type_of_a_path(line: FaultProxy) -> None:
    files, _ = filesystem_and_path("s3://bucket/frames", options_of(line), None)
    kinds = [info.type for info in files.get_file_info(["bucket/frames", "bucket/frames/_common_metadata", "bucket/x"])]
    assert kinds == [fs.FileType.Directory, fs.FileType.File, fs.FileType.NotFound]
    assert files.get_file_info(fs.FileSelector("bucket/x", allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        files.get_file_info(fs.FileSelector("bucket/x"))
    with pytest.raises(NotADirectoryError):
        files.get_file_info(fs.FileSelector("bucket/frames/_common_metadata"))


def test_object_store_filesystem_names_a_missing_bucket(line: FaultProxy) -> None:
    location = open_location("s3://nobody/frames", storage_options=options_of(line))
    with pytest.raises(DatasetNotFoundError, match="the bucket 'nobody' does not exist"):
        list_etags(location)


def test_object_store_filesystem_retries_a_throttled_listing(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    line.begin(Faults(first="throttled"))
    assert len(list_etags(location)) == ROWS // 25


def test_object_store_filesystem_writes_copies_moves_and_deletes(moto: int) -> None:
    options = {**MOTO_KEYS, "endpoint_url": f"http://127.0.0.1:{moto}", "client_kwargs": {"region_name": "us-east-1"}}
    client = boto3.client(
        "s3", endpoint_url=options["endpoint_url"], region_name="us-east-1",
        aws_access_key_id=MOTO_KEYS["key"], aws_secret_access_key=MOTO_KEYS["secret"],
    )  # fmt: skip
    client.create_bucket(Bucket="bucket")
    client.close()
    location = open_location("s3://bucket/other", storage_options=options)
    files = location.filesystem
    location.store.put("bucket/other/small.bin", b"0123456789")
    with files.open_output_stream("bucket/other/day=1/large.bin", compression=None) as sink:
        sink.write(b"01234")
        sink.write(b"56789")
    with files.open_input_file("bucket/other/day=1/large.bin") as source:
        assert (source.size(), source.read(4), source.read_at(2, 3)) == (10, b"0123", b"34")
    files.move("bucket/other/small.bin", "bucket/other/moved.bin")
    found = files.get_file_info(fs.FileSelector("bucket/other", recursive=True))
    assert {info.path: info.size for info in found} == {
        "bucket/other/day=1": None, "bucket/other/day=1/large.bin": 10, "bucket/other/moved.bin": 10,
    }  # fmt: skip
    files.delete_file("bucket/other/moved.bin")
    assert not files.get_file_info("bucket/other/moved.bin").is_file
    location.store.put("bucket/other/more.bin", b"0123456789")
    files.delete_dir("bucket/other")
    assert files.get_file_info(fs.FileSelector("bucket/other", allow_not_found=True)) == []


def test_object_store_filesystem_uses_fsspec_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": "http://127.0.0.1:9"})
    assert ObjectStore("s3", {"anon": True}).settings.server == ("s3", "http://127.0.0.1:9")


def test_object_store_filesystem_pickles_without_showing_options() -> None:
    store = ObjectStore("s3", {"key": "AKIA", "secret": "hush-hush", "anon": False})
    again = pickle.loads(pickle.dumps(store))  # noqa: S301 - it is our own
    assert again == store
    assert again.storage_options == store.storage_options
    assert hash(again) == hash(store)
    assert store != ObjectStore("s3", {"anon": True})
    assert repr(store) == "ObjectStore('s3')"
    assert not any("hush" in repr(value) for name, value in vars(store).items() if name != "storage_options")


def test_object_store_filesystem_reports_a_missing_file(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    with pytest.raises(FileMissingError, match="nothing"):
        read_range(location, "nothing", 0, 10)
    with pytest.raises(StorageError):
        read_range(location, "_common_metadata", 1 << 20, 10)
