"""Tests of the obstore client on in-memory and local stores: bytes of one version, tails, listings, missing files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore, MemoryStore
from pyarrow import fs

from petastore.storage.stores.interface import FileVersion, NotTheVersionError
from petastore.storage.stores.object_store import ObjectStore
from petastore.storage.stores.store_settings import request_limits

DATA = bytes(range(100))


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    found: Any = MemoryStore() if request.param == "memory" else LocalStore(tmp_path)
    found.put("a/x", DATA)
    return found


def client_of(store: Any) -> ObjectStore:
    client = ObjectStore("s3", {"anon": True})
    client.settings = dataclasses.replace(client.settings, make_store=lambda *_: store)
    return client


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (0, 100), (37, 20), (99, 1)])
def test_object_store_range_request_returns_bytes_and_file_version(store: Any, offset: int, length: int) -> None:
    client = client_of(store)
    version = client.version("bucket/a/x")
    answer = client.get("bucket/a/x", offset, length, version)
    assert bytes(answer.data) == DATA[offset : offset + length]
    assert answer.version == version
    assert version.tells
    assert version.size == 100


@pytest.mark.parametrize("length", [1, 7, 100, 1000])
def test_object_store_suffix_ranges_equal_the_file(store: Any, length: int) -> None:
    answer = client_of(store).tail("bucket/a/x", length)
    assert bytes(answer.data) == DATA[-length:]
    assert answer.version == client_of(store).version("bucket/a/x")


def test_object_store_never_returns_another_version(store: Any) -> None:
    client = client_of(store)
    before = client.version("bucket/a/x")
    store.put("a/x", DATA[::-1] + b"!")
    with pytest.raises(NotTheVersionError):
        client.get("bucket/a/x", 0, 10, before)
    assert bytes(client.get("bucket/a/x", 0, 10, None).data) == DATA[::-1][:10]


def test_object_store_file_shorter_than_the_range_raises(store: Any) -> None:
    client = client_of(store)
    store.put("a/x", DATA[:50])
    for version in (None, FileVersion(100)):
        with pytest.raises(NotTheVersionError):
            client.get("bucket/a/x", 40, 60, version)


def test_object_store_missing_file_raises(store: Any) -> None:
    client = client_of(store)
    asks: list[Callable[[], object]] = [
        lambda: client.get("bucket/a/y", 0, 1, None),
        lambda: client.tail("bucket/a/y", 1),
        lambda: client.version("bucket/a/y"),
    ]
    for ask in asks:
        with pytest.raises(FileNotFoundError):
            ask()


OBJECTS = {
    "frames/part-0.parquet": b"PAR1",
    "frames/day=2020-01-01 00%3A00/a b#ü.parquet": b"0123456789",
    "frames/day=2020-01-02/b.parquet": b"abc",
    "frames/_SUCCESS": b"",
    "framesets/c.parquet": b"c",
}


@pytest.fixture
def objects() -> ObjectStore:
    """Return a client of an in-memory bucket."""
    store: Any = MemoryStore()
    for name, data in OBJECTS.items():
        store.put(name, data)
    return client_of(store)


@pytest.mark.parametrize("recursive", [True, False])
def test_get_file_info_returns_objects_and_directories_below(objects: ObjectStore, recursive: bool) -> None:
    found = {
        one.path: one
        for one in objects.get_file_info(fs.FileSelector("bucket/frames", recursive=recursive, allow_not_found=True))
    }
    directories = {path for path, one in found.items() if not one.is_file}
    assert directories == {"bucket/frames/day=2020-01-01 00%3A00", "bucket/frames/day=2020-01-02"}
    depth = 9 if recursive else 1
    below = {f"bucket/{name}": len(data) for name, data in OBJECTS.items() if name.startswith("frames/")}
    expected = {name: size for name, size in below.items() if name.count("/") <= depth + 1}
    assert {path: one.size for path, one in found.items() if one.is_file} == expected
    assert objects.get_file_info(fs.FileSelector("bucket/frame", recursive=recursive, allow_not_found=True)) == []


def test_object_store_directory_exists_if_an_object_is_below_it(objects: ObjectStore) -> None:
    assert [objects.has_directory(f"bucket/{name}") for name in ("frames", "frame")] == [True, False]


def test_read_whole_returns_only_the_size_of_objects_above_the_limit(objects: ObjectStore) -> None:
    path = "bucket/frames/day=2020-01-01 00%3A00/a b#ü.parquet"
    assert objects.read_whole(path, 10) == (10, b"0123456789")
    assert objects.read_whole(path, 9) == (10, b"")


def test_bucket_without_a_key_is_not_an_object(objects: ObjectStore) -> None:
    assert not objects.file_at("bucket").is_file


def test_request_limits_leave_time_for_another_attempt() -> None:
    def seconds(timeout_s: float | None) -> list[float]:
        limits = request_limits(timeout_s)
        assert limits["retry_config"] == {"max_retries": 0}
        names = ("timeout", "connect_timeout", "read_timeout")
        return [limits["client_options"][name].total_seconds() for name in names]

    assert seconds(8) == [8, 2, 2]
    assert seconds(60) == [60, 10, 15]
    assert seconds(300) == [300, 10, 30]
    assert seconds(None) == [86_400, 10, 30]
    assert request_limits(8, writes=True)["retry_config"]["max_retries"] > 0
