"""What obstore says of objects is what s3fs says of them; and what it cannot say is said by nobody else."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from fsspec.spec import AbstractFileSystem

from petastore.storage.obstores.client import ObstoreClient
from petastore.storage.obstores.objects import Objects
from petastore.storage.obstores.s3 import s3_settings, s3_stores
from petastore.storage.requests.client import NoBucketError, NotTheVersionError, UnsuitedError
from tests.servers.fixtures import MOTO_KEYS

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("s3fs keeps its threads")]
OBJECTS = {
    "frames/part-0.parquet": b"PAR1",
    "frames/day=2020-01-01 00%3A00/a b#ü.parquet": b"0123456789",
    "frames/day=2020-01-02/": b"",  # the mark of a directory
    "frames/day=2020-01-02/b.parquet": b"abc",
    "frames/_SUCCESS": b"",
    "frames/_petastore/.lock": b"",
    "frames/_petastore/inventory.arrow": b"ARROW1",
    "framesets/c.parquet": b"c",
    "marked/new/": b"",
}


@pytest.fixture(scope="module")
def options(moto: int) -> dict[str, Any]:
    """Of who reads the bucket `objects`."""
    url = f"http://127.0.0.1:{moto}"
    key, secret = MOTO_KEYS.values()
    s3 = boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key=secret
    )
    s3.create_bucket(Bucket="objects")
    for name, data in OBJECTS.items():
        s3.put_object(Bucket="objects", Key=name, Body=data)
    s3.close()
    return {**MOTO_KEYS, "endpoint_url": url, "client_kwargs": {"region_name": "us-east-1"}}


@pytest.fixture
def objects(options: dict[str, Any]) -> Objects:
    """They, as obstore sees them."""
    settings = s3_settings(options)
    assert settings is not None
    return Objects(ObstoreClient(s3_stores(settings, 30.0)))


@pytest.fixture
def by_s3fs(options: dict[str, Any]) -> AbstractFileSystem:
    """They, as s3fs sees them."""
    import s3fs

    return s3fs.S3FileSystem(**options, skip_instance_cache=True, use_listings_cache=False)


def told(infos: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {path: tuple(info.get(name) for name in ("type", "size", "ETag")) for path, info in infos.items()}


def test_all_that_lies_below_a_directory_is_what_s3fs_finds(objects: Objects, by_s3fs: AbstractFileSystem) -> None:
    found = by_s3fs.find("objects/frames", withdirs=True, detail=True)
    listed = objects.below("objects/frames", recursive=True)
    marks = {path for path in found if path.endswith("/")}  # of directories that are told by what lies in them
    assert told(listed) == told({path: found[path] for path in found.keys() - marks - {"objects/frames"}})
    assert {info["type"] for info in listed.values()} == {"file", "directory"}


def test_one_level_is_what_s3fs_lists(objects: Objects, by_s3fs: AbstractFileSystem) -> None:
    level = {info["name"]: info for info in by_s3fs.ls("objects/frames", detail=True)}
    assert told(objects.below("objects/frames", recursive=False)) == told(level)


def test_an_object_is_told_as_s3fs_tells_it(objects: Objects, by_s3fs: AbstractFileSystem) -> None:
    for name in ("frames/part-0.parquet", "frames/day=2020-01-01 00%3A00/a b#ü.parquet"):
        one, other = objects.one(f"objects/{name}"), by_s3fs.info(f"objects/{name}")
        assert one == {name: other[name] for name in one}


def test_below_what_is_no_directory_there_is_nothing(objects: Objects) -> None:
    assert objects.below("objects/frame", recursive=True) == {}
    assert objects.has_some_below("objects/frames")
    assert not objects.has_some_below("objects/frame")


def test_what_may_be_an_empty_directory_is_not_told_as_a_file(objects: Objects) -> None:
    with pytest.raises(UnsuitedError):
        objects.below("objects/marked", recursive=True)


def test_a_small_object_comes_whole_by_one_request_and_of_a_large_one_its_size(objects: Objects) -> None:
    path = "objects/frames/day=2020-01-01 00%3A00/a b#ü.parquet"
    assert objects.whole(path, 10) == (10, b"0123456789")
    assert objects.whole(path, 9) == (10, b"")


def test_a_part_ends_where_the_object_does(objects: Objects) -> None:
    assert objects.part("objects/frames/part-0.parquet", 1, 100) == b"AR1"
    with pytest.raises(NotTheVersionError):
        objects.part("objects/frames/part-0.parquet", 4, 100)


def test_an_object_that_is_missing_is_told_from_a_bucket_that_is(objects: Objects) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        objects.whole("objects/frames/x", 10)
    assert not isinstance(missing.value, NoBucketError)
    for path in ("nobody/x", "nobody/x/y"):
        with pytest.raises(NoBucketError):
            objects.below(path, recursive=True)
    with pytest.raises(UnsuitedError):
        objects.one("objects")
