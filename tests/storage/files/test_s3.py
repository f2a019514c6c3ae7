"""Reading S3 takes obstore alone; whatever obstore does not do is done by s3fs, as if there were nothing else."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

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
from petastore.storage.files.s3 import S3FileSystem, s3_file_system
from petastore.storage.files.whole_files import read_range, read_whole
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
    """Of a server of S3 that has a dataset in its bucket."""
    root = tmp_path_factory.mktemp("s3")
    (root / "bucket").mkdir()
    petastore.write_dataset(root / "bucket/frames", pa.table({"id": np.arange(ROWS)}), rows_per_file=25)
    with child_server("tests.servers.s3_server", str(root)) as port:
        yield port


@pytest.fixture
def line(port: int) -> Iterator[FaultProxy]:
    """To that server; counts."""
    with FaultProxy(port) as standing:
        yield standing


def options_of(line: FaultProxy, **more: Any) -> dict[str, Any]:
    return {**MOTO_KEYS, "endpoint_url": line.url, "client_kwargs": {"region_name": "us-east-1"}, **more}


def asked(line: FaultProxy) -> list[str]:
    """What was asked: method, and a listing or the path."""
    heads = [head.split(" ", 2) for head in line.counted.heads]
    return [f"{method} {'list' if 'list-type' in target else target}" for method, target, *_ in heads]


def is_made(store: S3FileSystem) -> bool:
    return store._s3fs is not None


@pytest.mark.parametrize("are_around", [False, True])
def test_who_reads_with_keys_imports_no_s3fs_and_lists_once(line: FaultProxy, *, are_around: bool) -> None:
    options, around = options_of(line), {**os.environ}
    if are_around:
        around |= {"AWS_ACCESS_KEY_ID": options.pop("key"), "AWS_SECRET_ACCESS_KEY": options.pop("secret")}
    command = [sys.executable, "-c", READ, json.dumps(options)]
    ended = subprocess.run(command, env=around, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout.splitlines()[-1]) == {"rows": ROWS, "imported": []}
    assert asked(line).count("GET list") == 1
    assert sum(one.startswith("HEAD") for one in asked(line)) == 1


def test_files_are_listed_as_s3fs_lists_them(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    by_s3fs = fsspec.filesystem("s3", **options_of(line))
    assert list_etags(location) == list_etags(open_location("s3://bucket/frames", filesystem=by_s3fs))
    assert not is_made(location.store)
    found = location.filesystem.get_file_info(fs.FileSelector("bucket/frames", recursive=True))
    assert {info.path for info in found} == set(by_s3fs.find("bucket/frames", withdirs=True)) - {"bucket/frames"}


def test_a_small_file_is_read_by_one_request(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    line.begin(Faults())
    assert (read_whole(location, "_petastore/inventory.arrow", max_bytes=1 << 20) or b"")[:6] == b"ARROW1"
    assert asked(line) == ["GET /bucket/frames/_petastore/inventory.arrow"]
    assert read_whole(location, "_petastore/nothing", max_bytes=1 << 20) is None
    assert not is_made(location.store)


def test_what_is_at_a_path_is_told(line: FaultProxy) -> None:
    files, _ = filesystem_and_path("s3://bucket/frames", options_of(line), None)
    kinds = [info.type for info in files.get_file_info(["bucket/frames", "bucket/frames/_common_metadata", "bucket/x"])]
    assert kinds == [fs.FileType.Directory, fs.FileType.File, fs.FileType.NotFound]
    assert files.get_file_info(fs.FileSelector("bucket/x", allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        files.get_file_info(fs.FileSelector("bucket/x"))
    with pytest.raises(NotADirectoryError):
        files.get_file_info(fs.FileSelector("bucket/frames/_common_metadata"))
    assert not is_made(files.handler.fs)


def test_what_goes_wrong_is_asked_of_s3fs(line: FaultProxy) -> None:
    location = open_location("s3://nobody/frames", storage_options=options_of(line))
    with pytest.raises(DatasetNotFoundError, match="there is no bucket 'nobody'"):
        list_etags(location)
    assert is_made(location.store)


def test_a_server_that_is_busy_for_a_while_is_asked_as_often_as_s3fs_asks(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    line.begin(Faults(first="throttled"))
    assert len(list_etags(location)) == ROWS // 25


def test_files_are_written_and_removed_by_s3fs(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    location.store.pipe_file("bucket/other/new.bin", b"0123456789")
    assert is_made(location.store)
    assert location.store.cat_file("bucket/other/new.bin", start=2, end=4) == b"23"
    assert location.store.size("bucket/other/new.bin") == 10


@pytest.mark.parametrize("more", [{"session": "mine"}, {"config_kwargs": {"proxies": {}}}, {"version_aware": True}])
def test_options_that_obstore_does_not_know_are_of_s3fs(more: dict[str, Any]) -> None:
    assert s3_file_system("s3://bucket/frames", {"anon": True, **more}) is None


def test_a_file_system_that_somebody_put_in_place_of_s3fs_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = importlib.import_module("fsspec.registry")._registry
    monkeypatch.setitem(registered, "s3", type("Mine", (), {}))
    assert s3_file_system("s3://bucket/frames", {"anon": True}) is None


def test_settings_of_fsspec_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": "http://127.0.0.1:9"})
    made = s3_file_system("s3://bucket/frames", {"anon": True})
    assert made is not None
    assert made.storage_options["endpoint_url"] == "http://127.0.0.1:9"


def test_it_pickles_with_its_options_and_shows_none() -> None:
    store = S3FileSystem(key="AKIA", secret="hush-hush", anon=False)  # noqa: S106 - it is none
    again = pickle.loads(pickle.dumps(store))  # noqa: S301 - it is our own
    assert again == store
    assert again.storage_options == store.storage_options
    assert hash(again) == hash(store)
    assert store != S3FileSystem(anon=True)
    assert repr(store) == "S3FileSystem()"
    assert not any("hush" in repr(value) for name, value in vars(store).items() if name != "storage_options")


def test_what_no_file_system_has_it_does_not_have_and_nothing_is_made_for_it() -> None:
    store = S3FileSystem(anon=True)
    with pytest.raises(AttributeError):
        store.account_name  # noqa: B018 - asking is what is tried
    assert not is_made(store)
    assert store.anon


def test_a_file_that_is_missing_is_said_to_be(line: FaultProxy) -> None:
    location = open_location("s3://bucket/frames", storage_options=options_of(line))
    with pytest.raises(FileMissingError, match="nothing"):
        read_range(location, "nothing", 0, 10)
    with pytest.raises(StorageError):
        read_range(location, "_common_metadata", 1 << 20, 10)
